"""Structured concurrency on top of `asyncio.TaskGroup`: groups of calls, loops, time limits, background tasks."""

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
    """Await all items, at most `at_once` at a time; every item is awaited even if others fail.

    Raises an `ExceptionGroup` of all failures, or the failure itself if there is only one. Cancelling this call
    cancels the items in flight and starts no others.
    """
    slots = asyncio.Semaphore(at_once)
    failures: list[Exception] = []

    async def run_item(item: Awaitable[object]) -> None:
        async with slots:
            try:
                await item
            except Exception as error:  # noqa: BLE001 - collected and raised below
                failures.append(error)

    items = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(run_item(item))
    finally:
        _close_coroutines(items)
    _raise_failures(failures)


async def for_each(items: Iterable[T], act: Callable[[T], Awaitable[object]], *, at_once: int = 32) -> None:
    """Call `act` with each item, in order, at most `at_once` at a time. The first error stops all calls and is raised.

    Coroutines are created only when a call begins, so none is left over when it stops early.
    """
    remaining = iter(items)

    async def work() -> None:
        for item in remaining:
            await act(item)

    with unwrap_exception_group():
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


async def slow_start(
    work: Iterable[Awaitable[object]], *, first: int = 1, at_once: Callable[[], int] | int = 32
) -> None:
    """Await all items: `first` at once, then one more at a time with every success. After a failure no more are begun.

    So of a thousand calls that would all fail (a quota, a bad template) only the first few are made. `at_once` may be
    a function, which is called before every start. Items that were not begun are closed. Raises as `run_all` does.
    """
    remaining = iter(work)
    begun: list[Awaitable[object]] = []
    failures: list[Exception] = []
    limit, running = first, 0

    async def run_item(item: Awaitable[object], group: asyncio.TaskGroup) -> None:
        nonlocal limit, running
        try:
            await item
        except Exception as error:  # noqa: BLE001 - collected and raised below
            failures.append(error)
            return
        finally:
            running -= 1
        limit += 1
        begin(group)

    def begin(group: asyncio.TaskGroup) -> None:
        nonlocal limit, running
        limit = min(limit, max(at_once() if callable(at_once) else at_once, 1))
        while running < limit and not failures:
            item = next(remaining, None)
            if item is None:
                return
            running += 1
            begun.append(item)
            group.create_task(run_item(item, group))

    try:
        async with asyncio.TaskGroup() as group:
            begin(group)
    finally:
        _close_coroutines([*begun, *remaining])
    _raise_failures(failures)


def _raise_failures(failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} actions failed", failures)


def _close_coroutines(items: Iterable[Awaitable[object]]) -> None:
    """Close coroutines that were never awaited: a task cancelled before its first step leaves its coroutine unstarted."""
    for item in items:
        if isinstance(item, Coroutine):
            item.close()


async def run_every(period: timedelta, action: Callable[[], Awaitable[object]], clock: Clock) -> Never:
    """Run `action` for ever, and wait for `period` after each run. An error ends the loop."""
    while True:
        await action()
        await clock.sleep(period)


async def supervise(work: Coroutine[Any, Any, object], what: str) -> None:
    """Run work whose errors must not cancel its siblings: an error is logged, not raised."""
    try:
        await work
    except Exception:
        log.exception("supervised work failed", extra={"work": what})


async def run_until_first(*work: Coroutine[Any, Any, object]) -> None:
    """Run all until one returns, then cancel and await the others. Errors are raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in work]
        _, unfinished = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in unfinished:
            task.cancel()


@asynccontextmanager
async def time_limit(duration: timedelta, clock: Clock) -> AsyncIterator[None]:
    """`asyncio.timeout` with a `Clock`: cancels the block after `duration` and raises `TimeoutError`."""
    async with asyncio.timeout(None) as limit:
        timer = clock.call_later(duration, lambda: limit.reschedule(0.0))
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def unwrap_exception_group() -> Iterator[None]:
    """Raise the only error in an `ExceptionGroup` (nested or not) as itself; a group of several stays a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


@asynccontextmanager
async def background_tasks(*work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run coroutines while the block runs, and cancel them at its end. If one fails, the block is cancelled.

    An error of a coroutine is raised as an `ExceptionGroup`; an error of the block is raised as it is, unlike with a
    bare TaskGroup. The block may be the `yield` of a generator that is closed early.
    """
    block_error: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in work]
        try:
            yield
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - raised again below
            block_error = error
        finally:
            for task in tasks:
                task.cancel()
    if block_error is not None:
        raise block_error
