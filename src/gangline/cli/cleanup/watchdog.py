"""The watchdog of a local run: cleans up after a run that was killed and could not do it itself.

It is started as a script with a bare interpreter, so it imports nothing but the standard library. Its standard input is
a pipe whose other end only the run holds: however the run ends, the kernel closes it. Then the watchdog has the shims
kill all processes that the run's node had recorded, and removes the run's state folder and those of the further folders
that are empty. After an orderly end there is nothing left to do.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

KILL_ATTEMPTS, KILL_PAUSE_SECONDS = 50, 0.1


def is_locked(lock: Path) -> bool:
    """Whether a live shim holds the lock. Unlike a pid, a lock cannot belong to a later process."""
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
    """Signal every live shim to kill its process. Returns whether there was one."""
    alive = False
    for lock in state.glob("pods/*/*/*.lock"):
        if is_locked(lock):
            alive = True
            try:
                shim = json.loads(lock.with_suffix(".run").read_bytes())["shim"]
                os.kill(shim, signal.SIGUSR1)
                # A process of the container may have stopped it.
                os.kill(shim, signal.SIGCONT)
            except (OSError, ValueError):
                continue  # Just started, or just ended: the next attempt sees it.
    return alive


def end_lost_runs(state: Path, shim: str, psutil_folder: str) -> None:
    """Kill what is left of containers whose shim was killed too."""
    records = [path for path in state.glob("pods/*/*/*.json") if not path.with_suffix(".exit").exists()]
    run_ids = [json.loads(path.read_bytes())["id"] for path in records]
    if run_ids:
        subprocess.run([sys.executable, "-I", "-S", shim, "end", psutil_folder, *run_ids], check=False)


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
    end_lost_runs(state, *sys.argv[2:4])
    shutil.rmtree(state, ignore_errors=True)
    for folder in map(Path, sys.argv[4:]):
        try:
            folder.rmdir()
        except OSError:
            continue  # Not empty, or already removed.


if __name__ == "__main__":
    main()
