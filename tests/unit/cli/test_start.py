"""The command starts fast: what it does not need is not imported. How fast is a benchmark, not a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

HEAVY = {"aiohttp", "numpy", "rich"}


def imported(code: str, *arguments: str) -> set[str]:
    """The top-level modules that a new interpreter has imported after running the code."""
    report = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    completed = subprocess.run(
        [sys.executable, "-c", code + report, *arguments], check=True, capture_output=True, text=True
    )
    return set(json.loads(completed.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["gangline", "gangline.cli", "gangline.cli.main"])
def test_importing_the_command_line_leaves_heavy_packages_alone(module: str) -> None:
    assert not imported(f"import {module}") & HEAVY


def test_version_is_printed_without_importing_click() -> None:
    code = "import sys; sys.argv[0] = 'gangline'\nfrom gangline.__main__ import main; assert main() == 0"
    assert not imported(code, "--version") & (HEAVY | {"click", "asyncio"})


def test_get_needs_neither_click_nor_an_event_loop_nor_typing_extensions() -> None:
    code = "import sys; sys.argv[0] = 'gangline'\nfrom gangline.__main__ import main; assert main() == 1"
    modules = imported(code, "get", "tfjobs", "--kubeconfig", "nowhere")
    assert "msgspec" in modules
    assert not modules & (HEAVY | {"click", "asyncio", "typing_extensions"})


def test_typing_extensions_can_still_be_imported_after_get() -> None:
    code = "from gangline.cli import get_fastpath; assert get_fastpath.run(['tfjobs', '--kubeconfig', 'nowhere']) == 1"
    assert "typing_extensions" in imported(f"{code}\nimport typing_extensions")


def test_a_run_needs_no_cryptography_because_its_plane_has_no_certificates() -> None:
    modules = imported("import gangline.cli.run.local")
    assert "aiohttp" in modules
    assert "cryptography" not in modules


def test_a_local_run_reads_no_authorities_and_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    (tmp_path / "job.py").write_text(
        "import os; print('sees', os.environ['SSL_CERT_FILE'], 'SSL_CERT_DIR' in os.environ)"
    )
    code = (
        "import sys; from gangline.cli.main import run\n"
        "assert run(['run', '--nproc', '1', '--', sys.executable, 'job.py']) == 0\n"
        "from aiohttp import connector; print('read', connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509_ca'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "SSL_CERT_FILE": str(authority)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"sees {authority} False" in done.stdout
    assert "read 0" in done.stdout
