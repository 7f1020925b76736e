"""`gangline version`."""

import json
from pathlib import Path

import pytest

from gangline import __version__
from gangline.cli.main import run


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any server."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "state"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_server_our_version_is_printed_and_that_is_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr() == (f"gangline {__version__}\n", "no server is running\n")


def test_the_client_version_needs_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--client", "-o", "json"]) == 0
    output = capsys.readouterr()
    assert (json.loads(output.out), output.err) == ({"gangline": __version__}, "")


def test_a_missing_server_that_was_named_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--kubeconfig", "nowhere"]) == 1
    output = capsys.readouterr()
    assert output.out == f"gangline {__version__}\n"
    assert output.err == "error: kubeconfig: nowhere: no such file; correct the path or create it\n"
