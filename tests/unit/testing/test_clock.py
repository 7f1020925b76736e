import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

from gangline.base.clock import Clock
from gangline.testing.clock import FakeClock, settle

SECOND = timedelta(seconds=1)


async def test_time_stands_still_until_advanced() -> None:
    clock: Clock = FakeClock()
    before = clock.now(), clock.monotonic()
    await settle()
    assert (clock.now(), clock.monotonic()) == before


async def test_wall_and_steady_time_advance_together() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    await clock.advance(90 * SECOND)
    assert clock.now() == datetime(2026, 5, 1, 0, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 90.0


async def test_jump_moves_the_wall_clock_alone_and_wakes_nobody() -> None:
    clock = FakeClock()
    start = clock.now()
    fired: list[str] = []
    clock.call_later(SECOND, lambda: fired.append("alarm"))
    clock.jump(timedelta(hours=-1))
    await settle()
    assert clock.now() == start - timedelta(hours=1)
    assert clock.monotonic() == 0.0
    assert fired == []


async def test_callbacks_fire_in_order_of_due_time_then_of_arrangement() -> None:
    clock = FakeClock()
    fired: list[tuple[str, float]] = []

    def ring(name: str) -> None:
        fired.append((name, clock.monotonic()))

    for name, delay in (("late", 3), ("first", 1), ("second", 1)):
        clock.call_later(delay * SECOND, partial(ring, name))
    await clock.advance(5 * SECOND)
    assert fired == [("first", 1.0), ("second", 1.0), ("late", 3.0)]
    assert clock.monotonic() == 5.0


async def test_callback_not_due_yet_does_not_fire() -> None:
    clock = FakeClock()
    fired: list[float] = []
    clock.call_later(SECOND, lambda: fired.append(clock.monotonic()))
    await clock.advance(SECOND - timedelta.resolution)
    assert fired == []
    await clock.advance(timedelta.resolution)
    assert fired == [1.0]


async def test_callback_arranged_by_a_callback_fires_within_the_same_advance() -> None:
    clock = FakeClock()
    fired: list[float] = []

    def ring() -> None:
        fired.append(clock.monotonic())
        if len(fired) < 3:
            clock.call_later(SECOND, ring)

    clock.call_later(SECOND, ring)
    await clock.advance(10 * SECOND)
    assert fired == [1.0, 2.0, 3.0]


async def test_cancelled_callback_never_fires_and_cancelling_again_is_harmless() -> None:
    clock = FakeClock()
    fired: list[str] = []
    kept = clock.call_later(SECOND, lambda: fired.append("kept"))
    dropped = clock.call_later(SECOND, lambda: fired.append("dropped"))
    dropped.cancel()
    dropped.cancel()
    assert clock.waiting == 1
    await clock.advance(SECOND)
    kept.cancel()
    assert fired == ["kept"]
    assert clock.waiting == 0


async def test_negative_delay_is_due_at_once() -> None:
    clock = FakeClock()
    fired: list[float] = []
    clock.call_later(-SECOND, lambda: fired.append(clock.monotonic()))
    await clock.advance(timedelta())
    assert fired == [0.0]


async def test_sleepers_wake_at_their_own_time_during_one_advance() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: int) -> None:
        await clock.sleep(seconds * SECOND)
        woken.append((name, clock.monotonic()))
        await clock.sleep(seconds * SECOND)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("a", 2))
        group.create_task(sleeper("b", 3))
        await clock.advance(10 * SECOND)
    assert woken == [("a", 2.0), ("b", 3.0), ("a", 4.0), ("b", 6.0)]


async def test_sleep_of_zero_yields_once_and_needs_no_advance() -> None:
    clock = FakeClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        await clock.sleep(timedelta())
        order.append("me")
    assert order == ["other", "me"]


async def test_cancelled_sleeper_leaves_no_timer() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(SECOND))
        await settle()
        assert clock.waiting == 1
        task.cancel()
    assert clock.waiting == 0
    await clock.advance(2 * SECOND)


async def test_waiting_tells_when_code_has_reached_its_sleep() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(SECOND))
        assert clock.waiting == 0
        await settle()
        assert clock.waiting == 1
        await clock.advance(SECOND)
    assert clock.waiting == 0
