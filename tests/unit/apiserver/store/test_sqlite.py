"""The journal in SQLite: restart, a second process, a full disk, damage."""

import asyncio
import os
import resource
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline.apiserver.store.errors import RevisionCompacted, StoreFailed
from gangline.apiserver.store.records import HistoryRetention, StoreWrite
from gangline.apiserver.store.sqlite import DATABASE_FILE, MAX_INSERT_ROWS, Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError
from support.property.stores import (
    next_events,
    put_thing,
    remove_thing,
    stored_version,
    thing_body,
    thing_number,
)


def durable(folder: Path, keep: HistoryRetention | None = None) -> Store:
    return Store(SqliteJournal(folder, Durability.RELAXED), keep or HistoryRetention())


def rows(folder: Path) -> list[tuple[int, str]]:
    connection = sqlite3.connect(folder / DATABASE_FILE)
    try:
        return list(connection.execute("SELECT revision, path FROM changes ORDER BY revision"))
    finally:
        connection.close()


@pytest.mark.parametrize("durability", Durability)
async def test_state_history_and_identity_survive_a_restart(tmp_path: Path, durability: Durability) -> None:
    async with Store(SqliteJournal(tmp_path, durability)) as store:
        for value in range(3):
            await put_thing(store, "/a", value)
        await put_thing(store, "/b", 7)
        await remove_thing(store, "/b")
        before, cluster = store.range(""), store.cluster_id
    async with Store(SqliteJournal(tmp_path, durability)) as store:
        assert store.range("") == before
        assert store.cluster_id == cluster
        assert [thing_number(record.data) for record in store.range("", at=5).records] == [2, 7]
        with store.watch("", after=3) as watch:
            events = await next_events(watch, 3)
        assert [(event.record.revision, event.deleted) for event in events] == [(4, False), (5, False), (6, True)]
        assert events[-1].previous is not None
        assert stored_version(events[-1].previous.data) == 5
        assert (await put_thing(store, "/c")).revision == 7


async def test_revision_of_a_compacted_deletion_is_not_reused(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        await put_thing(store, "/a")
        deleted = await remove_thing(store, "/a")
        await store.compact(deleted.revision)
    assert rows(tmp_path) == []
    async with durable(tmp_path) as store:
        assert store.revision == deleted.revision
        assert (await put_thing(store, "/a")).revision == deleted.revision + 1


async def test_compaction_keeps_on_disk_what_is_current_or_history(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        await put_thing(store, "/same", 0)  # revision 2
        for value in range(4):
            await put_thing(store, "/a", value)  # 3 to 6
        await put_thing(store, "/b", 0)
        await remove_thing(store, "/b")  # 8
        await store.compact(5)
    assert [revision for revision, _ in rows(tmp_path)] == [2, 5, 6, 7, 8]
    async with durable(tmp_path) as store:
        with pytest.raises(RevisionCompacted):
            store.watch("", after=4)
        assert [thing_number(record.data) for record in store.range("", at=5).records] == [2, 0]
        await store.compact(8)
    assert [revision for revision, _ in rows(tmp_path)] == [2, 6]


async def test_file_stays_bounded_under_endless_change(tmp_path: Path) -> None:
    keep = HistoryRetention(max_changes=40)
    async with durable(tmp_path, keep) as store:
        for value in range(500):
            await put_thing(store, f"/{value % 3}", value)
            if value % 7 == 0:
                await remove_thing(store, f"/{value % 3}")
        last = store.range("")
    assert len(rows(tmp_path)) <= 50
    async with durable(tmp_path, keep) as store:
        assert store.range("") == last


async def test_big_commit_spans_statements_and_is_still_one(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        await store.commit(
            *(StoreWrite(f"/{index:04d}", thing_body(index), 0) for index in range(2 * MAX_INSERT_ROWS + 1))
        )
    async with durable(tmp_path) as store:
        assert [thing_number(record.data) for record in store.range("").records] == [*range(2 * MAX_INSERT_ROWS + 1)]


async def test_second_store_on_a_folder_learns_which_process_holds_it(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        with pytest.raises(InputError, match=rf"in use by process {os.getpid()}; stop it first"):
            await durable(tmp_path).__aenter__()
        code = (
            "import sys; from pathlib import Path; from gangline.apiserver.store.sqlite import SqliteJournal\n"
            "SqliteJournal(Path(sys.argv[1])).open()"
        )
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, tmp_path, stderr=asyncio.subprocess.PIPE
        )
        _, said = await other.communicate()
        assert f"in use by process {os.getpid()}" in said.decode()
        await put_thing(store, "/a")
    async with durable(tmp_path) as store:
        assert store.count() == 1


async def test_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used: Not a directory"):
        await durable(tmp_path / "file" / "state").__aenter__()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    async with durable(tmp_path / "new") as store:
        await put_thing(store, "/a")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert modes.pop("lock") == 0o600
    assert set(modes.values()) == {0o600}
    assert DATABASE_FILE in modes


async def test_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        await put_thing(store, "/a")
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match=r"written by a newer gangline \(format 99"):
        await durable(tmp_path).__aenter__()


async def test_foreign_database_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    connection.execute("CREATE TABLE precious (thing)")
    connection.close()
    with pytest.raises(InputError, match="not written by gangline"):
        await durable(tmp_path).__aenter__()


async def test_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).write_text("hello " * 1000)
    with pytest.raises(StoreFailed, match="not a database"):
        await durable(tmp_path).__aenter__()


async def test_damage_is_detected_after_an_unclean_close(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        for index in range(200):
            await store.commit(StoreWrite(f"/{index}", thing_body(index, text="x" * 2000), 0))
    with (tmp_path / DATABASE_FILE).open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096)
    (tmp_path / f"{DATABASE_FILE}-wal").touch()  # left behind by a killed process
    with pytest.raises(StoreFailed, match=r"damaged|malformed"):
        await durable(tmp_path).__aenter__()


async def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with durable(tmp_path) as store:
        await put_thing(store, "/a")
        with pytest.raises(InputError):
            await durable(tmp_path).__aenter__()
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) <= before


async def test_full_disk_fails_commits_until_there_is_room(tmp_path: Path) -> None:
    async with durable(tmp_path) as store:
        await put_thing(store, "/a", 1)
        with files_end_at((tmp_path / f"{DATABASE_FILE}-wal").stat().st_size + 10_000):
            with pytest.raises(StoreFailed, match=r"disk"):
                await store.commit(
                    *(StoreWrite(f"/{index}", thing_body(index, text="x" * 9000), 0) for index in range(9))
                )
            assert store.count() == 1
            await put_thing(store, "/a", 2)
        await put_thing(store, "/a", 3)
        last = store.range("")
    async with durable(tmp_path) as store:
        assert store.range("") == last


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size, which looks like a full disk to writers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
