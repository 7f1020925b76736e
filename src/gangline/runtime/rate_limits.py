"""Rate limiters: retry delays per key and overall, and a gate for requests.

The numbers of `default_retry_limiter` are those of client-go's default controller limiter. A retry limiter starts no task
and no timer; it only computes delays.
"""

import asyncio
import math
from collections.abc import Hashable
from datetime import timedelta
from typing import Protocol

from gangline.base.clock import Clock

_MICROSECOND = timedelta(microseconds=1)

MAX_RETRY_DELAY = timedelta(seconds=1000)
"""The longest delay between two attempts, as in client-go."""


class RetryLimiter(Protocol):
    """Computes how long a key must wait before its next attempt. Not thread-safe."""

    def delay(self, key: Hashable) -> timedelta:
        """How long the key must wait from now; never negative. Each call counts as an attempt."""
        ...

    def forget(self, key: Hashable) -> None:
        """Reset the key after a success. Idempotent."""
        ...

    def attempts(self, key: Hashable) -> int:
        """How often `delay` was called for this key since it was last forgotten."""
        ...


class ExponentialBackoff:
    """Per key: `base`, then twice as long each time, never more than `ceiling`.

    Stores one number per key that was not forgotten.
    """

    def __init__(self, base: timedelta = timedelta(milliseconds=5), ceiling: timedelta = MAX_RETRY_DELAY) -> None:
        if not timedelta() < base <= ceiling:
            raise ValueError(f"want 0 < base <= ceiling, got base={base}, ceiling={ceiling}")
        self._base = base // _MICROSECOND
        self._ceiling = ceiling // _MICROSECOND
        # base * 2**max_exponent exceeds the ceiling, so no larger power is computed, whatever the count.
        self._max_exponent = (self._ceiling // self._base).bit_length()
        self._attempts: dict[Hashable, int] = {}

    def delay(self, key: Hashable) -> timedelta:
        attempts = self._attempts.get(key, 0)
        self._attempts[key] = attempts + 1
        return timedelta(microseconds=min(self._base << min(attempts, self._max_exponent), self._ceiling))

    def forget(self, key: Hashable) -> None:
        self._attempts.pop(key, None)

    def attempts(self, key: Hashable) -> int:
        return self._attempts.get(key, 0)


class TokenBucket:
    """For all keys together: `burst` attempts at once, then `rate` per second.

    An attempt that finds the bucket empty reserves a later token, so the delays of further attempts grow. A full bucket has
    `burst` tokens; it starts full. Stores nothing per key.
    """

    def __init__(self, clock: Clock, *, rate: float = 10.0, burst: int = 100) -> None:
        if not (0 < rate < math.inf and burst >= 1):
            raise ValueError(f"want a positive, finite rate and a burst of one or more, got {rate=}, {burst=}")
        self._clock = clock
        # Whole nanoseconds: sums of floats would drift, and a wait of 0.1 s might end one rounding error early.
        self._interval = math.ceil(1e9 / rate)
        self._capacity = burst * self._interval
        # When the bucket will be full again without further attempts. Tokens now = burst - (this - now) * rate.
        self._full_at = self._now()

    def delay(self, key: Hashable = None) -> timedelta:
        """Take a token, or reserve a later one. Returns how long until it is available."""
        wait = self.ready_in()
        self._full_at = max(self._full_at, self._now()) + self._interval
        return wait

    def ready_in(self) -> timedelta:
        """How long an attempt would have to wait now. Takes no token."""
        wait = max(self._full_at, self._now()) + self._interval - self._capacity - self._now()
        # Rounded up to microseconds, the resolution of timedelta: never too early.
        return timedelta(microseconds=max(0, -(-wait // 1000)))

    def forget(self, key: Hashable) -> None:
        """Does nothing: tokens are not returned."""

    def attempts(self, key: Hashable) -> int:
        return 0

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1e9)


class MaxOfLimiters:
    """The longest delay of several limiters. Each of them counts every attempt."""

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
    """The limiter of a controller: per key 5 ms, doubled up to 1000 s; overall 10 retries per second, 100 at once."""
    return MaxOfLimiters(ExponentialBackoff(ceiling=ceiling), TokenBucket(clock))


class RateLimiter:
    """Lets callers pass: at most `burst` at once, then `rate` per second, first come, first served."""

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        self._clock = clock
        self._bucket = TokenBucket(clock, rate=rate, burst=burst)
        # Only the first caller in line reads the bucket. It takes its token when it passes, never in advance, so there is
        # no reservation to undo when a waiting caller is cancelled.
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the caller may pass. Cancel-safe: a cancelled caller takes no token."""
        async with self._lock:
            while (wait := self._bucket.ready_in()) > timedelta():
                await self._clock.sleep(wait)
            self._bucket.delay()
