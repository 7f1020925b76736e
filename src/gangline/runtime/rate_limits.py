"""How long to wait before trying again: per key, overall, and the longest of several.

The numbers of `default_retry_limiter` are those of client-go's default controller limiter, so operators moved here
back off as they did before. Nothing here starts a task or a timer; a limiter only answers questions.
"""

import asyncio
import math
from collections.abc import Hashable
from datetime import timedelta
from typing import Protocol

from gangline.base.clock import Clock

_MICROSECOND = timedelta(microseconds=1)

MAX_RETRY_DELAY = timedelta(seconds=1000)
"""The longest pause between two tries, as client-go has it."""


class RetryLimiter(Protocol):
    """Tells how long a key must wait before its next attempt. Not thread-safe."""

    def delay(self, key: Hashable) -> timedelta:
        """How long this key must wait, from now. Asking counts as an attempt; never negative."""
        ...

    def forget(self, key: Hashable) -> None:
        """The key is fine again: drop all that is remembered of it. Idempotent."""
        ...

    def attempts(self, key: Hashable) -> int:
        """How often `delay` was asked for this key since it was last forgotten."""
        ...


class ExponentialBackoff:
    """Per key: `base`, then twice as long each time, never more than `ceiling`.

    Memory: one number per key that has failed and was not forgotten.
    """

    def __init__(self, base: timedelta = timedelta(milliseconds=5), ceiling: timedelta = MAX_RETRY_DELAY) -> None:
        if not timedelta() < base <= ceiling:
            raise ValueError(f"want 0 < base <= ceiling, got base={base}, ceiling={ceiling}")
        self._base = base // _MICROSECOND
        self._ceiling = ceiling // _MICROSECOND
        # base * 2**enough exceeds the ceiling: no larger power is ever computed, whatever the count.
        self._max_exponent = (self._ceiling // self._base).bit_length()
        self._attempts: dict[Hashable, int] = {}

    def delay(self, key: Hashable) -> timedelta:
        before = self._attempts.get(key, 0)
        self._attempts[key] = before + 1
        return timedelta(microseconds=min(self._base << min(before, self._max_exponent), self._ceiling))

    def forget(self, key: Hashable) -> None:
        self._attempts.pop(key, None)

    def attempts(self, key: Hashable) -> int:
        return self._attempts.get(key, 0)


class TokenBucket:
    """Overall, whatever the key: `burst` attempts at once, then `rate` per second.

    An attempt that finds the bucket empty reserves a later token, so delays grow with the debt and the attempts
    that follow queue behind it. A full bucket holds `burst`; it starts full. Remembers nothing of single keys.
    """

    def __init__(self, clock: Clock, *, rate: float = 10.0, burst: int = 100) -> None:
        if not (0 < rate < math.inf and burst >= 1):
            raise ValueError(f"want a positive, finite rate and a burst of one or more, got {rate=}, {burst=}")
        self._clock = clock
        # Whole nanoseconds: sums of floats would drift, and a wait of 0.1 s would end one rounding error early.
        self._interval = math.ceil(1e9 / rate)
        self._capacity = burst * self._interval
        # When the bucket will be full again if nobody asks. The whole state: tokens now = burst - (this - now) * rate.
        self._full_at = self._now()

    def delay(self, key: Hashable = None) -> timedelta:
        """Take a token, on credit if need be, and tell when it is covered."""
        wait = self.ready_in()
        self._full_at = max(self._full_at, self._now()) + self._interval
        return wait

    def ready_in(self) -> timedelta:
        """How long an attempt made now would wait. Takes nothing."""
        short = max(self._full_at, self._now()) + self._interval - self._capacity - self._now()
        # Up to the next microsecond, the finest a timedelta tells: never early.
        return timedelta(microseconds=max(0, -(-short // 1000)))

    def forget(self, key: Hashable) -> None:
        """Nothing to forget: a spent token stays spent."""

    def attempts(self, key: Hashable) -> int:
        return 0

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1e9)


class MaxOfLimiters:
    """The longest delay of all. Every limiter is asked every time, so each one counts every attempt."""

    def __init__(self, *limiters: RetryLimiter) -> None:
        self._limiters = limiters

    def delay(self, key: Hashable) -> timedelta:
        return max((limiter.delay(key) for limiter in self._limiters), default=timedelta())

    def forget(self, key: Hashable) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def attempts(self, key: Hashable) -> int:
        return max((limiter.attempts(key) for limiter in self._limiters), default=0)


def default_retry_limiter(clock: Clock, ceiling: timedelta = MAX_RETRY_DELAY) -> RetryLimiter:
    """For one controller: 5 ms doubling to 1000 s per key, and 10 retries a second (100 at once) overall."""
    return MaxOfLimiters(ExponentialBackoff(ceiling=ceiling), TokenBucket(clock))


class RateLimiter:
    """A gate in front of a server: at most `burst` at once and `rate` per second pass, first come first served."""

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        self._clock = clock
        self._bucket = TokenBucket(clock, rate=rate, burst=burst)
        # Only the first in line looks at the bucket. A token is taken when its owner leaves, never in advance:
        # a caller cancelled in line took none, and there is no reservation to undo.
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the caller may go. Cancel-safe: a cancelled caller uses up nothing."""
        async with self._lock:
            while (left := self._bucket.ready_in()) > timedelta():
                await self._clock.sleep(left)
            self._bucket.delay()
