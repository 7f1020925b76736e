"""The files of a folder that are shipped to a cluster, and the archive of them."""

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from gangline.base.errors import InputError
from gangline.sdk.ship.gitignore import IgnoreRules

EXCLUDED_FOLDERS = frozenset({".git", ".venv", "__pycache__", "node_modules"})
"""Folders that are never shipped, whatever `.gitignore` says. Virtual environments are not shipped, either."""
MAX_FILES = 20_000
"""More files are refused: the folder is probably the wrong one."""
NAMED_FILES = 3
"""How many of the largest files are named when a folder is too large."""
MIB, GIB = 2**20, 2**30
# 1980-01-01, the earliest date that zip supports.
ARCHIVE_MTIME = 315_532_800


class FileEntry(NamedTuple):
    """A file: its path relative to the folder, with slashes."""

    path: str
    size: int
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


class FileList(msgspec.Struct, frozen=True):
    """The files of a folder, sorted by path. Their contents are read when the archive is written."""

    folder: Path
    files: tuple[FileEntry, ...]
    # Paths that git would add but that are not shipped: links to folders, sockets ...
    skipped: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(item.size for item in self.files)

    def content(self, item: FileEntry) -> bytes:
        """The current content of a file. Raises `InputError`."""
        with open_file(self.folder / item.path) as file:
            return file.read()

    def largest(self, count: int = NAMED_FILES) -> list[FileEntry]:
        return sorted(self.files, key=lambda item: (-item.size, item.path))[:count]

    def has_file(self, path: str) -> bool:
        """Whether the list has a file with this path."""
        return any(item.path == path for item in self.files)


def list_files(folder: Path, limit: int = GIB, *, most: int = MAX_FILES) -> FileList:
    """The files of a folder to ship: all but those that git ignores and those in `EXCLUDED_FOLDERS`.

    Links to files are followed, links to folders are not; empty folders are left out. Raises `InputError` if the files
    have more than `limit` bytes or are more than `most`, if one cannot be read, or if a name is not valid Unicode.
    """
    top = folder.resolve()
    if not top.is_dir():
        raise InputError(f"{folder}: is no folder")
    items: list[FileEntry] = []
    skipped: list[str] = []
    for path in _walk(top, IgnoreRules.for_folder(top), skipped):
        if len(items) >= most:
            raise InputError(
                f"{folder}: has more than {most} files; run in the folder of the program, or leave some out with .gitignore"
            )
        items.append(_file_entry(top, path))
    files = FileList(top, tuple(sorted(items)), tuple(skipped))
    if files.size > limit:
        raise InputError(too_large_message(files, folder, limit))
    return files


def _walk(folder: Path, rules: IgnoreRules, skipped: list[str], top: Path | None = None) -> Iterator[Path]:
    """The files below a folder, with links to files. Other entries that git would add are appended to `skipped`."""
    top, rules = top or folder, rules.with_folder(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; leave it out with .gitignore") from error
    for entry in entries:
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in EXCLUDED_FOLDERS or rules.excludes(path, is_folder=is_folder):
            continue
        if is_folder:
            if not (path / "pyvenv.cfg").exists():
                yield from _walk(path, rules, skipped, top)
        elif _is_file(entry):
            yield path
        else:
            skipped.append(path.relative_to(top).as_posix())


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself
        return False


def _file_entry(top: Path, path: Path) -> FileEntry:
    name = path.relative_to(top).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!a}: its name is no text; rename it, or leave it out with .gitignore") from None
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; leave it out with .gitignore") from error
    return FileEntry(name, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def too_large_message(files: FileList, folder: Path, limit: int) -> str:
    """The error for a folder that is too large, with its size and its largest files."""
    largest = ", ".join(f"{item.path} ({size_text(item.size)})" for item in files.largest())
    return (
        f"{folder}: {size_text(files.size)} in {len(files.files)} files is more than {size_text(limit)}; "
        f"the biggest: {largest}; leave them out with .gitignore, or raise --ship-limit"
    )


def size_text(size: int) -> str:
    """`12 bytes`, `34 KiB`, `5.6 MiB`, `1 GiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size >= unit:
            number = size / unit
            return f"{number:.1f} {name}" if number < 10 and size % unit else f"{number:.0f} {name}"
    return f"{size} bytes"


# Packing


def write_archive(files: FileList, to: IO[bytes]) -> str:
    """Write the files as tar.gz and return its SHA-256. Raises `InputError`.

    The same files give the same bytes: the archive has no owners, dates or folders of this machine.
    """
    digest = _HashingWriter(to)
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=digest, compresslevel=6, mtime=0) as packed,
        # PAX supports any name and is the same on all platforms.
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for item in files.files:
            _add_file(archive, files.folder / item.path, item)
    return digest.hexdigest()


def _add_file(archive: tarfile.TarFile, path: Path, item: FileEntry) -> None:
    with open_file(path) as file:
        info = tarfile.TarInfo(item.path)
        # The current size: the file may have grown since it was listed.
        info.size, info.mode, info.mtime = os.fstat(file.fileno()).st_size, item.mode, ARCHIVE_MTIME
        try:
            archive.addfile(info, file)
        except OSError as error:
            raise InputError(f"{path}: changed while it was read; try again") from error


def open_file(path: Path) -> IO[bytes]:
    """Open a file to read it. Raises `InputError`."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; leave it out with .gitignore") from error


class _HashingWriter:
    """Writes to a file and computes the SHA-256 of what was written."""

    def __init__(self, to: IO[bytes]) -> None:
        self._to, self._sha = to, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._sha.update(data)
        return self._to.write(data)

    def flush(self) -> None:
        self._to.flush()

    def hexdigest(self) -> str:
        return self._sha.hexdigest()
