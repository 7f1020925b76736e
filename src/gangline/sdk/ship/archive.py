"""A folder as it is sent to a machine that does not have it: which files, how large, and all of them in one archive."""

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
"""Folders that nobody means, whatever `.gitignore` says. (Nor a virtual environment of any name.)"""
MAX_FILES = 20_000
"""So many files are no folder of a program: perhaps it is the wrong one."""
NAMED_FILES = 3
"""So many of the biggest files are named when all are too much."""
MIB, GIB = 2**20, 2**30
# The first day that every program believes in; zip knows none before it.
ARCHIVE_MTIME = 315_532_800


class FileEntry(NamedTuple):
    """A file: its path from the folder, with slashes."""

    path: str
    size: int
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


class FileList(msgspec.Struct, frozen=True):
    """The files of a folder, in the order of their paths. Their contents are read when they are packed."""

    folder: Path
    files: tuple[FileEntry, ...]
    # What git would take and this does not: links to folders, sockets ...
    skipped: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(item.size for item in self.files)

    def content(self, item: FileEntry) -> bytes:
        """What a file holds now. Raises `InputError`."""
        with _open_file(self.folder / item.path) as file:
            return file.read()

    def largest(self, count: int = NAMED_FILES) -> list[FileEntry]:
        return sorted(self.files, key=lambda item: (-item.size, item.path))[:count]

    def has_file(self, path: str) -> bool:
        """Whether a file is among them."""
        return any(item.path == path for item in self.files)


def list_files(folder: Path, limit: int = GIB, *, most: int = MAX_FILES) -> FileList:
    """What of a folder is worth sending: everything, without what git ignores and `EXCLUDED_FOLDERS`.

    Links to files are followed, links to folders are not; empty folders are not sent. Raises `InputError` when all of it
    is more than `limit` bytes, when a file cannot be read, and when a name is no text.
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
    found = FileList(top, tuple(sorted(items)), tuple(skipped))
    if found.size > limit:
        raise InputError(too_large_message(found, folder, limit))
    return found


def _walk(folder: Path, rules: IgnoreRules, skipped: list[str], top: Path | None = None) -> Iterator[Path]:
    """The files below a folder, links to files too."""
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
        elif entry.is_file():
            yield path
        else:
            skipped.append(path.relative_to(top).as_posix())


def _file_entry(top: Path, path: Path) -> FileEntry:
    name = path.relative_to(top).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!a}: its name is no text; rename it, or leave it out with .gitignore") from None
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; leave it out with .gitignore") from error
    return FileEntry(name, found.st_size, bool(found.st_mode & stat.S_IXUSR))


def too_large_message(found: FileList, folder: Path, limit: int) -> str:
    """Why a folder is refused: how much it is, and what makes it so."""
    named = ", ".join(f"{item.path} ({size_text(item.size)})" for item in found.largest())
    return (
        f"{folder}: {size_text(found.size)} in {len(found.files)} files is more than {size_text(limit)}; "
        f"the biggest: {named}; leave them out with .gitignore, or raise --ship-limit"
    )


def size_text(size: int) -> str:
    """`12 bytes`, `34 KiB`, `5.6 MiB`, `1 GiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size >= unit:
            number = size / unit
            return f"{number:.1f} {name}" if number < 10 and size % unit else f"{number:.0f} {name}"
    return f"{size} bytes"


# Packing


def write_archive(found: FileList, to: IO[bytes]) -> str:
    """Write all of it as tar.gz, the same bytes for the same files; give their sha256. Raises `InputError`.

    Only files are in it: owners, dates and folders of this machine are nobody else's.
    """
    digest = _HashingWriter(to)
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=digest, compresslevel=6, mtime=0) as packed,
        # The one format that holds any name and looks the same everywhere.
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for item in found.files:
            _add_file(archive, found.folder / item.path, item)
    return digest.hexdigest()


def _add_file(archive: tarfile.TarFile, path: Path, item: FileEntry) -> None:
    with _open_file(path) as file:
        info = tarfile.TarInfo(item.path)
        # As large as it is by now: it may have grown since it was found.
        info.size, info.mode, info.mtime = os.fstat(file.fileno()).st_size, item.mode, ARCHIVE_MTIME
        try:
            archive.addfile(info, file)
        except OSError as error:
            raise InputError(f"{path}: changed while it was read; try again") from error


def _open_file(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; leave it out with .gitignore") from error


class _HashingWriter:
    """A file that is written through, and knows the digest of it."""

    def __init__(self, to: IO[bytes]) -> None:
        self._to, self._sha = to, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._sha.update(data)
        return self._to.write(data)

    def flush(self) -> None:
        self._to.flush()

    def hexdigest(self) -> str:
        return self._sha.hexdigest()
