"""The in-memory store keeps the contract of `Store`."""

import asyncio
from contextlib import aclosing

import pytest

from gangline.local.store.memory import HISTORY, MemoryStore
from gangline.local.store.store import Compacted, Record, StaleWrite, Write


async def take(store: MemoryStore, prefix: str, after: int, count: int) -> list[Record]:
    found: list[Record] = []
    async with asyncio.timeout(5), aclosing(store.watch(prefix, after=after)) as watch:  # type: ignore[type-var]
        async for record in watch:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_write_needs_the_revision_it_was_based_on() -> None:
    store = MemoryStore()
    revision = await store.commit(Write("/a", {"n": 1}, 0))
    with pytest.raises(StaleWrite):
        await store.commit(Write("/a", {"n": 2}, 0))
    assert await store.commit(Write("/a", {"n": 2}, revision)) > revision


async def test_commit_is_all_or_none() -> None:
    store = MemoryStore()
    await store.commit(Write("/a", {}, 0))
    with pytest.raises(StaleWrite):
        await store.commit(Write("/b", {}, 0), Write("/a", {}, 0))
    assert await store.get("/b") is None


async def test_range_gives_one_prefix_in_order() -> None:
    store = MemoryStore()
    for path in ("/pods/b", "/pods/a", "/nodes/x"):
        await store.commit(Write(path, {}, 0))
    snapshot = await store.range("/pods/")
    assert [record.path for record in snapshot.records] == ["/pods/a", "/pods/b"]
    assert snapshot.revision == 3


async def test_watch_tells_history_and_then_what_happens() -> None:
    store = MemoryStore()
    first = await store.commit(Write("/pods/a", {"n": 1}, 0))
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(take(store, "/pods/", 0, 3))
        second = await store.commit(Write("/pods/a", {"n": 2}, first))
        await store.commit(Write("/nodes/x", {}, 0))
        await store.commit(Write("/pods/a", None, second))
    told = [(record.before, record.value) for record in watching.result()]
    assert told == [(None, {"n": 1}), ({"n": 1}, {"n": 2}), ({"n": 2}, None)]


async def test_watch_from_before_the_history_is_refused() -> None:
    store = MemoryStore()
    revision = 0
    for number in range(HISTORY + 10):
        revision = await store.commit(Write("/a", {"n": number}, revision))
    with pytest.raises(Compacted):
        await take(store, "/", 1, 1)
    assert len(await take(store, "/", HISTORY, 10)) == 10
