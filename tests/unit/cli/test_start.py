"""The command starts fast: what it does not need is not imported. How fast is a benchmark, not a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
import yaml

from gangline.kube.config.access import PlaneAccess

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


GET = "import sys; from gangline.cli import get_fastpath; assert get_fastpath.run(sys.argv[1:]) == 1"


def test_get_asks_a_server_without_what_loads_slowly(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    kubeconfig = tmp_path / "kubeconfig"
    # Nobody listens on port 1.
    kubeconfig.write_text(yaml.safe_dump(PlaneAccess("https://127.0.0.1:1", "secret", authority).kubeconfig()))
    modules = imported(GET, "tfjobs", "--kubeconfig", str(kubeconfig))
    assert {"msgspec", "ssl"} <= modules
    # Those after asyncio are: the YAML of a kubeconfig, what msgspec imports, the tables to encode a host name.
    assert not modules & (HEAVY | {"click", "asyncio", "yaml", "typing_extensions", "platform", "stringprep"})


@pytest.mark.parametrize("module", ["typing_extensions", "platform"])
def test_what_get_leaves_out_can_still_be_imported_after_it(module: str) -> None:
    code = f"{GET}\nimport {module}; assert {module}.__file__"
    assert module in imported(code, "tfjobs", "--kubeconfig", "nowhere")


EXIT = [sys.executable, "-c", "from gangline.cli.get_fastpath import exit_at_once; print('all of it'); exit_at_once(3)"]


def test_an_exit_at_once_loses_no_output() -> None:
    done = subprocess.run(EXIT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "all of it\n")


def test_an_exit_at_once_reports_output_that_cannot_be_written() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full, which Linux has")
    # Else `print` itself would fail.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(EXIT, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


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
