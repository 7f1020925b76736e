"""A damaged, emptied or exchanged database is noticed when the store is opened, and nothing is overwritten."""

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.apiserver.store import sqlite
from gangline.apiserver.store.disk.marker import MARKER_FILE
from gangline.apiserver.store.disk.reserve import RESERVE_BYTES, RESERVE_FILE, DeletionReserve
from gangline.apiserver.store.errors import StoreDamaged, StoreFailed
from gangline.apiserver.store.records import HistoryRetention, StoreEvent, StoreRecord, StoreWrite
from gangline.apiserver.store.sqlite import DATABASE_FILE, LOG_FILE, Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from support.property.stores import put_thing, remove_thing, thing_body

OBJECTS = 60
MAX_PART = 300_000
"""Bytes that a disk takes at once."""
REMEDY = "restore a backup with gangline restore FILE"


async def fill(folder: Path, retention: HistoryRetention | None = None) -> None:
    async with Store(SqliteJournal(folder, Durability.RELAXED), retention or HistoryRetention()) as store:
        for number in range(OBJECTS):
            await store.commit(StoreWrite(f"/things/{number}", thing_body(number, text=f"{number:04d}" * 400), 0))
        for number in range(0, OBJECTS, 3):
            await remove_thing(store, f"/things/{number}")


async def kill_after_filling(folder: Path, away: Path) -> None:
    """What a killed process leaves: a copy of the files of a store that is open."""
    async with Store(SqliteJournal(away, Durability.RELAXED)) as store:
        for number in range(OBJECTS):
            await put_thing(store, f"/things/{number}", number)
        shutil.copytree(away, folder)


def execute(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / DATABASE_FILE)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def overwrite(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(data)


def truncate(file: Path, size: int) -> None:
    with file.open("r+b") as handle:
        handle.truncate(size)


def swap_bytes(folder: Path) -> None:
    """Change the text of an object, in a way that no check of SQLite can notice."""
    file = folder / DATABASE_FILE
    content = file.read_bytes()
    start = content.index(b"00170017")
    overwrite(file, start, b"00180018")


def replace_by_new_database(folder: Path) -> None:
    (folder / DATABASE_FILE).unlink()
    execute(folder, "PRAGMA journal_mode = WAL", "VACUUM")


def database_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.name.startswith(DATABASE_FILE)}


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "emptied": (lambda folder: truncate(folder / DATABASE_FILE, 0), "the file is empty, and the store was at revision"),
    "removed": (lambda folder: (folder / DATABASE_FILE).unlink(), "the file is missing, and the store was at revision"),
    "zeroed": (
        lambda folder: overwrite(folder / DATABASE_FILE, 0, bytes((folder / DATABASE_FILE).stat().st_size)),
        "not a database",
    ),
    "truncated": (lambda folder: truncate(folder / DATABASE_FILE, 10 * 4096), "malformed"),
    "page overwritten": (lambda folder: overwrite(folder / DATABASE_FILE, 20 * 4096, b"\xff" * 4096), ""),
    "page of zeros": (lambda folder: overwrite(folder / DATABASE_FILE, 9 * 4096, bytes(4096)), ""),
    "other text": (swap_bytes, "1 of 80 changes do not match their checksum"),
    "a row deleted": (
        lambda folder: execute(folder, "DELETE FROM changes WHERE revision = 9"),
        "1 of 80 changes are missing",
    ),
    "last rows deleted": (
        lambda folder: execute(folder, "DELETE FROM changes WHERE revision > 50"),
        "it is at revision 50, and was at 81 already",
    ),
    "all rows deleted": (lambda folder: execute(folder, "DELETE FROM changes"), "was at 81 already"),
    "all rows deleted, revision kept": (
        lambda folder: execute(folder, "DELETE FROM changes", "UPDATE meta SET value = '81' WHERE name = 'compacted'"),
        "it has 0 changes, and had 80 when it was closed",
    ),
    "meta lost": (lambda folder: execute(folder, "DELETE FROM meta"), "numbered"),
    "table lost": (lambda folder: execute(folder, "DROP TABLE changes"), "no such table"),
    "a new database": (
        replace_by_new_database,
        "it has no tables, and the store was at revision 81",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_is_refused_with_what_to_do(tmp_path: Path, damage: str) -> None:
    make_damage, message = DAMAGES[damage]
    await fill(tmp_path)
    make_damage(tmp_path)
    files = database_files(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreDamaged) as caught:
            await Store(SqliteJournal(tmp_path)).__aenter__()
        assert message in str(caught.value)
        assert REMEDY in str(caught.value)
        assert str(caught.value).startswith(f"{tmp_path / DATABASE_FILE}: damaged: ")
    assert database_files(tmp_path) == files


async def test_compacted_store_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    await fill(tmp_path, HistoryRetention(max_changes=10))
    async with Store(SqliteJournal(tmp_path, Durability.RELAXED)) as store:
        await store.compact(store.revision)
    execute(tmp_path, "DELETE FROM changes WHERE revision = (SELECT min(revision) FROM changes)")
    with pytest.raises(StoreDamaged, match="1 of 40 changes are missing"):
        await Store(SqliteJournal(tmp_path)).__aenter__()


async def test_lost_log_of_a_killed_process_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    await kill_after_filling(folder, tmp_path / "away")
    shutil.copytree(folder, tmp_path / "whole")
    async with Store(SqliteJournal(tmp_path / "whole")) as store:
        assert store.count() == OBJECTS
    (folder / LOG_FILE).unlink()
    with pytest.raises(StoreDamaged, match=r"state\.db-wal is missing, and with it the last writes"):
        await Store(SqliteJournal(folder)).__aenter__()


async def test_failed_start_after_a_kill_is_not_taken_for_a_lost_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "killed"
    await kill_after_filling(folder, tmp_path / "away")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "write_marker", fail)
        for _ in range(2):
            with pytest.raises(StoreFailed, match="the disk is full"):
                await Store(SqliteJournal(folder)).__aenter__()
    async with Store(SqliteJournal(folder)) as store:
        assert store.count() == OBJECTS


def test_stop_on_a_full_disk_is_not_taken_for_a_lost_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the database nor the marker can be written, and a deletion is in the reserve."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = SqliteJournal(tmp_path)
    journal.open()
    things = [StoreEvent(StoreRecord(f"/{number}", number, b"{}"), None) for number in range(2, 6)]
    journal.write(things, None)
    journal.check()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "write_marker", fail)
        patch.setattr(journal, "_write_database", fail)
        journal.write(
            [StoreEvent(StoreRecord("/2", 6, b"{}"), things[0].record, deleted=True)], None, may_use_reserve=True
        )
        journal.close()
    again = SqliteJournal(tmp_path)
    try:
        assert [(record.revision, deleted) for record, deleted in again.open().changes] == [
            *((number, False) for number in range(2, 6)),
            (6, True),
        ]
    finally:
        again.close()
    last = SqliteJournal(tmp_path)
    try:
        assert last.open().revision == 6
    finally:
        last.close()


def test_reserve_is_written_whole_by_a_disk_that_takes_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: pwrite(file, data[:MAX_PART], start))
    reserve = DeletionReserve(tmp_path)
    reserve.start("cluster", 1)
    reserve.ensure_allocated()
    assert (tmp_path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    record = StoreRecord("/1", 2, b"x" * 2 * MAX_PART)
    reserve.append([StoreEvent(record, None, deleted=True)])
    again = DeletionReserve(tmp_path)
    again.start("cluster", 1)
    assert again.changes == [(record, True)]


async def test_database_of_another_plane_is_noticed(tmp_path: Path) -> None:
    await fill(tmp_path / "one")
    await fill(tmp_path / "other")
    shutil.copy(tmp_path / "other" / DATABASE_FILE, tmp_path / "one" / DATABASE_FILE)
    with pytest.raises(StoreDamaged, match="it is of another plane"):
        await Store(SqliteJournal(tmp_path / "one")).__aenter__()


async def test_older_copy_is_noticed(tmp_path: Path) -> None:
    await fill(tmp_path / "state")
    shutil.copy(tmp_path / "state" / DATABASE_FILE, tmp_path / "old.db")
    async with Store(SqliteJournal(tmp_path / "state", Durability.RELAXED)) as store:
        await put_thing(store, "/later")
    shutil.copy(tmp_path / "old.db", tmp_path / "state" / DATABASE_FILE)
    with pytest.raises(StoreDamaged, match="it is at revision 81, and was at 82 already"):
        await Store(SqliteJournal(tmp_path / "state")).__aenter__()


async def test_any_changed_bytes_are_noticed_or_harmless(tmp_path: Path) -> None:
    """After random damage the store refuses to open, or has exactly the objects that it had."""
    await fill(tmp_path / "good")
    async with Store(SqliteJournal(tmp_path / "good", Durability.RELAXED)) as store:
        before = store.range("").records
    size = (tmp_path / "good" / DATABASE_FILE).stat().st_size
    chance, refused = random.Random(16), 0
    for number in range(60):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "good", folder)
        length = chance.choice((1, 8, 512, 4096))
        overwrite(folder / DATABASE_FILE, chance.randrange(size - length), chance.randbytes(length))
        try:
            async with Store(SqliteJournal(folder, Durability.RELAXED)) as store:
                assert store.range("").records == before
        except StoreFailed:
            refused += 1
    assert refused > 40


async def test_store_of_an_earlier_version_gets_checksums(tmp_path: Path) -> None:
    execute(
        tmp_path,
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE changes "
        "(revision INTEGER PRIMARY KEY, path TEXT NOT NULL, data BLOB NOT NULL, deleted INTEGER NOT NULL)",
        "INSERT INTO meta VALUES ('cluster', 'c'), ('compacted', '3')",
        """INSERT INTO changes VALUES (2, '/a', CAST('{"number":1}' AS BLOB), 0)""",
        """INSERT INTO changes VALUES (4, '/b', CAST('{"number":2}' AS BLOB), 0)""",
        "PRAGMA user_version = 1",
    )
    for _ in range(2):
        async with Store(SqliteJournal(tmp_path)) as store:
            assert [record.path for record in store.range("").records] == ["/a", "/b"]
            assert (store.revision, store.compacted_revision, store.cluster_id) == (4, 3, "c")
    assert (tmp_path / MARKER_FILE).exists()
    execute(tmp_path, "UPDATE changes SET data = CAST('{}' AS BLOB) WHERE revision = 2")
    with pytest.raises(StoreDamaged, match="1 of 2 changes do not match"):
        await Store(SqliteJournal(tmp_path)).__aenter__()


async def test_marker_that_is_lost_is_made_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    (tmp_path / MARKER_FILE).write_text("{")
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.count() == 2 * OBJECTS // 3
    truncate(tmp_path / DATABASE_FILE, 0)
    with pytest.raises(StoreDamaged, match="the file is empty"):
        await Store(SqliteJournal(tmp_path)).__aenter__()
