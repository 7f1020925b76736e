"""The last one out: a small process that cleans up after a run which was killed and could not do it itself.

Started as a script with a bare interpreter, so it imports nothing but the standard library. Its standard input is a
pipe whose other end only the run holds: however the run ends, the kernel closes it. Then whatever processes the
run's node had written down are killed, by their shims, and its folder is removed, and further folders where they are
empty. After an orderly end there are none, and no folder.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

KILL_ATTEMPTS, KILL_PAUSE_SECONDS = 50, 0.1


def is_locked(lock: Path) -> bool:
    """Whether a shim holds its lock: a pid that was used again does not fool us."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def kill_processes(state: Path) -> bool:
    """Ask every shim to kill its process; whether any was there."""
    found = False
    for lock in state.glob("pods/*/*/*.lock"):
        if is_locked(lock):
            found = True
            try:
                os.kill(json.loads(lock.with_suffix(".run").read_bytes())["shim"], signal.SIGUSR1)
            except (OSError, ValueError):
                continue  # Just started, or just gone: looked at again.
    return found


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    state = Path(sys.argv[1])
    while os.read(0, 1024):
        pass
    for _ in range(KILL_ATTEMPTS):
        if not kill_processes(state):
            break
        time.sleep(KILL_PAUSE_SECONDS)
    shutil.rmtree(state, ignore_errors=True)
    for spare in map(Path, sys.argv[2:]):
        try:
            spare.rmdir()
        except OSError:
            continue  # In use, or not there any more.


if __name__ == "__main__":
    main()
