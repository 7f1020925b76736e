"""The processes of a local run: found through the node's state folder, killed, and never left behind."""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.api.meta import Key
from gangline.base.host_features import raise_open_files_limit
from gangline.cli.cleanup import watchdog
from gangline.node.checkpoint import RunFiles, StateFolder
from gangline.node.runtime import shim
from gangline.node.runtime.process import psutil_folder


def running_containers(state: Path, pod: Key | None = None) -> Iterator[RunFiles]:
    """The run files of containers that are alive, of one pod or of all."""
    for folder in StateFolder(state).pods():
        if pod is None or folder.key == pod:
            for container in folder.containers():
                yield from (files for files in folder.runs(container) if files.lock.is_held())


def kill_pod(state: Path, pod: Key) -> int | None:
    """Send SIGKILL to the process of a pod, as the OOM killer would. Returns its pid, or None if none was alive."""
    for files in running_containers(state, pod):
        record = files.start_record()
        if record is not None:
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
                return record.pid
    return None


def kill_all(state: Path) -> None:
    """Have the shims of all containers kill their processes at once, children included."""
    for files in running_containers(state):
        record = files.start_record()
        if record is not None:
            with suppress(ProcessLookupError):
                os.kill(record.shim, signal.SIGUSR1)


@contextmanager
def with_watchdog(removable: Sequence[Path] = ()) -> Iterator[Path]:
    """A new state folder for a node, removed at the end of the block.

    A watchdog process does the cleanup if this process is killed: it kills all processes of the node, removes the
    state folder, and those of the `removable` folders that are empty.
    """
    raise_open_files_limit()
    # The watchdog starts before the folder exists: there is no moment without it.
    folder = Path(tempfile.gettempdir(), f"gangline-{secrets.token_hex(4)}")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, folder, shim.__file__, psutil_folder(), *removable],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Its own session: Ctrl-C in the terminal must not reach it.
        start_new_session=True,
    )
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        process.communicate()


@contextmanager
def cancel_on_interrupt(first: Callable[[], object], repeated: Callable[[], object] | None = None) -> Iterator[None]:
    """At the first interrupt, call `first` and cancel the block; at every further one, call `repeated`.

    An interrupt after the block has ended counts as a further one: there is only cleanup left to be cut short. Without
    `repeated` the block is cancelled again.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    on_repeat = repeated or task.cancel
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            task.cancel()
            # In `gangline run ... | tee log` the same Ctrl-C ends tee: there may be nobody left to read the message.
            with suppress(OSError):
                first()
        else:
            on_repeat()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    # The handlers stay when the block ends, for processes are still being stopped then; the loop removes them on close.
    try:
        yield
    finally:
        interrupts = max(interrupts, 1)
