"""A clock that tests move by hand."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class FakeTimer:
    """A callback that is due at some time."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class FakeClock:
    """A `Clock` that stands still until `advance`. Wall time and monotonic time move together."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._timers: list[tuple[timedelta, int, FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (self._elapsed + max(delay, timedelta()), next(self._order), timer))
        return timer

    async def sleep(self, duration: timedelta) -> None:
        if duration <= timedelta():
            await asyncio.sleep(0)
            return
        due = asyncio.get_running_loop().create_future()
        timer = self.call_later(duration, lambda: None if due.done() else due.set_result(None))
        try:
            await due
        finally:
            timer.cancel()

    @property
    def waiting(self) -> int:
        """The number of pending timers: with it a test can wait until code sleeps."""
        return sum(timer.pending for _, _, timer in self._timers)

    async def advance(self, duration: timedelta) -> None:
        """Move time forward: fire the timers that are due in order, and let tasks run after each."""
        target = self._elapsed + duration
        await settle()
        while self._timers and self._timers[0][0] <= target:
            due, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, due)
            timer.fire()
            await settle()
        self._elapsed = target
        await settle()

    def skip(self, duration: timedelta) -> None:
        """Move time, also backwards, without firing timers: for code that only reads the clock."""
        self._elapsed += duration

    def jump(self, duration: timedelta) -> None:
        """Move the wall clock alone, as NTP or a suspended laptop does."""
        self._start += duration


async def settle(rounds: int = 20) -> None:
    """Let every runnable task run until it waits for something other than the loop."""
    # The callbacks that asyncio's own loops have ready; on any other loop all rounds are run.
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    idle = 0
    for _ in range(rounds):
        await asyncio.sleep(0)
        # One more round when none is ready: the loop polls sockets before each round.
        idle = idle + 1 if ready is not None and not ready else 0
        if idle == 2:
            return
