"""The journal in SQLite: an append-only table of changes from which all state can be rebuilt.

There is no table of objects. The newest change of a path, if it is no deletion, *is* the object, so every write goes
to disk once. Compaction deletes obsolete changes.
"""

import logging
import os
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from gangline.apiserver.store.disk.marker import StoreMarker, check_contents, check_files, read_marker, write_marker
from gangline.apiserver.store.disk.reserve import DeletionReserve
from gangline.apiserver.store.disk.space import check_disk, is_content_error, probe, store_error
from gangline.apiserver.store.errors import DiskFull, StoreDamaged, StoreFailed
from gangline.apiserver.store.folder_lock import folder_lock
from gangline.apiserver.store.journal import Compaction, JournalContents
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.files import sync_folder

log = logging.getLogger(__name__)

DATABASE_FILE = "state.db"
LOG_FILE = f"{DATABASE_FILE}-wal"
SCHEMA_VERSION = 2
"""The `PRAGMA user_version` of the file. Incremented with every change of the tables."""

MAX_INSERT_ROWS = 64
"""The most rows that one statement inserts."""

MAX_WAL_BYTES = 16 * 2**20
"""The size of the write-ahead log at which it is copied into the database."""

MAX_MAPPED_BYTES = 2**40
"""How much of the file is mapped into memory to read all of it, which takes half the time of reading page by page."""

LOOK_SECONDS = 0.05
"""Writes within this time look only once whether their files are still those of the folder."""

CREATE_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (revision INTEGER PRIMARY KEY, path TEXT NOT NULL, data BLOB NOT NULL, deleted INTEGER NOT NULL, number INTEGER NOT NULL DEFAULT 0, checksum INTEGER NOT NULL DEFAULT 0);
"""
ADD_CHECKSUMS = (
    "ALTER TABLE changes ADD COLUMN number INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE changes ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
)
"""From format 1 to 2. `number` counts the rows that were ever inserted, so that a missing one is noticed."""
NO_CHANGES: Mapping[str, str] = {"removed": "0", "numbered": "0", "reserve": "0"}
"""Rows of `meta`: rows that compaction removed, the highest number then, and the last reserve that was moved here."""


class Durability(StrEnum):
    """What an acknowledged write survives."""

    FULL = "full"
    """Power loss: every batch is synced to disk, as in etcd."""
    RELAXED = "relaxed"
    """The end of the process. Power loss may lose the last seconds, but never leaves half a commit."""


class SqliteJournal:
    """A journal in a folder, which is created if missing and locked for this process while the journal is open."""

    def __init__(self, folder: Path, durability: Durability = Durability.FULL) -> None:
        self._folder = folder
        self._file, self._log = folder / DATABASE_FILE, folder / LOG_FILE
        self._durability = durability
        self._open_resources = ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._reserve = DeletionReserve(folder)
        self._cluster_id = ""
        self._revision = self._marked_revision = 0
        # The number of the last row that was inserted.
        self._inserted = 0
        # Of a write that went to the reserve instead.
        self._postponed: Compaction | None = None
        # A check or a write failed: the next check must write to the disk.
        self._is_suspect = False
        self._identities: dict[Path, tuple[int, int]] = {}
        self._clock, self._next_look = SystemClock(), 0.0

    def open(self) -> JournalContents:
        self._open_resources.enter_context(folder_lock(self._folder))
        marker = read_marker(self._folder)
        if marker is not None:
            check_files(self._file, self._log, marker)
        try:
            with self._as_store_errors():
                return self._open_database(marker)
        except BaseException as error:
            self._close_unopened(marker)
            if isinstance(error, DiskFull):
                raise no_space_to_begin(self._folder) from error
            raise

    def _open_database(self, marker: StoreMarker | None) -> JournalContents:
        # SQLite removes its write-ahead log on a clean close.
        unclean = self._log.exists()
        connection = self._connect()
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise InputError(
                f"{self._file}: written by a newer gangline (format {version}, known is {SCHEMA_VERSION}); "
                "use that version, or another folder"
            )
        if version == 0 and marker is not None:
            raise StoreDamaged(self._file, f"it has no tables, and the store was at revision {marker.revision}")
        if version == 0:
            self._create_tables(connection)
        elif unclean:
            self._check_integrity(connection)
        if version == 1:
            add_checksums(connection)
        contents = self._read_contents(connection)
        self._cluster_id, self._revision = contents.cluster_id, contents.revision
        if marker is not None:
            check_contents(self._file, marker, self._marker(is_clean=False))
        self._write_marker(is_clean=False)
        self._identities = {path: identity for path in (self._file, self._log) if (identity := file_identity(path))}
        return contents

    def write(
        self, events: Sequence[StoreEvent], compaction: Compaction | None, *, may_use_reserve: bool = False
    ) -> None:
        compaction = merged_compaction(self._postponed, compaction)
        try:
            with self._as_store_errors():
                self._write_database(events, compaction)
        except DiskFull:
            self._is_suspect = True
            if not may_use_reserve:
                raise
            with self._as_store_errors():
                self._reserve.append(events)
            self._postponed = compaction
        else:
            self._postponed = None
        if events:
            self._revision = events[-1].record.revision

    def check(self) -> None:
        is_suspect, self._is_suspect = self._is_suspect, True
        with self._as_store_errors():
            self._check_identities()
            check_disk(self._folder)
            if is_suspect:
                probe(self._folder)
            if self._reserve.changes:
                self._write_database((), None)
            self._reserve.ensure_allocated()
            if self._durability is Durability.FULL and self._revision > self._marked_revision:
                self._write_marker(is_clean=False)
        self._is_suspect = False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        with self._as_store_errors(), self._open_resources:
            if connection is not None and self._identities:
                self._close_opened(connection)

    def _write_database(self, events: Sequence[StoreEvent], compaction: Compaction | None) -> None:
        connection = self._connection
        assert connection is not None, "write before open"
        number = self._inserted
        # sqlite3 releases the GIL around every statement and must reacquire it from a busy event loop, so the usual
        # batch is a single statement and its own transaction.
        if compaction is None and not self._reserve.changes and 0 < len(events) <= MAX_INSERT_ROWS:
            insert_events(connection, events, number)
        else:
            with transaction(connection):
                number += self._insert_reserve(connection, number)
                for start in range(0, len(events), MAX_INSERT_ROWS):
                    insert_events(connection, events[start : start + MAX_INSERT_ROWS], number + start)
                if compaction is not None:
                    compact(connection, compaction, number + len(events))
            if self._reserve.changes:
                self._reserve.restart()
        self._inserted = number + len(events)
        # Not after every write of a busy store: each look at a file gives up the GIL.
        if self._clock.monotonic() >= self._next_look:
            self._check_identities()

    def _insert_reserve(self, connection: sqlite3.Connection, number: int) -> int:
        """Move the changes in the reserve to the database. Returns how many there are."""
        changes = self._reserve.changes
        if changes:
            for index, (record, deleted) in enumerate(changes):
                insert_events(connection, [StoreEvent(record, None, deleted)], number + index)
            set_meta(connection, "reserve", self._reserve.generation)
        return len(changes)

    def _check_identities(self) -> None:
        """Raise `StoreDamaged` when the files that are written are no longer those of the folder."""
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        for path, identity in self._identities.items():
            if file_identity(path) != identity:
                raise StoreDamaged(path, "it was removed or replaced while the plane runs")

    def _marker(self, *, is_clean: bool) -> StoreMarker:
        return StoreMarker(self._cluster_id, self._revision, self._inserted, is_clean)

    def _write_marker(self, *, is_clean: bool) -> None:
        write_marker(self._folder, self._marker(is_clean=is_clean))
        self._marked_revision = self._revision

    def _close_opened(self, connection: sqlite3.Connection) -> None:
        """Empty the write-ahead log, and let the marker say so. Without space the log stays, which is no error."""
        try:
            self._check_identities()
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                self._write_marker(is_clean=True)
                return
        except StoreDamaged as error:
            log.warning("the store could not be closed cleanly: %s", error)
            return
        except (sqlite3.Error, OSError) as error:
            log.warning("the store could not be closed cleanly: %s", error)
        connection.close()
        self._keep_log()

    def _close_unopened(self, marker: StoreMarker | None) -> None:
        """Close the files after a failure to open them."""
        connection, self._connection = self._connection, None
        with self._as_store_errors(), self._open_resources:
            if connection is not None:
                connection.close()
            if marker is not None and not marker.is_clean:
                self._keep_log()

    def _keep_log(self) -> None:
        """Put an empty write-ahead log in the place of the one that SQLite has moved to the database, and removed.

        The marker, which may not be writable, says that there is one. An empty file needs no space.
        """
        os.close(os.open(self._log, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(self._folder)

    def _connect(self) -> sqlite3.Connection:
        # Only the owner may read the file, because it contains secrets.
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self._file, isolation_level=None, cached_statements=MAX_INSERT_ROWS + 16)
        self._connection = self._open_resources.enter_context(closing(connection))
        full = self._durability is Durability.FULL
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        connection.execute(
            f"PRAGMA fullfsync = {int(full)}"
        )  # macOS: sync to the medium, not only to the drive's cache
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA wal_autocheckpoint = {MAX_WAL_BYTES // page}")
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise InputError(f"{self._file}: not written by gangline; choose another folder")
        create_tables(connection, str(uuid.uuid4()), 0)

    def _check_integrity(self, connection: sqlite3.Connection) -> None:
        log.info("the store was not closed cleanly, checking it", extra={"file": self._file})
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise StoreDamaged(self._file, result)

    def _read_contents(self, connection: sqlite3.Connection) -> JournalContents:
        try:
            with mapped_file(connection):
                contents, meta, self._inserted = read_contents(connection)
            self._reserve.start(contents.cluster_id, int(meta["reserve"]) + 1)
        except (LookupError, TypeError, ValueError, sqlite3.OperationalError) as error:
            if isinstance(error, sqlite3.Error) and not is_content_error(error):
                raise
            raise StoreDamaged(self._file, str(error)) from error
        if not self._reserve.changes:
            return contents
        changes = sorted((*contents.changes, *self._reserve.changes), key=lambda change: change[0].revision)
        return msgspec.structs.replace(contents, changes=changes, revision=max(contents.revision, newest(changes)))

    @contextmanager
    def _as_store_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise store_error(self._file, error) from error


def no_space_to_begin(folder: Path) -> StoreFailed:
    return StoreFailed(f"{folder}: the disk is full; free some space, then try again")


def write_database(folder: Path, contents: JournalContents) -> None:
    """Make a folder with a store of these contents, closed cleanly. Raises `StoreFailed`."""
    file = folder / DATABASE_FILE
    folder.mkdir(mode=0o700)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            create_tables(connection, contents.cluster_id, contents.compacted_revision)
            with transaction(connection):
                for number, (record, deleted) in enumerate(contents.changes):
                    insert_events(connection, [StoreEvent(record, None, deleted)], number)
    except (sqlite3.Error, OSError) as error:
        failure = store_error(file, error)
        raise (no_space_to_begin(folder) if isinstance(failure, DiskFull) else failure) from error
    # Verifies it, and writes the marker.
    journal = SqliteJournal(folder)
    journal.open()
    journal.close()


def read_contents(connection: sqlite3.Connection) -> tuple[JournalContents, Mapping[str, str], int]:
    """All of a database: its contents, the rows of `meta`, and the number of the last row that was inserted.

    Raises `ValueError` when a row is not as it was written, or one is missing.
    """
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    changes: list[tuple[StoreRecord, bool]] = []
    wrong, inserted = 0, int(meta["numbered"])
    rows = connection.execute("SELECT revision, path, data, deleted, number, checksum FROM changes ORDER BY revision")
    for revision, path, data, deleted, number, checksum in rows:
        record = StoreRecord(path, revision, data)
        if record_checksum(record, deleted, number) != checksum:
            wrong += 1
        if number > inserted:
            inserted = number
        changes.append((record, deleted == 1))
    if wrong:
        raise ValueError(f"{wrong} of {len(changes)} changes do not match their checksum")
    missing = inserted - int(meta["removed"]) - len(changes)
    if missing:
        raise ValueError(f"{missing} of {missing + len(changes)} changes are missing")
    compacted_revision = int(meta["compacted"])
    revision = max(compacted_revision, newest(changes))
    return JournalContents(meta["cluster"], revision, compacted_revision, changes), meta, inserted


def newest(changes: Sequence[tuple[StoreRecord, bool]]) -> int:
    """The revision of the last change, 0 if there is none."""
    return changes[-1][0].revision if changes else 0


def create_tables(connection: sqlite3.Connection, cluster_id: str, compacted_revision: int) -> None:
    """Make an empty database a store."""
    with transaction(connection):
        for statement in CREATE_TABLES.strip().splitlines():
            connection.execute(statement)
        rows = {"cluster": cluster_id, "compacted": str(compacted_revision), **NO_CHANGES}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def add_checksums(connection: sqlite3.Connection) -> None:
    """Convert a database of format 1."""
    with transaction(connection):
        for statement in ADD_CHECKSUMS:
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", NO_CHANGES.items())
        rows = connection.execute("SELECT revision, path, data, deleted FROM changes ORDER BY revision").fetchall()
        for number, (revision, path, data, deleted) in enumerate(rows, start=1):
            checksum = record_checksum(StoreRecord(path, revision, data), deleted, number)
            values = (number, checksum, revision)
            connection.execute("UPDATE changes SET number = ?, checksum = ? WHERE revision = ?", values)
        connection.execute("PRAGMA user_version = 2")


def insert_events(connection: sqlite3.Connection, events: Sequence[StoreEvent], last_number: int) -> None:
    values: list[object] = []
    for number, event in enumerate(events, start=last_number + 1):
        record, deleted = event.record, event.deleted
        checksum = record_checksum(record, deleted, number)
        values += (record.revision, record.path, record.data, deleted, number, checksum)
    connection.execute(insert_statement(len(events)), values)


def record_checksum(record: StoreRecord, deleted: int, number: int) -> int:
    seed = record.revision ^ number << 1 ^ deleted
    return zlib.crc32(record.data, zlib.crc32(record.path.encode(), seed & 0xFFFFFFFF))


@cache
def insert_statement(rows: int) -> str:
    """A statement that inserts this many rows. The connection caches the prepared statement by its text."""
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)
    columns = "revision, path, data, deleted, number, checksum"
    return f"INSERT INTO changes ({columns}) VALUES {values}"  # noqa: S608 - question marks


def compact(connection: sqlite3.Connection, compaction: Compaction, inserted: int) -> None:
    revisions = msgspec.json.encode(compaction.obsolete_revisions).decode()
    deletion = connection.execute(
        "DELETE FROM changes WHERE revision IN (SELECT value FROM json_each(?))", (revisions,)
    )
    statement = "UPDATE meta SET value = value + ? WHERE name = 'removed'"
    connection.execute(statement, (deletion.rowcount,))
    set_meta(connection, "compacted", compaction.compacted_revision)
    set_meta(connection, "numbered", inserted)


def set_meta(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE name = ?", (str(value), name))


def merged_compaction(first: Compaction | None, second: Compaction | None) -> Compaction | None:
    """One compaction that does what both do, the first one first."""
    if first is None or second is None:
        return second or first
    return Compaction(second.compacted_revision, first.obsolete_revisions + second.obsolete_revisions)


def file_identity(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def mapped_file(connection: sqlite3.Connection) -> Iterator[None]:
    """Read by mapping the file into memory. Not for longer: a mapped file that somebody truncates ends the process."""
    connection.execute(f"PRAGMA mmap_size = {MAX_MAPPED_BYTES}")
    try:
        yield
    finally:
        connection.execute("PRAGMA mmap_size = 0")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
