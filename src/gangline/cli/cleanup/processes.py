"""The processes of a local plane, found through what its node wrote down about them."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.api.meta import Key
from gangline.node.checkpoint import RunFiles, StateFolder


def running_containers(state: Path, pod: Key | None = None) -> Iterator[RunFiles]:
    """The runs of containers that go on, of one pod or of all."""
    for folder in StateFolder(state).pods():
        if pod is None or folder.key == pod:
            for container in folder.containers():
                yield from (files for files in folder.runs(container) if files.lock.is_held())


def pod_pids(state: Path) -> Iterator[tuple[str, int]]:
    """The pid of the newest process of each pod that has one, by the pod's name."""
    for folder in StateFolder(state).pods():
        running = [files.start_record() for files in running_containers(state, folder.key)]
        if running and running[-1] is not None:
            yield folder.key.name, running[-1].pid


def kill_pod(state: Path, pod: Key) -> int | None:
    """SIGKILL to the process of a pod, as a machine out of memory would. Its pid, or None if nothing ran there."""
    for files in running_containers(state, pod):
        running = files.start_record()
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
                return running.pid
    return None


def kill_all(state: Path) -> None:
    """At once, every process of every pod. Each is ended by its shim, which leaves nothing of it."""
    for files in running_containers(state):
        running = files.start_record()
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(running.shim, signal.SIGUSR1)


@contextmanager
def cancel_on_interrupt(first: Callable[[], object], again: Callable[[], object] | None = None) -> Iterator[None]:
    """At the first interrupt `first` is told and the block is cancelled; at each one after that comes `again`.

    Without `again` the block is cancelled once more, so that it does not wait for its own end.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    repeated = again or task.cancel
    times = 0

    def interrupt() -> None:
        nonlocal times
        times += 1
        if times == 1:
            first()
            task.cancel()
        else:
            repeated()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    # Not taken away at the end of the block: processes are still being stopped then. The loop does it when it closes.
    yield
