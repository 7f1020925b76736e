"""Backups of a store: one compressed file with all objects and their history, at one revision.

The lines are JSON: a header, the changes in order of revision, and the checksum of all lines before it. The format does
not depend on that of the database. A snapshot is taken from memory at one moment, so neither writers nor a broken disk
matter to it; all the work is done afterwards, in another thread.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import msgspec

from gangline.apiserver.store.journal import JournalContents
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.errors import InputError
from gangline.base.files import sync_folder

FORMAT = 1
COMPRESSION = 1
"""The level of gzip: the fastest. Objects are so alike that the others gain little."""


class StoreSnapshot(msgspec.Struct, frozen=True):
    """All of a store at one revision."""

    cluster_id: str
    revision: int
    compacted_revision: int
    records: tuple[StoreRecord, ...]
    events: tuple[StoreEvent, ...]
    """The changes after `compacted_revision`."""

    def contents(self) -> JournalContents:
        """What a journal has of it."""
        replaced: dict[str, StoreRecord | None] = {}
        for event in self.events:
            replaced.setdefault(event.record.path, event.previous)
        unchanged = (record for record in self.records if record.path not in replaced)
        earlier = (record for record in replaced.values() if record is not None)
        base = sorted(chain(unchanged, earlier), key=lambda record: record.revision)
        changes = [(record, False) for record in base]
        changes += [(event.record, event.deleted) for event in self.events]
        return JournalContents(self.cluster_id, self.revision, self.compacted_revision, changes)


class BackupHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line."""

    gangline_backup: int
    cluster: str
    revision: int
    compacted_revision: int
    objects: int
    changes: int
    """The number of lines that follow: objects, and their history."""


class _ChangeLine(msgspec.Struct, frozen=True, gc=False):
    revision: int
    path: str
    deleted: bool
    object: msgspec.Raw


class _LastLine(msgspec.Struct, frozen=True):
    sha256: str


_decode_change = msgspec.json.Decoder(_ChangeLine).decode


def encode_backup(snapshot: StoreSnapshot) -> bytes:
    """A backup as it is sent over the network."""
    packer = zlib.compressobj(COMPRESSION, wbits=zlib.MAX_WBITS | 16)
    return b"".join([*map(packer.compress, _lines(snapshot.contents())), packer.flush()])


def write_backup(file: Path, contents: JournalContents) -> BackupHeader:
    """Write a backup that only its owner can read, and verify it. Atomic and durable. Raises `OSError`."""
    with _new_file(file) as fresh:
        with fresh.open("wb") as output, gzip.GzipFile("", "wb", COMPRESSION, output, mtime=0) as packed:
            for line in _lines(contents):
                packed.write(line)
        return _verify(fresh)


def save_backup(file: Path, backup: bytes) -> BackupHeader:
    """The same for a backup that was received. Raises `OSError`, and `InputError` when it is damaged."""
    with _new_file(file) as fresh:
        fresh.write_bytes(backup)
        return _verify(fresh)


def read_backup(file: Path) -> JournalContents:
    """The contents of a backup. Raises `InputError` when it is damaged or none."""
    header, changes = _read(file)
    return JournalContents(header.cluster, header.revision, header.compacted_revision, changes)


def _lines(contents: JournalContents) -> Iterator[bytes]:
    digest, encode = hashlib.sha256(), msgspec.json.Encoder().encode
    cluster, compacted = contents.cluster_id, contents.compacted_revision
    is_deleted = {record.path: deleted for record, deleted in contents.changes}
    objects = sum(not deleted for deleted in is_deleted.values())
    header = BackupHeader(FORMAT, cluster, contents.revision, compacted, objects, len(contents.changes))
    changes: Iterable[BackupHeader | _ChangeLine] = (
        _ChangeLine(record.revision, record.path, deleted, msgspec.Raw(record.data))
        for record, deleted in contents.changes
    )
    for value in chain((header,), changes):
        line = encode(value) + b"\n"
        digest.update(line)
        yield line
    yield encode(_LastLine(digest.hexdigest())) + b"\n"


def _read(file: Path) -> tuple[BackupHeader, list[tuple[StoreRecord, bool]]]:
    try:
        with gzip.open(file) as lines:
            digest, first = hashlib.sha256(), lines.readline()
            header = msgspec.json.decode(first, type=BackupHeader)
            if header.gangline_backup > FORMAT:
                raise InputError(f"{file}: written by a newer gangline; restore it with that version")
            digest.update(first)
            changes: list[tuple[StoreRecord, bool]] = []
            for _ in range(header.changes):
                line = lines.readline()
                digest.update(line)
                change = _decode_change(line)
                changes.append((StoreRecord(change.path, change.revision, bytes(change.object)), change.deleted))
            last = msgspec.json.decode(lines.readline(), type=_LastLine)
            if last.sha256 != digest.hexdigest() or lines.read(1):
                raise InputError(f"{file}: damaged: its checksum does not fit; use another backup")
            return header, changes
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except gzip.BadGzipFile as error:
        raise InputError(f"{file}: not a backup of gangline ({error})") from error
    except EOFError as error:
        raise InputError(f"{file}: damaged: it is cut off; use another backup") from error
    except (msgspec.MsgspecError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a backup of gangline, or damaged ({error})") from error


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """An empty file that replaces `file` at the end of the block, or is removed after an error."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield fresh
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def _verify(file: Path) -> BackupHeader:
    header, _ = _read(file)
    return header
