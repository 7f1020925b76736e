"""Time as an argument.

Nothing outside `base/` reads a clock by itself (ruff bans it): code that waits or stamps takes a `Clock`, so
tests drive time with `gangline.testing.clock.FakeClock` and never sleep.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Timer(Protocol):
    """A callback that has been arranged. Cancelling twice, or after it fired, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time, steady time and waiting."""

    def now(self) -> datetime:
        """Wall time, aware, UTC. May jump; use it for what other machines read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; use it for durations."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Wait. Zero or less yields once."""
        ...

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        """Arrange a callback on the running loop."""
        ...


class SystemClock:
    """The machine's clock and the running event loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        # Imported here: a command that asks one question needs no event loop, and importing one takes long.
        import asyncio

        await asyncio.sleep(max(0.0, duration.total_seconds()))

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        import asyncio

        return asyncio.get_running_loop().call_later(max(0.0, delay.total_seconds()), callback)
