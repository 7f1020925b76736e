"""A lock that keeps a folder to one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.base.errors import InputError

LOCK_FILE = "lock"


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a folder until the block or the process ends. A missing folder is created, for its owner only.

    Raises `InputError` when another process holds the folder, or the folder is not writable.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(f"{folder}: cannot be used: {error.strerror}; choose a writable folder") from error
    try:
        _acquire(lock, folder)
        yield
    finally:
        # Closing also unlocks. The file stays, because removing it would race with a process that opens it now.
        os.close(lock)


def lock_holder(folder: Path) -> int | None:
    """The id of the process that holds a folder; None if no living process does."""
    try:
        with (folder / LOCK_FILE).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read(32))
    except (OSError, ValueError):
        pass
    return None


def _acquire(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        owner = f"process {holder}" if holder else "another process"
        raise InputError(f"{folder}: in use by {owner}; stop it first, or choose another folder") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
