"""What a plane does not load before somebody asks for it: `gangline run` starts quickly."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["gangline.apiserver.admission.quota.items", "gangline.apiserver.admission.security.standards"]
)
def test_a_plane_without_quotas_and_labels_does_not_load_them(module: str) -> None:
    program = f"import sys, gangline.local.cluster; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("module", ["gangline.operator.progress.endpoint", "cryptography"])
def test_a_plane_to_which_nobody_reports_does_not_load_what_it_needs_for_that(module: str) -> None:
    program = f"import sys, gangline.operator.assembly; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
