import asyncio
from datetime import timedelta

import pytest

from gangline.base.tasks import time_limit, unwrapped
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
    with unwrapped():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", errors)])


def test_single_error_in_groups_is_raised_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        raise_group(ZeroDivisionError())


def test_several_errors_stay_together() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        raise_group(ZeroDivisionError(), OSError())
    assert len(caught.value.exceptions) == 2
