"""The start of a plane in the background."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.main import run
from gangline.cli.services import plane_start
from gangline.cli.services.plane_start import StartWatch


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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> "list[subprocess.Popen[bytes]]":
    """The processes that are started."""
    processes: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*args: Any, **kwargs: Any) -> Any:
        processes.append(popen(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    return processes


def test_a_plane_that_is_never_ready_is_ended(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    started: "list[subprocess.Popen[bytes]]",
) -> None:
    monkeypatch.setattr(plane_start, "LIMIT_SECONDS", 0.0)
    assert run(["up", "--detach", "--dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "the plane was not ready after 0 s: it has written nothing yet, and used " in error
    assert "disk" not in error
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_a_plane_that_starts_slowly_is_waited_for(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    started: "list[subprocess.Popen[bytes]]",
) -> None:
    monkeypatch.setattr(plane_start, "SLOW_SECONDS", 0.0)
    assert run(["up", "--detach", "--no-dashboard", "--dir", str(tmp_path)]) == 0
    try:
        first, *_ = capsys.readouterr().err.splitlines()
        assert first.startswith(f"waiting for process {started[0].pid}, which is starting the plane")
        assert f"the machine is busy (its log: {tmp_path / 'log'})" in first
    finally:
        assert run(["down", "--dir", str(tmp_path)]) == 0
        started[0].wait()


def test_a_plane_is_waited_for_as_long_as_it_uses_the_cpu() -> None:
    watch = StartWatch(0.0)
    assert not any(watch.gives_up(now, cpu=now / 50) for now in range(0, 599, 20))
    assert watch.gives_up(600.0, cpu=12.0)


def test_a_plane_that_stands_still_is_given_up_after_a_minute() -> None:
    watch = StartWatch(0.0)
    assert not watch.gives_up(50.0, cpu=0.7)
    assert not watch.gives_up(109.0, cpu=0.7)
    assert watch.gives_up(110.0, cpu=0.7)
    assert (watch.cpu, watch.waited(110.0)) == (0.7, 110.0)
