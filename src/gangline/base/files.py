"""Private files, files that somebody else may have replaced, and the end of log files."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def write_private(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Write a file that only its owner can read. Atomic: readers see the old content or the new one, of any writer.

    A `durable` file survives a power loss, which costs two syncs of the disk. Without it, the file may be empty then.
    """
    # A name of its own, because another process may write the same file.
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(handle)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def private_folder(path: Path) -> None:
    """Create a folder, and the folders above it that are missing, for their owner alone, whatever the umask."""
    for folder in reversed((path, *path.parents)):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a file that is created can be read by its owner alone."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading that somebody else may have replaced by a link, a pipe or a device.

    Those count as missing: raises FileNotFoundError. Never waits for a writer.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, "is no regular file", str(path)) from error
        raise
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise FileNotFoundError(errno.ENOENT, "is no regular file", str(path))
    return file


def last_lines(path: Path, count: int = 5, start: int = 0) -> list[str]:
    """The last lines of a text file that are not empty, of what follows byte `start`; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-count:]
