"""Watches: complete, in order, bounded."""

import asyncio

import pytest

from gangline.apiserver.store.errors import RevisionCompacted, WatcherTooSlow
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.testing.clock import settle
from support.property.stores import next_events, put_thing, remove_thing, thing_body, thing_number


async def test_watch_delivers_history_and_then_changes() -> None:
    async with Store() as store:
        await put_thing(store, "/pods/a", 1)
        with store.watch("/pods/", after=0) as watch:
            await put_thing(store, "/pods/a", 2)
            await put_thing(store, "/nodes/x")
            deleted = await remove_thing(store, "/pods/a")
            events = await next_events(watch, 3)
    told = [
        (event.previous and thing_number(event.previous.data), thing_number(event.record.data), event.deleted)
        for event in events
    ]
    assert told == [(None, 1, False), (1, 2, False), (2, 2, True)]
    assert events[-1].record.revision == deleted.revision
    assert [event.record.path for event in events] == ["/pods/a"] * 3


async def test_waiting_watch_is_woken() -> None:
    async with Store() as store, asyncio.TaskGroup() as group:
        with store.watch("/", after=store.revision) as watch:
            reading = group.create_task(next_events(watch, 1))
            await settle()
            await put_thing(store, "/a", 5)
            assert [thing_number(event.record.data) for event in await reading] == [5]


async def test_timed_out_wait_returns_none_and_loses_nothing() -> None:
    async with Store() as store, asyncio.TaskGroup() as group:
        with store.watch("/", after=store.revision) as watch:
            assert await watch.next_batch(0.01) is None
            # The first timer, which is later, must not hide the second, earlier one.
            reading = group.create_task(watch.next_batch(600))
            await settle()
            await put_thing(store, "/a", 5)
            events = await reading
            assert events is not None
            assert [thing_number(event.record.data) for event in events] == [5]
            assert await watch.next_batch(0.01) is None
            await put_thing(store, "/a", 6)
            assert await watch.next_batch(0.01) is not None


async def test_timer_of_an_earlier_wait_does_not_shorten_a_later_one() -> None:
    async with Store() as store, asyncio.TaskGroup() as group:
        with store.watch("/", after=store.revision) as watch:
            await put_thing(store, "/a", 1)
            assert await watch.next_batch(600) is not None
            reading = group.create_task(watch.next_batch(0.01))
            await settle()
            await put_thing(store, "/a", 2)
            assert await reading is not None
            rings = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.05, rings.set_result, None)
            waiting = group.create_task(watch.next_batch(600))
            await rings
            assert not waiting.done()
            await put_thing(store, "/a", 3)
            assert await waiting is not None


async def test_what_was_committed_together_arrives_together() -> None:
    async with Store() as store:
        with store.watch("/", after=store.revision) as watch:
            await store.commit(*(StoreWrite(f"/{name}", thing_body(1), 0) for name in "abc"))
            events = await anext(watch)
            assert [event.record.path for event in events] == ["/a", "/b", "/c"]
            assert [event.record.revision for event in events] == [2, 3, 4]


async def test_watchers_share_the_events() -> None:
    async with Store() as store:
        with store.watch("/", after=1) as one, store.watch("/a", after=1) as other:
            await put_thing(store, "/a")
            (mine,), (yours,) = await anext(one), await anext(other)
            assert mine is yours


async def test_watch_resumes_after_the_revision_it_names() -> None:
    async with Store() as store:
        for value in range(5):
            await put_thing(store, "/a", value)
        with store.watch("/", after=4) as watch:
            assert [event.record.revision for event in await next_events(watch, 2)] == [5, 6]


async def test_watch_from_before_the_history_is_refused() -> None:
    async with Store() as store:
        for value in range(5):
            await put_thing(store, "/a", value)
        await store.compact(4)
        with pytest.raises(RevisionCompacted) as caught:
            store.watch("/", after=3)
        assert caught.value.oldest == 4
        with store.watch("/", after=4) as watch:
            assert len(await next_events(watch, 2)) == 2


async def test_running_watch_outlives_compaction() -> None:
    async with Store() as store:
        with store.watch("/", after=1) as watch:
            for value in range(5):
                await put_thing(store, "/a", value)
            await store.compact(store.revision)
            assert [thing_number(event.record.data) for event in await next_events(watch, 5)] == [0, 1, 2, 3, 4]


async def test_watch_after_a_future_revision_waits_for_it() -> None:
    async with Store() as store:
        with store.watch("/", after=3) as watch:
            await store.commit(StoreWrite("/a", thing_body(1), 0))
            assert watch.revision == 3
            await store.commit(*(StoreWrite(f"/{name}", thing_body(1), 0) for name in "bc"))
            assert [event.record.revision for event in await anext(watch)] == [4]


async def test_revision_includes_changes_elsewhere_but_not_undelivered_ones() -> None:
    async with Store() as store:
        with store.watch("/pods/", after=1) as watch:
            await put_thing(store, "/nodes/x")
            assert watch.revision == store.revision == 2
            await put_thing(store, "/pods/a")
            await put_thing(store, "/nodes/y")
            assert watch.revision == 2
            await anext(watch)
            assert watch.revision == store.revision == 4
        await put_thing(store, "/pods/b")
        assert watch.revision == 3, "once closed it can speak for what it gave out only"


async def test_slow_watch_is_ended_and_can_resume() -> None:
    async with Store() as store:
        with store.watch("/", after=1, backlog=3) as slow, store.watch("/", after=1) as other:
            await put_thing(store, "/a", 0)
            (first,) = await anext(slow)
            for value in range(1, 5):
                await put_thing(store, "/a", value)
            with pytest.raises(WatcherTooSlow, match="more than 3 changes"):
                await anext(slow)
            assert slow.revision == first.record.revision
            assert len(await next_events(other, 5)) == 5
        with store.watch("/", after=first.record.revision, backlog=3) as again:
            assert [thing_number(event.record.data) for event in await next_events(again, 4)] == [1, 2, 3, 4]


async def test_large_commit_is_no_slowness_of_the_reader() -> None:
    async with Store() as store:
        with store.watch("/", after=1, backlog=3) as watch:
            await store.commit(*[StoreWrite(f"/{number}", thing_body(number), 0) for number in range(10)])
            assert len(await anext(watch)) == 10
            await put_thing(store, "/a")
            assert len(await anext(watch)) == 1


async def test_watch_without_a_limit_keeps_everything() -> None:
    async with Store() as store:
        with store.watch("/", after=1) as watch:
            for start in range(0, 30_000, 10_000):
                numbers = range(start, start + 10_000)
                await store.commit(*[StoreWrite(f"/{number}", thing_body(number), 0) for number in numbers])
            assert [thing_number(event.record.data) for event in await anext(watch)] == list(range(30_000))


async def test_cancelled_wait_loses_nothing() -> None:
    async with Store() as store, asyncio.TaskGroup() as group:
        with store.watch("/", after=1) as watch:
            reading = group.create_task(anext(watch))
            await settle()
            await put_thing(store, "/a", 1)  # wakes the reader, which is cancelled before it runs
            reading.cancel()
            await settle()
            assert reading.cancelled()
            assert [thing_number(event.record.data) for event in await next_events(watch, 1)] == [1]


async def test_closing_the_store_ends_watches_after_pending_changes() -> None:
    async with asyncio.TaskGroup() as group:
        async with Store() as store:
            behind, idle = store.watch("/", after=1), store.watch("/b", after=1)
            waiting = group.create_task(all_of(idle))
            await put_thing(store, "/a")
            await settle()
        assert await waiting == 0
        assert await all_of(behind) == 1


async def test_closed_watch_gets_nothing_more() -> None:
    async with Store() as store:
        with store.watch("/", after=1) as watch:
            pass
        await put_thing(store, "/a")
        assert await all_of(watch) == 0
        watch.close()


async def all_of(watch: StoreWatch) -> int:
    return len([event async for events in watch for event in events])


async def test_pending_changes_are_taken_without_waiting_until_the_watch_ends() -> None:
    async with Store() as store:
        watch = store.watch("/", after=store.revision)
        assert watch.pending() == ()
        await put_thing(store, "/a", 1)
        await put_thing(store, "/a", 2)
        assert [thing_number(event.record.data) for event in watch.pending() or ()] == [1, 2]
        assert watch.pending() == ()
        store.end_watches()
        assert watch.pending() is None


async def test_a_watch_with_too_many_pending_changes_has_ended() -> None:
    async with Store() as store:
        watch = store.watch("/", after=store.revision, backlog=1)
        await put_thing(store, "/a", 1)
        await put_thing(store, "/a", 2)
        assert watch.pending() is None
