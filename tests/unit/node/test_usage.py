"""CPU and memory of the processes of a local plane, measured on real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.cli.cleanup.processes import kill_pod
from gangline.node import usage as process_usage
from gangline.node.checkpoint import RunRecord, StartRecord, StateFolder
from gangline.node.usage import CLOCK_TICK, UsageSampler
from gangline.testing.clock import FakeClock
from support.waiting import wait_until_blocking

BUSY = """
import time
while time.process_time() < 0.3: pass
print("done", flush=True)
time.sleep(999)
"""


@contextmanager
def process(state: Path, code: str) -> Iterator["subprocess.Popen[str]"]:
    """A process recorded as by a node, with a lock held as by a shim."""
    files = StateFolder(state).pod(Key("default", "job-worker-0"), "u1").run_files("main", 0)
    files.begin(RunRecord(id="1", attempt=0, devices={"nvidia.com/gpu": ("0", "MIG-a")}))
    descriptor = files.lock.acquire()
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=[descriptor],
    )
    files._write("run", StartRecord(shim=running.pid, pid=running.pid, at=0.0))
    try:
        yield running
    finally:
        running.kill()
        running.communicate()
        os.close(descriptor)


async def test_cpu_is_the_share_of_a_core_between_two_samples(tmp_path: Path) -> None:
    clock = FakeClock()
    with process(tmp_path, BUSY) as running:
        usage = UsageSampler(tmp_path, clock)
        assert running.stdout is not None
        running.stdout.readline()
        first = usage.sample()["job-worker-0"]
        assert (first.cores, first.memory > 1_000_000) == (0.0, True)
        await clock.advance(timedelta(seconds=1))
        # The process sleeps now and uses no CPU.
        assert usage.sample()["job-worker-0"].cores < 0.2


async def test_one_tick_of_the_kernels_clock_is_not_taken_for_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seconds = FakeClock(), 7.0
    monkeypatch.setattr(process_usage, "_cpu_and_memory", lambda pids: (seconds, 1))
    with process(tmp_path, "import time; time.sleep(999)"):
        usage = UsageSampler(tmp_path, clock)
        usage.sample()
        cores = []
        for ticks in (1, 0, 2):
            seconds += ticks * CLOCK_TICK
            await clock.advance(timedelta(seconds=0.5))
            cores.append(usage.sample()["job-worker-0"].cores)
    assert cores == [0.0, 0.0, pytest.approx(4 * CLOCK_TICK)]


@pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")
def test_commands_that_were_executed_in_a_container_are_counted(tmp_path: Path) -> None:
    """As the ranks that mpirun starts, which lead sessions of their own."""
    with process(tmp_path, "import time; time.sleep(999)"):
        usage = UsageSampler(tmp_path, SystemClock())
        usage.sample()
        executed = subprocess.Popen(
            [sys.executable, "-c", "print('go', flush=True)\nwhile True: pass"],
            env={**os.environ, "GANGLINE_CONTAINER": "1"},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert executed.stdout is not None
            executed.stdout.readline()
            wait_until_blocking(lambda: usage.sample()["job-worker-0"].cores > 0)
        finally:
            executed.kill()
            executed.communicate()


def test_the_process_of_a_pod_is_found_and_killed(tmp_path: Path) -> None:
    with process(tmp_path, "import time; time.sleep(999)") as running:
        (usage,) = UsageSampler(tmp_path, FakeClock()).sample_by_uid().items()
        assert (usage[0], usage[1].gpus) == ("u1", (("nvidia.com/gpu", "0"), ("nvidia.com/gpu", "MIG-a")))
        assert kill_pod(tmp_path, Key("default", "other")) is None
        assert kill_pod(tmp_path, Key("default", "job-worker-0")) == running.pid
        assert running.wait(30) == -9
    assert UsageSampler(tmp_path, FakeClock()).sample_by_uid() == {}
