"""Time as an argument.

No module outside `base/` reads a clock directly (ruff bans it): code that needs the time takes a `Clock`, so tests
control time with `gangline.testing.clock.FakeClock` and never sleep.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Timer(Protocol):
    """A scheduled callback. Cancelling it twice, or after it ran, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock time, monotonic time and timers."""

    def now(self) -> datetime:
        """Wall-clock time as an aware datetime in UTC. It may jump; use it for timestamps that other machines read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease; use it for durations."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Wait. A duration of zero or less yields to the event loop once."""
        ...

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        """Schedule a callback on the running event loop."""
        ...


def seconds_since_boot() -> float:
    """As `Clock.monotonic`, and where the system can tell it runs on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


_shown_moment: ContextVar[datetime | None] = ContextVar("shown_moment", default=None)


@contextmanager
def frozen_time(moment: datetime) -> Iterator[None]:
    """Let the wall-clock time of every `SystemClock` stand still: for a command that shows a recorded moment.

    Ages and waiting times are then those of that moment. Durations and timers go on.
    """
    token = _shown_moment.set(moment)
    try:
        yield
    finally:
        _shown_moment.reset(token)


class SystemClock:
    """The machine's clock and the running event loop."""

    def now(self) -> datetime:
        return _shown_moment.get() or datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        # Imported here: asyncio takes long to import, and a command with one request needs no event loop.
        import asyncio

        await asyncio.sleep(max(0.0, duration.total_seconds()))

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        import asyncio

        return asyncio.get_running_loop().call_later(max(0.0, delay.total_seconds()), callback)


def time_with_zone(text: str) -> datetime | None:
    """The time that a text in ISO 8601 stands for; None if it is no time, or one without a zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
