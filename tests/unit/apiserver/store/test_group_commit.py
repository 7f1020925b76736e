"""Group commit: what is visible when, and what happens when the disk fails or a writer goes away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.apiserver.store.errors import StaleWrite, StoreFailed
from gangline.apiserver.store.journal import Contents
from gangline.apiserver.store.records import Retention, Write
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError
from gangline.testing.clock import settle
from support.property.stores import TestableJournal, body, number, put, remove


@pytest.fixture
def journal(tmp_path: Path) -> TestableJournal:
    return TestableJournal(SqliteJournal(tmp_path, Durability.RELAXED))


@pytest.fixture
async def store(journal: TestableJournal) -> AsyncIterator[Store]:
    async with Store(journal) as store:
        yield store
        journal.gate.set()


async def test_nothing_is_visible_before_it_is_durable(journal: TestableJournal, store: Store) -> None:
    journal.gate.clear()
    async with asyncio.TaskGroup() as group:
        with store.watch("/", after=store.revision) as watch:
            writing = group.create_task(put(store, "/a", 1))
            reading = group.create_task(anext(watch))
            await journal.write_begins()
            await settle()
            assert store.get("/a") is None
            assert store.count() == 0
            assert store.revision == watch.revision == 1
            assert not writing.done()
            assert not reading.done()
            journal.gate.set()
            assert (await writing) is store.get("/a")
            assert [event.path for event in await reading] == ["/a"]


async def test_commits_gather_while_one_is_written(journal: TestableJournal, store: Store) -> None:
    journal.gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(put(store, "/first"))
        await journal.write_begins()
        for name in "abc":
            group.create_task(put(store, f"/{name}"))
        await settle()
        journal.gate.set()
    assert journal.batches == [["/first"], ["/a", "/b", "/c"]]
    assert [record.revision for record in store.range("/").records] == [3, 4, 5, 2]


async def test_commits_of_one_moment_share_a_batch(journal: TestableJournal, store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(put(store, f"/{name}"))
    assert journal.batches == [["/a", "/b", "/c"]]


async def test_of_two_writers_at_once_one_is_stale_and_learns_only_what_is_durable(
    journal: TestableJournal, store: Store
) -> None:
    journal.gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(put(store, "/a", 1))
        second = group.create_task(outcome(store, Write("/a", body(2), 0)))
        third = group.create_task(outcome(store, Write("/other", body(3), 0), Write("/a", body(3), 0)))
        await journal.write_begins()
        await settle()
        assert not second.done()
        assert not third.done()
        journal.gate.set()
    for stale in (second.result(), third.result()):
        assert isinstance(stale, StaleWrite)
        assert stale.current is first.result()
    assert store.get("/other") is None


async def test_writer_that_was_not_stale_after_all_gets_through(
    journal: TestableJournal, store: Store
) -> None:
    journal.gate.clear()
    journal.failures = [StoreFailed("no space")]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(outcome(store, Write("/a", body(1), 0)))
        second = group.create_task(outcome(store, Write("/a", body(2), 0)))
        await journal.write_begins()
        journal.gate.set()
    assert isinstance(first.result(), StoreFailed)
    assert second.result() is None
    there = store.get("/a")
    assert there is not None
    assert number(there.data) == 2


async def test_failed_batch_fails_its_commits_and_no_others(journal: TestableJournal, store: Store) -> None:
    await put(store, "/a", 1)
    journal.gate.clear()
    journal.failures = [StoreFailed("no space")]
    async with asyncio.TaskGroup() as group:
        failing = [
            group.create_task(outcome(store, Write(f"/{name}", body(2), 2 if name == "a" else 0)))
            for name in "ab"
        ]
        await journal.write_begins()
        later = group.create_task(put(store, "/c", 3))
        await settle()
        journal.gate.set()
    for task in failing:
        assert isinstance(task.result(), StoreFailed)
        assert str(task.result()) == "no space"
    assert [number(record.data) for record in store.range("/").records] == [1, 3]
    # Revisions that were given out in vain are skipped.
    assert later.result().revision == store.revision == 5
    with store.watch("/", after=1) as watch:
        assert [event.revision for event in await anext(watch)] == [2, 5]


async def test_unexpected_error_of_a_journal_reaches_the_writer(
    journal: TestableJournal, store: Store
) -> None:
    journal.failures = [ZeroDivisionError("a bug")]
    with pytest.raises(StoreFailed, match="a bug") as caught:
        await put(store, "/a")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    await put(store, "/a")


async def test_cancelled_commit_takes_no_other_with_it(journal: TestableJournal, store: Store) -> None:
    journal.gate.clear()
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(put(store, "/a"))
        staying = group.create_task(put(store, "/b"))
        waiting = group.create_task(outcome(store, Write("/b", body(2), 0)))
        also_waiting = group.create_task(outcome(store, Write("/b", body(2), 0)))
        await journal.write_begins()
        leaving.cancel()
        waiting.cancel()
        await settle()
        assert leaving.cancelled()
        assert not staying.done()
        journal.gate.set()
    assert isinstance(also_waiting.result(), StaleWrite)
    assert [record.path for record in store.range("/").records] == ["/a", "/b"]


async def test_leaving_the_store_finishes_what_was_accepted(tmp_path: Path, journal: TestableJournal) -> None:
    async with asyncio.TaskGroup() as group, Store(journal) as store:
        journal.gate.clear()
        tasks = [group.create_task(put(store, "/a"))]
        await journal.write_begins()
        tasks.append(group.create_task(put(store, "/b")))
        late = group.create_task(outcome(store, Write("/a", body(1), 0)))
        await settle()
        asyncio.get_running_loop().call_soon(journal.gate.set)
    assert all(task.done() for task in tasks)
    assert isinstance(late.result(), StoreFailed | StaleWrite)
    assert journal.closed
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.count() == 2


async def test_journal_is_closed_even_if_leaving_is_cancelled(
    tmp_path: Path, journal: TestableJournal
) -> None:
    async def run() -> None:
        async with Store(journal) as store:
            journal.gate.clear()
            await put(store, "/a")

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        await journal.write_begins()
        running.cancel()
        await settle()
        assert not running.done(), "it finishes the write first"
        running.cancel()
        asyncio.get_running_loop().call_soon(journal.gate.set)
        await settle()
    assert journal.closed
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.count() == 1


async def test_failed_open_leaves_nothing_open() -> None:
    class Unusable(TestableJournal):
        def open(self) -> Contents:
            raise InputError("not today")

    journal = Unusable(SqliteJournal(Path("unused")))
    with pytest.raises(InputError, match="not today"):
        await Store(journal).__aenter__()
    assert journal.closed


async def test_compaction_that_failed_is_made_up_for(tmp_path: Path, journal: TestableJournal) -> None:
    """With the old content left on disk and its deletion forgotten, the object would come back."""
    async with Store(journal) as store:
        await put(store, "/a", 1)
        second = await put(store, "/a", 2)
        journal.failures = [StoreFailed("no space")]
        with pytest.raises(StoreFailed):
            await store.compact(second.revision)
        gone = await remove(store, "/a")
        await store.compact(gone.revision)
    async with Store(SqliteJournal(tmp_path)) as store:
        assert store.range("").records == ()
        assert (store.revision, store.compacted) == (gone.revision, gone.revision)


async def test_compaction_waits_its_turn_and_needs_no_commit(journal: TestableJournal, store: Store) -> None:
    await put(store, "/a", 1)
    journal.gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(put(store, "/a", 2))
        await journal.write_begins()
        compacting = group.create_task(store.compact(2))
        await settle()
        assert not compacting.done()
        journal.gate.set()
    assert journal.batches == [["/a"], ["/a"], []]
    assert store.compacted == 2


async def test_automatic_compaction_goes_along_with_commits(tmp_path: Path, journal: TestableJournal) -> None:
    async with Store(journal, Retention(changes=8)) as store:
        for value in range(30):
            await put(store, "/a", value)
        compacted = store.compacted
        assert len(journal.batches) == 30
    async with Store(SqliteJournal(tmp_path), Retention(changes=8)) as store:
        assert store.compacted == compacted


async def outcome(store: Store, *writes: Write) -> Exception | None:
    try:
        await store.commit(*writes)
    except (StaleWrite, StoreFailed) as error:
        return error
    return None
