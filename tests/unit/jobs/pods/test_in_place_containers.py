"""The programs of the two containers by which a kubelet restarts a pod in place, as real processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.jobs.pods.in_place_containers import (
    GATE_PROGRAM,
    HOLD_PROGRAM,
    ORDER_FILE,
    ORDER_FOLDER,
    RESTART_CODE,
    STATE_FILE,
    STATE_FOLDER,
)
from support.waiting import wait_until_blocking


class Pod:
    """The two folders of a pod, and the programs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def order(self, text: str) -> None:
        """As a kubelet writes it: all at once."""
        part = self.folder / "part"
        part.write_text(text)
        part.rename(self.folder / ORDER_FILE)

    @property
    def restart(self) -> str:
        return (self.folder / STATE_FILE).read_text()

    def start(self, program: str) -> "subprocess.Popen[str]":
        code = program.replace(ORDER_FOLDER, str(self.folder)).replace(STATE_FOLDER, str(self.folder))
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def run(self, program: str) -> int:
        return self.start(program).wait(30)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path)
    yield pod
    for process in pod.processes:
        process.kill()
        process.communicate()


def has_started(process: "subprocess.Popen[str]") -> bool:
    """Whether the program waits: it has installed its handler of SIGTERM."""
    caught = next(
        line.split()[1] for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigCgt" in line
    )
    return bool(int(caught, 16) >> 14 & 1)


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see that a program waits")


def test_the_first_start_waits_for_nobody(pod: Pod) -> None:
    pod.order("0")
    assert pod.run(GATE_PROGRAM) == 0
    assert pod.restart == "0"


@linux_only
def test_a_restart_passes_the_gate_when_all_may_start(pod: Pod) -> None:
    pod.order("0")
    assert pod.run(GATE_PROGRAM) == 0
    hold = pod.start(HOLD_PROGRAM)
    wait_until_blocking(lambda: has_started(hold))
    assert hold.poll() is None
    pod.order("1 stop")
    assert hold.wait(30) == RESTART_CODE
    gate = pod.start(GATE_PROGRAM)
    wait_until_blocking(lambda: has_started(gate))
    assert gate.poll() is None
    pod.order("1")
    assert gate.wait(30) == 0
    assert pod.restart == "1"
    again = pod.start(HOLD_PROGRAM)
    wait_until_blocking(lambda: has_started(again))
    assert again.poll() is None, "it would restart the pod for ever"


def test_a_gate_that_comes_late_waits_for_the_newest_order(pod: Pod) -> None:
    pod.order("2")
    assert pod.run(GATE_PROGRAM) == 0
    assert pod.restart == "2"


def test_a_withdrawn_order_lets_the_pod_end(pod: Pod) -> None:
    pod.order("")
    assert pod.run(HOLD_PROGRAM) == 0
    assert pod.run(GATE_PROGRAM) == 1
    assert "the job has ended" in (pod.processes[-1].stderr or sys.stdin).read()


@linux_only
@pytest.mark.parametrize("program", [GATE_PROGRAM, HOLD_PROGRAM])
def test_they_end_at_once_when_the_pod_is_deleted(pod: Pod, program: str) -> None:
    pod.order("0 stop" if program is GATE_PROGRAM else "0")
    (pod.folder / STATE_FILE).write_text("0")
    process = pod.start(program)
    wait_until_blocking(lambda: has_started(process))
    process.terminate()
    assert process.wait(30) == 0
