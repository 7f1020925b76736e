"""How the shim sees other processes: on Linux through /proc, elsewhere with psutil."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gangline.node.runtime.shim import ProcFolder, PsutilProcesses
from support.waiting import wait_until_blocking

MARK = f"GANGLINE_TEST_MARK={os.getpid()}"
SESSION = "import os, sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture(params=["linux", "portable"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ProcFolder | PsutilProcesses:
    if request.param == "linux":
        return ProcFolder()
    monkeypatch.setattr(sys, "path", sys.path[:])
    return PsutilProcesses(str(Path(psutil.__file__).parent.parent))


@pytest.fixture
def marked_leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the mark in its environment, which leads a group of its own."""
    name, _, value = MARK.partition("=")
    with subprocess.Popen(
        [sys.executable, "-S", "-c", SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, name: value},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_seen_by_its_group_and_by_its_mark(
    processes: ProcFolder | PsutilProcesses, marked_leader: subprocess.Popen[bytes]
) -> None:
    pid = marked_leader.pid
    assert pid in processes.all()
    assert processes.is_alive_in_group(pid, pid)
    assert not processes.is_alive_in_group(os.getpid(), pid)
    assert processes.has_mark(pid, MARK, 0)
    assert not processes.has_mark(pid, MARK + "0", 0)
    assert not processes.has_mark(os.getpid(), MARK, 0)


def test_a_zombie_is_not_alive_and_a_process_that_is_gone_is_nothing(
    processes: ProcFolder | PsutilProcesses, marked_leader: subprocess.Popen[bytes]
) -> None:
    pid = marked_leader.pid
    marked_leader.kill()
    wait_until_blocking(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert not processes.is_alive_in_group(pid, pid)
    assert not processes.has_mark(pid, MARK, 0)
    marked_leader.wait()
    assert not processes.is_alive_in_group(pid, pid)
    assert not processes.has_mark(pid, MARK, 0)
