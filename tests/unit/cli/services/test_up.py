"""The start of a plane in the background."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.main import run
from gangline.cli.services import up


def test_a_plane_that_does_not_start_is_reported_with_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("of an earlier start\n")
    # A file where the plane needs a folder.
    (tmp_path / "state").write_text("")
    assert run(["up", "--detach", "--dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path}: the plane did not start:")
    assert "of an earlier start" not in error
    assert f"its whole log: {tmp_path / 'log'}" in error


def test_a_plane_that_is_never_ready_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "TIMEOUT_SECONDS", 0.0)
    started: list[int] = []
    popen = subprocess.Popen

    def remember(*args: Any, **kwargs: Any) -> Any:
        process = popen(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", remember)
    assert run(["up", "--detach", "--dir", str(tmp_path)]) == 1
    assert "the plane was not ready after 0 s" in capsys.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
