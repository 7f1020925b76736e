"""The space of a disk, and what an error of a disk means."""

import errno
import os
import sqlite3
from pathlib import Path

from gangline.apiserver.store.errors import DiskFull, StoreDamaged, StoreFailed

MIN_FREE_BYTES = 4 * 2**20
"""A disk with less free space is full: writes are refused before they fail half-way."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
DAMAGED_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PRIMARY_CODE = 0xFF
"""The bits of an SQLite error code that say what failed; the others say where."""


def check_disk(folder: Path) -> None:
    """Raise `OSError` when the disk of a folder is full or read-only by its own account, which knows no quotas."""
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if disk.f_blocks and free * disk.f_frsize < MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def allocate(file: int, size: int) -> None:
    """Give an empty file blocks of zeros that later writes overwrite in place. Raises `OSError`."""
    # Written, not only reserved: a file system may need more space to turn reserved blocks into written ones.
    block = bytes(2**20)
    for start in range(0, size, len(block)):
        write_at(file, block[: size - start], start)
    os.fsync(file)


def write_at(file: int, data: bytes, start: int) -> None:
    """Write all of the data: at the end of its space, a disk takes a part and reports no error. Raises `OSError`."""
    while data:
        written = os.pwrite(file, data, start)
        data, start = data[written:], start + written


def probe(folder: Path) -> None:
    """Write, sync and remove a file. Raises `OSError`, as the next write would."""
    file = folder / ".probe"
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        allocate(handle, MIN_FREE_BYTES)
    finally:
        os.close(handle)
        file.unlink()


def store_error(file: Path, error: sqlite3.Error | OSError) -> StoreFailed:
    """What an error of the disk means, for people."""
    if isinstance(error, OSError):
        return _os_error(file, error)
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(file.parent)
    if code in DAMAGED_CODES:
        return StoreDamaged(file, str(error))
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        # SQLite says only that the disk failed. The system says why.
        try:
            probe(file.parent)
        except OSError as cause:
            return _os_error(file, cause)
    return StoreFailed(f"{file}: {error}", str(error))


def is_content_error(error: sqlite3.Error) -> bool:
    """Whether an error in a fixed statement comes from the contents of the database, such as a table that is missing."""
    return _primary_code(error) == sqlite3.SQLITE_ERROR


def _primary_code(error: sqlite3.Error) -> int:
    # An error of the module itself, as for text that is not UTF-8, has no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY_CODE


def _os_error(file: Path, error: OSError) -> StoreFailed:
    if error.errno in NO_SPACE:
        return DiskFull(file.parent)
    cause = error.strerror or str(error)
    return StoreFailed(f"{file}: {cause}", cause)
