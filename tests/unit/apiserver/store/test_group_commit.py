"""Group commit: visibility, failures of the disk, cancelled writers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.apiserver.store import group_commit, sqlite
from gangline.apiserver.store.errors import DiskFull, StaleWrite, StoreFailed
from gangline.apiserver.store.journal import JournalContents
from gangline.apiserver.store.records import HistoryRetention, StoreWrite
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError
from gangline.testing.clock import settle
from support.property.stores import GatedJournal, put_thing, remove_thing, thing_body, thing_number


@pytest.fixture
def journal(tmp_path: Path) -> GatedJournal:
    return GatedJournal(SqliteJournal(tmp_path, Durability.RELAXED))


@pytest.fixture
async def store(journal: GatedJournal) -> AsyncIterator[Store]:
    async with Store(journal) as store:
        yield store
        journal.write_gate.set()


async def test_nothing_is_visible_before_it_is_durable(journal: GatedJournal, store: Store) -> None:
    journal.write_gate.clear()
    async with asyncio.TaskGroup() as group:
        with store.watch("/", after=store.revision) as watch:
            writing = group.create_task(put_thing(store, "/a", 1))
            reading = group.create_task(anext(watch))
            await journal.wait_for_write()
            await settle()
            assert store.get("/a") is None
            assert store.count() == 0
            assert store.revision == watch.revision == 1
            assert not writing.done()
            assert not reading.done()
            journal.write_gate.set()
            assert (await writing) is store.get("/a")
            assert [event.record.path for event in await reading] == ["/a"]


async def test_commits_gather_while_one_is_written(journal: GatedJournal, store: Store) -> None:
    journal.write_gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(put_thing(store, "/first"))
        await journal.wait_for_write()
        for name in "abc":
            group.create_task(put_thing(store, f"/{name}"))
        await settle()
        journal.write_gate.set()
    assert journal.batches == [["/first"], ["/a", "/b", "/c"]]
    assert [record.revision for record in store.range("/").records] == [3, 4, 5, 2]


async def test_simultaneous_commits_share_a_batch(journal: GatedJournal, store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(put_thing(store, f"/{name}"))
    assert journal.batches == [["/a", "/b", "/c"]]


async def test_of_two_simultaneous_writers_one_is_stale_and_sees_only_durable_state(
    journal: GatedJournal, store: Store
) -> None:
    journal.write_gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(put_thing(store, "/a", 1))
        second = group.create_task(outcome(store, StoreWrite("/a", thing_body(2), 0)))
        third = group.create_task(
            outcome(store, StoreWrite("/other", thing_body(3), 0), StoreWrite("/a", thing_body(3), 0))
        )
        await journal.wait_for_write()
        await settle()
        assert not second.done()
        assert not third.done()
        journal.write_gate.set()
    for stale in (second.result(), third.result()):
        assert isinstance(stale, StaleWrite)
        assert stale.current is first.result()
    assert store.get("/other") is None


async def test_writer_commits_when_the_batch_it_waited_for_failed(journal: GatedJournal, store: Store) -> None:
    journal.write_gate.clear()
    journal.write_failures = [StoreFailed("no space")]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(outcome(store, StoreWrite("/a", thing_body(1), 0)))
        second = group.create_task(outcome(store, StoreWrite("/a", thing_body(2), 0)))
        await journal.wait_for_write()
        journal.write_gate.set()
    assert isinstance(first.result(), StoreFailed)
    assert second.result() is None
    there = store.get("/a")
    assert there is not None
    assert thing_number(there.data) == 2


async def test_failed_batch_fails_its_commits_and_no_others(journal: GatedJournal, store: Store) -> None:
    await put_thing(store, "/a", 1)
    journal.write_gate.clear()
    journal.write_failures = [StoreFailed("no space")]
    async with asyncio.TaskGroup() as group:
        failing = [
            group.create_task(outcome(store, StoreWrite(f"/{name}", thing_body(2), 2 if name == "a" else 0)))
            for name in "ab"
        ]
        await journal.wait_for_write()
        next_commit = group.create_task(put_thing(store, "/c", 3))
        await settle()
        journal.write_gate.set()
    for task in failing:
        assert isinstance(task.result(), StoreFailed)
        assert str(task.result()) == "no space"
    assert [thing_number(record.data) for record in store.range("/").records] == [1, 3]
    # Revisions of failed writes are skipped.
    assert next_commit.result().revision == store.revision == 5
    with store.watch("/", after=1) as watch:
        assert [event.record.revision for event in await anext(watch)] == [2, 5]


async def test_deletion_outlives_all_batches_of_other_writes_on_a_full_disk(
    tmp_path: Path, journal: GatedJournal, store: Store
) -> None:
    """The disk is found full by one batch while other writes have already gathered in the next one."""
    kept = await put_thing(store, "/kept")
    await put_thing(store, "/old")
    journal.write_gate.clear()
    journal.write_failures = [DiskFull(tmp_path), DiskFull(tmp_path)]
    async with asyncio.TaskGroup() as group:
        deleting = group.create_task(remove_thing(store, "/old"))
        refused = [group.create_task(outcome(store, StoreWrite("/kept", thing_body(1), kept.revision)))]
        for _ in range(3):  # the third one is held by the gate
            await journal.wait_for_write()
        refused.append(group.create_task(outcome(store, StoreWrite("/new", thing_body(1), 0))))
        refused.append(group.create_task(outcome(store, StoreWrite("/kept", thing_body(2), kept.revision))))
        await settle()
        journal.write_gate.set()
    assert deleting.result().path == "/old"
    assert [type(task.result()) for task in refused] == [DiskFull] * 3
    assert [record.path for record in store.range("/").records] == ["/kept"]
    assert journal.batches[2:] == [["/old", "/kept"], ["/new", "/old"], ["/old"]]


async def test_unexpected_error_of_a_journal_reaches_the_writer(journal: GatedJournal, store: Store) -> None:
    journal.write_failures = [ZeroDivisionError("a bug")]
    with pytest.raises(StoreFailed, match="a bug") as caught:
        await put_thing(store, "/a")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    await put_thing(store, "/a")


async def test_error_within_a_transaction_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Store(SqliteJournal(tmp_path)) as store:
        record = await put_thing(store, "/a", 1)
        second = await put_thing(store, "/a", 2)
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "set_meta", lambda *_: 1 // 0)
            with pytest.raises(StoreFailed, match="by zero"):
                await store.compact(record.revision)
        await store.compact(second.revision)


async def test_disk_is_checked_again_after_an_unexpected_error(
    journal: GatedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "CHECK_SECONDS", 0.0)
    loop, errors, checked = asyncio.get_running_loop(), list[str](), asyncio.Event()
    loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))

    def check() -> None:
        if errors:
            loop.call_soon_threadsafe(checked.set)
        else:
            raise ZeroDivisionError("a bug")

    monkeypatch.setattr(journal, "check", check)
    async with asyncio.timeout(60), Store(journal):
        await checked.wait()
    assert errors[0] == "a bug"


async def test_cancelled_commit_does_not_affect_others(journal: GatedJournal, store: Store) -> None:
    journal.write_gate.clear()
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(put_thing(store, "/a"))
        staying = group.create_task(put_thing(store, "/b"))
        waiting = group.create_task(outcome(store, StoreWrite("/b", thing_body(2), 0)))
        also_waiting = group.create_task(outcome(store, StoreWrite("/b", thing_body(2), 0)))
        await journal.wait_for_write()
        leaving.cancel()
        waiting.cancel()
        await settle()
        assert leaving.cancelled()
        assert not staying.done()
        journal.write_gate.set()
    assert isinstance(also_waiting.result(), StaleWrite)
    assert [record.path for record in store.range("/").records] == ["/a", "/b"]


async def test_closing_the_store_finishes_accepted_commits(tmp_path: Path, journal: GatedJournal) -> None:
    async with asyncio.TaskGroup() as group, Store(journal) as store:
        journal.write_gate.clear()
        tasks = [group.create_task(put_thing(store, "/a"))]
        await journal.wait_for_write()
        tasks.append(group.create_task(put_thing(store, "/b")))
        late = group.create_task(outcome(store, StoreWrite("/a", thing_body(1), 0)))
        await settle()
        asyncio.get_running_loop().call_soon(journal.write_gate.set)
    assert all(task.done() for task in tasks)
    assert isinstance(late.result(), StoreFailed | StaleWrite)
    assert journal.closed
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.count() == 2


async def test_journal_is_closed_even_if_closing_the_store_is_cancelled(tmp_path: Path, journal: GatedJournal) -> None:
    async def run() -> None:
        async with Store(journal) as store:
            journal.write_gate.clear()
            await put_thing(store, "/a")

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        await journal.wait_for_write()
        running.cancel()
        await settle()
        assert not running.done(), "it finishes the write first"
        running.cancel()
        asyncio.get_running_loop().call_soon(journal.write_gate.set)
        await settle()
    assert journal.closed
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.count() == 1


async def test_failed_open_leaves_nothing_open() -> None:
    class Unusable(GatedJournal):
        def open(self) -> JournalContents:
            raise InputError("not today")

    journal = Unusable(SqliteJournal(Path("unused")))
    with pytest.raises(InputError, match="not today"):
        await Store(journal).__aenter__()
    assert journal.closed


async def test_failed_compaction_is_repeated(tmp_path: Path, journal: GatedJournal) -> None:
    """If the old content stayed on disk and its deletion were dropped, the object would reappear."""
    async with Store(journal) as store:
        await put_thing(store, "/a", 1)
        second = await put_thing(store, "/a", 2)
        journal.write_failures = [StoreFailed("no space")]
        with pytest.raises(StoreFailed):
            await store.compact(second.revision)
        deleted = await remove_thing(store, "/a")
        await store.compact(deleted.revision)
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.range("").records == ()
        assert (store.revision, store.compacted_revision) == (deleted.revision, deleted.revision)


async def test_compaction_waits_for_the_journal_and_needs_no_commit(journal: GatedJournal, store: Store) -> None:
    await put_thing(store, "/a", 1)
    journal.write_gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(put_thing(store, "/a", 2))
        await journal.wait_for_write()
        compacting = group.create_task(store.compact(2))
        await settle()
        assert not compacting.done()
        journal.write_gate.set()
    assert journal.batches == [["/a"], ["/a"], []]
    assert store.compacted_revision == 2


async def test_automatic_compaction_is_written_with_commits(tmp_path: Path, journal: GatedJournal) -> None:
    async with Store(journal, HistoryRetention(max_changes=8)) as store:
        for value in range(30):
            await put_thing(store, "/a", value)
        compacted = store.compacted_revision
        assert len(journal.batches) == 30
    async with Store(SqliteJournal(tmp_path), HistoryRetention(max_changes=8)) as store:
        assert store.compacted_revision == compacted


async def outcome(store: Store, *writes: StoreWrite) -> Exception | None:
    try:
        await store.commit(*writes)
    except (StaleWrite, StoreFailed) as error:
        return error
    return None
