"""The journal in SQLite: an append-only table of changes from which all state can be rebuilt.

There is no table of objects. The newest change of a path, if it is no deletion, *is* the object, so every write goes
to disk once. Compaction deletes obsolete changes.
"""

import logging
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.folder_lock import folder_lock
from gangline.apiserver.store.journal import Compaction, JournalContents
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.errors import InputError

log = logging.getLogger(__name__)

DATABASE_FILE = "state.db"
SCHEMA_VERSION = 1
"""The `PRAGMA user_version` of the file. Incremented with every change of the tables."""

MAX_INSERT_ROWS = 64
"""The most rows that one statement inserts."""

MAX_WAL_BYTES = 16 * 2**20
"""The size of the write-ahead log at which it is copied into the database."""

CREATE_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (revision INTEGER PRIMARY KEY, path TEXT NOT NULL, data BLOB NOT NULL, deleted INTEGER NOT NULL);
"""


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
        self._file = folder / DATABASE_FILE
        self._durability = durability
        self._open_resources = ExitStack()
        self._connection: sqlite3.Connection | None = None

    def open(self) -> JournalContents:
        self._open_resources.enter_context(folder_lock(self._folder))
        with self._as_store_errors():
            # SQLite removes its write-ahead log on a clean close.
            unclean = self._file.with_name(f"{DATABASE_FILE}-wal").exists()
            connection = self._connect()
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise InputError(
                    f"{self._file}: written by a newer gangline (format {version}, known is {SCHEMA_VERSION}); "
                    "use that version, or another folder"
                )
            if version == 0:
                self._create_tables(connection)
            elif unclean:
                self._check_integrity(connection)
            return self._read_contents(connection)

    def write(self, events: Sequence[StoreEvent], compaction: Compaction | None) -> None:
        connection = self._connection
        assert connection is not None, "write before open"
        with self._as_store_errors():
            # sqlite3 releases the GIL around every statement and must reacquire it from a busy event loop, so the usual
            # batch is a single statement and its own transaction.
            if compaction is None and 0 < len(events) <= MAX_INSERT_ROWS:
                insert_events(connection, events)
                return
            with transaction(connection):
                for start in range(0, len(events), MAX_INSERT_ROWS):
                    insert_events(connection, events[start : start + MAX_INSERT_ROWS])
                if compaction is not None:
                    self._compact(connection, compaction)

    def close(self) -> None:
        self._connection = None
        with self._as_store_errors():
            self._open_resources.close()

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
        with transaction(connection):
            for statement in CREATE_TABLES.strip().splitlines():
                connection.execute(statement)
            rows = [("cluster", str(uuid.uuid4())), ("compacted", "0")]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check_integrity(self, connection: sqlite3.Connection) -> None:
        log.info("the store was not closed cleanly, checking it", extra={"file": self._file})
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise StoreFailed(f"{self._file}: damaged: {result}; restore a copy, or start with another folder")

    def _read_contents(self, connection: sqlite3.Connection) -> JournalContents:
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        rows = connection.execute("SELECT revision, path, data, deleted FROM changes ORDER BY revision")
        changes = [(StoreRecord(path, revision, data), bool(deleted)) for revision, path, data, deleted in rows]
        compacted_revision = int(meta["compacted"])
        newest_revision = changes[-1][0].revision if changes else 0
        return JournalContents(meta["cluster"], max(compacted_revision, newest_revision), compacted_revision, changes)

    def _compact(self, connection: sqlite3.Connection, compaction: Compaction) -> None:
        revisions = msgspec.json.encode(compaction.obsolete_revisions).decode()
        connection.execute("DELETE FROM changes WHERE revision IN (SELECT value FROM json_each(?))", (revisions,))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (str(compaction.compacted_revision),))

    @contextmanager
    def _as_store_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._file}: {error}") from error


def insert_events(connection: sqlite3.Connection, events: Sequence[StoreEvent]) -> None:
    values: list[object] = []
    for event in events:
        values += (event.record.revision, event.record.path, event.record.data, event.deleted)
    connection.execute(insert_statement(len(events)), values)


@cache
def insert_statement(rows: int) -> str:
    """A statement that inserts this many rows. The connection caches the prepared statement by its text."""
    values = ", ".join(["(?, ?, ?, ?)"] * rows)
    return f"INSERT INTO changes (revision, path, data, deleted) VALUES {values}"  # noqa: S608 - question marks


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
