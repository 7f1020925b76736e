import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from gangline.base.tasks import for_each, run_all, slow_start, time_limit, unwrap_exception_group
from gangline.testing.clock import FakeClock, settle

SECOND = timedelta(seconds=1)


async def wait(limit: timedelta, clock: FakeClock) -> str:
    try:
        async with time_limit(limit, clock):
            await asyncio.Event().wait()
    except TimeoutError:
        return "too late"
    return "in time"


async def test_time_limit_follows_the_clock_it_was_given() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait(3 * SECOND, clock))
        await clock.advance(2.9 * SECOND)
        assert not task.done()
        await clock.advance(0.1 * SECOND)
        assert task.result() == "too late"


async def test_time_limit_leaves_nothing_behind_when_it_is_met() -> None:
    clock = FakeClock()
    async with time_limit(SECOND, clock):
        await settle()
    assert clock.waiting == 0
    await clock.advance(2 * SECOND)


async def test_inner_limit_does_not_swallow_the_outer_one() -> None:
    clock = FakeClock()

    async def nested() -> str:
        try:
            async with time_limit(SECOND, clock):
                return await wait(SECOND, clock)
        except TimeoutError:
            return "outer"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(nested())
        await clock.advance(SECOND)
    assert task.result() == "outer"


async def test_cancelling_is_not_a_timeout() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait(SECOND, clock))
        await settle()
        task.cancel()
    assert task.cancelled()


def raise_group(*errors: Exception) -> None:
    with unwrap_exception_group():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", errors)])


def test_single_error_in_groups_is_raised_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        raise_group(ZeroDivisionError())


def test_several_errors_stay_together() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        raise_group(ZeroDivisionError(), OSError())
    assert len(caught.value.exceptions) == 2


async def test_slow_start_makes_all_and_never_more_at_once_than_allowed() -> None:
    running, most, done = 0, 0, 0

    async def one() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1

    await slow_start((one() for _ in range(100)), at_once=8)
    assert (done, most) == (100, 8)


async def test_slow_start_begins_no_more_after_a_failure() -> None:
    begun: list[int] = []

    async def one(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        await slow_start([one(number) for number in range(100)])
    assert begun == [0]


async def test_slow_start_tells_all_failures_of_what_was_begun() -> None:
    async def one() -> None:
        await asyncio.sleep(0)
        raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        await slow_start([one() for _ in range(10)], first=3)
    assert len(caught.value.exceptions) == 3


@pytest.mark.parametrize("run", [run_all, slow_start])
async def test_work_cancelled_before_its_first_step_is_closed(
    run: Callable[[list[Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]],
) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    items = [work() for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(items))
        # One iteration: the tasks exist, and none has begun.
        await asyncio.sleep(0)
        running.cancel()
    assert all(inspect.getcoroutinestate(item) == inspect.CORO_CLOSED for item in items)


async def test_for_each_takes_so_many_at_a_time_and_in_order() -> None:
    seen: list[int] = []
    most = 0
    under_way = 0

    async def act(item: int) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        seen.append(item)
        await asyncio.sleep(0)
        under_way -= 1

    await for_each(range(10), act, at_once=3)
    assert seen == list(range(10))
    assert most == 3


async def test_the_first_error_ends_for_each() -> None:
    seen: list[int] = []

    async def act(item: int) -> None:
        seen.append(item)
        if item == 2:
            raise ValueError("two")

    with pytest.raises(ValueError, match="two"):
        await for_each(range(100), act, at_once=1)
    assert seen == [0, 1, 2]
