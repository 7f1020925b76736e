"""Structured concurrency on top of `asyncio.TaskGroup`: the few shapes the house needs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Never, TypeVar

from gangline.base.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")


async def run_all(work: Iterable[Awaitable[object]], *, at_once: int = 32) -> None:
    """Await all of it, at most `at_once` at a time; every item is tried even if others fail.

    Raises an `ExceptionGroup` of all failures, or the failure itself when there is one. Cancelling this call
    cancels what is in flight and starts nothing more.
    """
    gate = asyncio.Semaphore(at_once)
    failures: list[Exception] = []

    async def one(item: Awaitable[object]) -> None:
        async with gate:
            try:
                await item
            except Exception as error:  # noqa: BLE001 - collected and raised below
                failures.append(error)

    items = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
    finally:
        _close_coroutines(items)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} actions failed", failures)


async def for_each(items: Iterable[T], act: Callable[[T], Awaitable[object]], *, at_once: int = 32) -> None:
    """Do it with each of them, in order, at most `at_once` at a time. The first error ends it, and is raised.

    What was not begun when it ends, or is cancelled, was never made: there is nothing to close.
    """
    left = iter(items)

    async def work() -> None:
        for item in left:
            await act(item)

    with unwrap_exception_group():
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


async def slow_start(
    work: Iterable[Awaitable[object]], *, first: int = 1, at_once: Callable[[], int] | int = 32
) -> None:
    """Await all of it, `first` of it at first and one more at a time with every success; after a failure begin no more.

    So of a thousand calls that all must fail (a quota, a bad template) nearly none but the first are made. `at_once`
    may change meanwhile, if it is asked for. What was never begun is closed. Raises as `run_all` does.
    """
    left = iter(work)
    begun: list[Awaitable[object]] = []
    failures: list[Exception] = []
    room, running = first, 0

    async def one(item: Awaitable[object], group: asyncio.TaskGroup) -> None:
        nonlocal room, running
        try:
            await item
        except Exception as error:  # noqa: BLE001 - collected and raised below
            failures.append(error)
            return
        finally:
            running -= 1
        room += 1
        begin(group)

    def begin(group: asyncio.TaskGroup) -> None:
        nonlocal room, running
        room = min(room, max(at_once() if callable(at_once) else at_once, 1))
        while running < room and not failures:
            item = next(left, None)
            if item is None:
                return
            running += 1
            begun.append(item)
            group.create_task(one(item, group))

    try:
        async with asyncio.TaskGroup() as group:
            begin(group)
    finally:
        _close_coroutines([*begun, *left])
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} actions failed", failures)


def _close_coroutines(items: Iterable[Awaitable[object]]) -> None:
    """End what was never begun: a task that is cancelled before its first step leaves its work untouched."""
    for item in items:
        if isinstance(item, Coroutine):
            item.close()


async def run_every(period: timedelta, action: Callable[[], Awaitable[object]], clock: Clock) -> Never:
    """Run `action`, wait `period` after it ended, for ever. An error ends the loop."""
    while True:
        await action()
        await clock.sleep(period)


async def supervise(work: Coroutine[Any, Any, object], what: str) -> None:
    """Run work whose bug must not take its siblings down: an error is logged, not raised."""
    try:
        await work
    except Exception:
        log.exception("supervised work failed", extra={"work": what})


async def run_until_first(*work: Coroutine[Any, Any, object]) -> None:
    """Run all until one returns, then cancel and await the others. An error of any is raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in work]
        _, unfinished = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in unfinished:
            task.cancel()


@asynccontextmanager
async def time_limit(duration: timedelta, clock: Clock) -> AsyncIterator[None]:
    """`asyncio.timeout` by a clock: cancels the block after `duration` and raises `TimeoutError`."""
    async with asyncio.timeout(None) as limit:
        timer = clock.call_later(duration, lambda: limit.reschedule(0.0))
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def unwrap_exception_group() -> Iterator[None]:
    """Raise the one error in an `ExceptionGroup` (however deep) as itself; a group of several stays a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


@asynccontextmanager
async def background_tasks(*work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run these while the block runs, and no longer. An error of theirs ends the block, and is raised as a group.

    Unlike with a bare TaskGroup an error of the block stays as it is, and the block may be the `yield` of a generator
    that is left early.
    """
    left: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        try:
            yield
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - raised again below
            left = error
        finally:
            for task in tasks:
                task.cancel()
    if left is not None:
        raise left
