import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from gangline.runtime.rate_limits import ExponentialBackoff
from gangline.runtime.work_queue import QueueClosed, WorkQueue
from gangline.testing.clock import FakeClock, settle

SECOND = timedelta(seconds=1)


class Bench:
    """A queue, its clock, and workers that record their leases and hold them until released."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(ExponentialBackoff(SECOND, 8 * SECOND), self.clock, name="jobs")
        self.leased: list[str] = []
        self.finish: dict[str, asyncio.Event] = {}

    async def work(self) -> None:
        """Lease a key and hold it until `finish`."""
        async with self.queue.lease() as key:
            self.leased.append(key)
            done = self.finish[key] = asyncio.Event()
            await done.wait()

    async def next_key(self) -> str:
        """Lease a key and release it at once."""
        async with self.queue.lease() as key:
            return key


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_keys_are_leased_in_the_order_they_were_added(bench: Bench) -> None:
    for key in "bac":
        bench.queue.add(key)
    assert [await bench.next_key() for _ in range(3)] == ["b", "a", "c"]


async def test_key_added_many_times_waits_once(bench: Bench) -> None:
    for key in "aabaab":
        bench.queue.add(key)
    assert len(bench.queue) == 2
    assert [await bench.next_key() for _ in range(2)] == ["a", "b"]
    assert len(bench.queue) == 0


async def test_key_added_while_leased_comes_back_once_after_the_lease(bench: Bench) -> None:
    queue = bench.queue
    queue.add("a")
    async with queue.lease() as key:
        queue.add(key)
        queue.add(key)
        assert len(queue) == 0, "a leased key may not be taken by a second worker"
    assert len(queue) == 1
    assert await bench.next_key() == "a"
    assert len(queue) == 0


async def test_key_that_comes_back_queues_behind_the_others(bench: Bench) -> None:
    bench.queue.add("a")
    async with bench.queue.lease() as key:
        bench.queue.add(key)
        bench.queue.add("b")
    assert [await bench.next_key() for _ in range(2)] == ["b", "a"]


async def test_waiting_worker_is_woken_by_an_add(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.next_key())
        await settle()
        assert not task.done()
        bench.queue.add("a")
    assert task.result() == "a"


async def test_error_inside_the_lease_releases_the_key_and_is_raised(bench: Bench) -> None:
    bench.queue.add("a")
    with pytest.raises(ZeroDivisionError):
        async with bench.queue.lease():
            raise ZeroDivisionError
    bench.queue.add("a")
    assert await bench.next_key() == "a"


async def test_cancelled_work_releases_its_key(bench: Bench) -> None:
    bench.queue.add("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.work())
        await settle()
        bench.queue.add("a")
        task.cancel()
    assert await bench.next_key() == "a"


async def test_worker_cancelled_while_waiting_loses_no_key(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.next_key())
        await settle()
        task.cancel()
    bench.queue.add("a")
    assert await bench.next_key() == "a"


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_worker_cancelled_as_it_is_woken_passes_the_key_on(bench: Bench, cancel_first: bool) -> None:
    async with asyncio.TaskGroup() as group:
        hit = group.create_task(bench.next_key())
        await settle()
        other = group.create_task(bench.next_key())
        await settle()
        steps: list[Callable[[], object]] = [hit.cancel, lambda: bench.queue.add("a")]
        for step in steps if cancel_first else reversed(steps):
            step()
    assert hit.cancelled()
    assert other.result() == "a"


async def test_worker_that_gives_up_again_and_again_leaves_nothing_behind(bench: Bench) -> None:
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(bench.next_key())
            await settle()
            task.cancel()
    assert len(bench.queue._idle_workers) == 0


async def test_delayed_key_appears_at_its_time_and_not_before(bench: Bench) -> None:
    bench.queue.add("a", after=10 * SECOND)
    await bench.clock.advance(10 * SECOND - timedelta.resolution)
    assert len(bench.queue) == 0
    await bench.clock.advance(timedelta.resolution)
    assert await bench.next_key() == "a"


@pytest.mark.parametrize("delays", [(5, 10), (10, 5)])
async def test_earliest_of_two_delays_counts_and_only_once(bench: Bench, delays: tuple[int, int]) -> None:
    for delay in delays:
        bench.queue.add("a", after=delay * SECOND)
    assert bench.clock.waiting == 1
    await bench.clock.advance(5 * SECOND)
    assert await bench.next_key() == "a"
    await bench.clock.advance(60 * SECOND)
    assert len(bench.queue) == 0


async def test_immediate_add_keeps_the_delayed_one(bench: Bench) -> None:
    bench.queue.add("a", after=10 * SECOND)
    bench.queue.add("a")
    assert await bench.next_key() == "a"
    await bench.clock.advance(10 * SECOND)
    assert await bench.next_key() == "a"


async def test_delay_that_ends_during_the_lease_brings_the_key_back(bench: Bench) -> None:
    bench.queue.add("a")
    async with bench.queue.lease() as key:
        bench.queue.add(key, after=SECOND)
        await bench.clock.advance(SECOND)
        assert len(bench.queue) == 0
    assert await bench.next_key() == "a"


async def test_retry_waits_longer_each_time_until_forgotten(bench: Bench) -> None:
    for delay in (1, 2, 4):
        bench.queue.retry("a")
        await bench.clock.advance(delay * SECOND - timedelta.resolution)
        assert len(bench.queue) == 0
        await bench.clock.advance(timedelta.resolution)
        assert await bench.next_key() == "a"
    assert bench.queue.attempts("a") == 3
    bench.queue.forget("a")
    assert bench.queue.attempts("a") == 0
    bench.queue.retry("a")
    await bench.clock.advance(SECOND)
    assert await bench.next_key() == "a"


async def test_forget_leaves_a_pending_retry_in_place(bench: Bench) -> None:
    bench.queue.retry("a")
    bench.queue.forget("a")
    await bench.clock.advance(SECOND)
    assert await bench.next_key() == "a"


async def test_close_drops_what_waits_and_ends_every_lease_call(bench: Bench) -> None:
    queue = bench.queue
    results: list[str] = []

    async def worker() -> None:
        try:
            await bench.next_key()
        except QueueClosed as error:
            results.append(str(error))

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(worker())
        await settle()
        queue.add("later", after=SECOND)
        queue.close()
    assert results == ["queue 'jobs' is closed"] * 2
    queue.add("a")
    queue.add("a", after=SECOND)
    queue.retry("a")
    queue.close()
    assert (len(queue), bench.clock.waiting, queue.attempts("a")) == (0, 0, 0)
    with pytest.raises(QueueClosed):
        await bench.next_key()


async def test_close_with_drain_leases_what_waits_first(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.add("b")
    bench.queue.close(drain=True)
    bench.queue.add("c")
    assert [await bench.next_key() for _ in range(2)] == ["a", "b"]
    with pytest.raises(QueueClosed):
        await bench.next_key()


async def test_drain_waits_for_a_key_that_comes_back(bench: Bench) -> None:
    queue = bench.queue
    queue.add("a")
    async with asyncio.TaskGroup() as group, queue.lease() as key:
        queue.add(key)
        queue.close(drain=True)
        last = group.create_task(bench.next_key())
        await settle()
        assert not last.done()
    assert last.result() == "a"


async def test_drain_ends_other_workers_when_the_last_key_is_done(bench: Bench) -> None:
    bench.queue.add("a")
    closed: list[str] = []

    async def run(name: str) -> None:
        try:
            while True:
                await bench.work()
        except QueueClosed:
            closed.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(run("busy"))
        await settle()
        bench.queue.add("a")
        bench.queue.close(drain=True)
        group.create_task(run("spare"))
        group.create_task(run("spare"))
        await settle()
        assert closed == []
        bench.finish["a"].set()
        await settle()
        bench.finish["a"].set()
    assert sorted(closed) == ["busy", "spare", "spare"]
    assert bench.leased == ["a", "a"]


async def test_close_after_drain_drops_the_rest(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.close(drain=True)
    bench.queue.close()
    with pytest.raises(QueueClosed):
        await bench.next_key()
    await bench.queue.wait_until_idle()


async def test_close_does_not_disturb_a_lease_but_its_key_does_not_come_back(bench: Bench) -> None:
    bench.queue.add("a")
    async with bench.queue.lease() as key:
        bench.queue.add(key)
        bench.queue.close()
    with pytest.raises(QueueClosed):
        await bench.next_key()


async def test_idle_waits_for_waiting_and_leased_keys_but_not_for_delayed_ones(bench: Bench) -> None:
    await bench.queue.wait_until_idle()
    bench.queue.add("delayed", after=SECOND)
    await bench.queue.wait_until_idle()
    bench.queue.add("a")
    async with asyncio.TaskGroup() as group:
        idle = group.create_task(bench.queue.wait_until_idle())
        await settle()
        assert not idle.done(), "a key is waiting"
        group.create_task(bench.work())
        await settle()
        assert not idle.done(), "a key is leased"
        bench.queue.add("a")
        bench.finish["a"].set()
        await settle()
        assert not idle.done(), "the key came back"
        assert await bench.next_key() == "a"
        await settle()
        assert idle.done()


async def test_idle_looks_again_when_work_arrives_as_it_is_woken(bench: Bench) -> None:
    bench.queue.add("a")
    async with asyncio.TaskGroup() as group:
        idle = group.create_task(bench.queue.wait_until_idle())
        await settle()
        await bench.next_key()
        bench.queue.add("b")
        await settle()
        assert not idle.done()
        await bench.next_key()


async def test_ages_of_leases_are_told(bench: Bench) -> None:
    queue = bench.queue
    assert (queue.oldest_lease_seconds(), queue.unfinished_seconds()) == (0.0, 0.0)
    queue.add("a")
    queue.add("b")
    async with queue.lease():
        await bench.clock.advance(3 * SECOND)
        async with queue.lease():
            await bench.clock.advance(SECOND)
            assert (queue.oldest_lease_seconds(), queue.unfinished_seconds()) == (4.0, 5.0)
    assert (queue.oldest_lease_seconds(), queue.unfinished_seconds()) == (0.0, 0.0)


class Tape:
    """Queue metrics that are recorded."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_add(self, depth: int) -> None:
        self.calls.append(("added", depth))

    def on_lease(self, waited_seconds: float, depth: int) -> None:
        self.calls.append(("leased", waited_seconds, depth))

    def on_release(self, worked_seconds: float) -> None:
        self.calls.append(("released", worked_seconds))

    def on_retry(self) -> None:
        self.calls.append(("retried",))


async def test_metrics_tell_the_story_of_each_key() -> None:
    clock, tape = FakeClock(), Tape()
    queue: WorkQueue[str] = WorkQueue(ExponentialBackoff(SECOND), clock, metrics=tape)
    queue.add("a")
    queue.add("a")
    await clock.advance(2 * SECOND)
    async with queue.lease() as key:
        queue.add(key)
        await clock.advance(3 * SECOND)
    async with queue.lease() as key:
        queue.retry(key)
    await clock.advance(SECOND)
    assert tape.calls == [
        ("added", 1),
        ("leased", 2.0, 0),
        ("added", 1),
        ("released", 3.0),
        ("leased", 3.0, 0),
        ("retried",),
        ("released", 0.0),
        ("added", 1),
    ]


def test_queue_can_be_built_and_filled_without_a_loop() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialBackoff(), FakeClock(), name="jobs")
    queue.add("a")
    queue.add("b", after=SECOND)
    assert repr(queue) == "<WorkQueue 'jobs': 1 waiting, 0 leased, 1 delayed>"
