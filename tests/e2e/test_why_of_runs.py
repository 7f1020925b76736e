"""`gangline why` beside a `gangline run` and after it: what a person types who has no server at all."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gangline.api.meta import JSON

pytestmark = pytest.mark.slow

DEADLINE = 60.0
HANGING = "import threading; print('up', flush=True); threading.Event().wait()"
Gangline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine of its own: no kubeconfig, no plane, no earlier run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return {**inherited, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "state")}


@pytest.fixture
def gangline(tmp_path: Path, env: dict[str, str]) -> Gangline:
    def typed(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=DEADLINE)

    return typed


@contextmanager
def running(folder: Path, env: dict[str, str], program: str, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """A `gangline run` of a program, until the end of the block."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "gangline", "run", *flags, "--", sys.executable, "train.py"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=folder
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)


def answer(gangline: Gangline, *words: str, until: Callable[[JSON], bool]) -> JSON:
    """The report of `why` as soon as it says what is awaited, else the last one."""
    deadline = time.monotonic() + DEADLINE
    while True:
        done = gangline("why", "train", "-o", "json", *words)
        report: JSON = msgspec.json.decode(done.stdout) if done.stdout else {}
        if (report and until(report)) or time.monotonic() > deadline:
            return report


def test_a_hang_is_found_while_the_run_goes_on(tmp_path: Path, env: dict[str, str], gangline: Gangline) -> None:
    with running(tmp_path, env, HANGING, "--nproc", "2"):
        report = answer(gangline, "--hung-after", "1s", until=lambda found: not found["healthy"])
    assert [cause["rule"] for cause in report["causes"]] == ["hung"]
    assert report["cause"].startswith("master-0 (rank 0) and worker-0 (rank 1) hang: ")
    assert report["unread"] == []


def test_after_the_run_it_is_said_that_a_hang_cannot_be_seen(
    tmp_path: Path, env: dict[str, str], gangline: Gangline
) -> None:
    with running(tmp_path, env, HANGING, "--nproc", "2"):
        answer(gangline, "--hung-after", "1s", until=lambda found: not found["healthy"])
    done = gangline("why", "train", "--hung-after", "1s")
    assert done.returncode == 3
    assert "not everything could be read" in done.stdout
    assert "CPU use of the pods: the run has ended" in done.stdout
