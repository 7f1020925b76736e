import asyncio
from datetime import timedelta

import pytest

from gangline.runtime.rate_limits import (
    ExponentialBackoff,
    MaxOfLimiters,
    RateLimiter,
    RetryLimiter,
    TokenBucket,
    default_retry_limiter,
)
from gangline.testing.clock import FakeClock, settle

MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def test_exponential_doubles_from_base_to_ceiling() -> None:
    limiter = ExponentialBackoff(base=5 * MS, ceiling=30 * MS)
    assert [limiter.delay("a") for _ in range(5)] == [5 * MS, 10 * MS, 20 * MS, 30 * MS, 30 * MS]


def test_exponential_counts_each_key_by_itself() -> None:
    limiter = ExponentialBackoff()
    limiter.delay("a")
    limiter.delay("a")
    assert limiter.delay("b") == 5 * MS
    assert (limiter.attempts("a"), limiter.attempts("b"), limiter.attempts("c")) == (2, 1, 0)


def test_exponential_starts_over_after_forget_and_keeps_nothing() -> None:
    limiter = ExponentialBackoff()
    for key in range(100):
        limiter.delay(key)
        limiter.delay(key)
        limiter.forget(key)
        limiter.forget(key)
    assert limiter._attempts == {}
    assert limiter.delay(7) == 5 * MS


@pytest.mark.parametrize("ceiling", [SECOND, timedelta.max])
def test_exponential_survives_any_number_of_attempts(ceiling: timedelta) -> None:
    limiter = ExponentialBackoff(base=timedelta.resolution, ceiling=ceiling)
    limiter._attempts["a"] = 10**18
    assert limiter.delay("a") == ceiling
    assert limiter.attempts("a") == 10**18 + 1


@pytest.mark.parametrize(("base", "ceiling"), [(0 * MS, SECOND), (-MS, SECOND), (SECOND, MS)])
def test_exponential_refuses_nonsense(base: timedelta, ceiling: timedelta) -> None:
    with pytest.raises(ValueError, match="base"):
        ExponentialBackoff(base, ceiling)


def test_bucket_lets_a_burst_pass_then_spaces_by_rate() -> None:
    bucket = TokenBucket(FakeClock(), rate=10, burst=3)
    assert [bucket.delay("any") for _ in range(6)] == [0 * MS, 0 * MS, 0 * MS, 100 * MS, 200 * MS, 300 * MS]


async def test_bucket_refills_with_time_up_to_its_burst() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, rate=10, burst=2)
    for _ in range(4):
        bucket.delay("any")
    await clock.advance(250 * MS)
    assert bucket.delay("any") == 50 * MS
    await clock.advance(timedelta(hours=1))
    assert [bucket.delay("any") for _ in range(3)] == [0 * MS, 0 * MS, 100 * MS]


def test_bucket_looks_without_taking() -> None:
    bucket = TokenBucket(FakeClock(), rate=10, burst=1)
    assert bucket.ready_in() == bucket.ready_in() == 0 * MS
    bucket.delay("any")
    assert bucket.ready_in() == bucket.ready_in() == 100 * MS


def test_bucket_rounds_a_delay_up_never_down() -> None:
    bucket = TokenBucket(FakeClock(), rate=3, burst=1)
    bucket.delay("any")
    assert bucket.delay("any") == timedelta(microseconds=333334)


def test_bucket_keeps_spent_tokens_spent_on_forget() -> None:
    bucket = TokenBucket(FakeClock(), rate=10, burst=1)
    bucket.delay("a")
    bucket.forget("a")
    assert bucket.delay("a") == 100 * MS
    assert bucket.attempts("a") == 0


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (float("inf"), 1), (float("nan"), 1), (1, 0)])
def test_bucket_refuses_nonsense(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(FakeClock(), rate=rate, burst=burst)


def test_max_of_asks_all_and_answers_the_longest() -> None:
    slow, fast = ExponentialBackoff(base=SECOND), ExponentialBackoff(base=MS)
    limiter = MaxOfLimiters(fast, slow)
    assert limiter.delay("a") == SECOND
    assert (slow.attempts("a"), fast.attempts("a"), limiter.attempts("a")) == (1, 1, 1)
    limiter.forget("a")
    assert (slow.attempts("a"), fast.attempts("a"), limiter.attempts("a")) == (0, 0, 0)


def test_max_of_nothing_never_waits() -> None:
    assert MaxOfLimiters().delay("a") == 0 * MS
    assert MaxOfLimiters().attempts("a") == 0


def test_default_limiter_has_the_numbers_of_client_go() -> None:
    limiter: RetryLimiter = default_retry_limiter(FakeClock())
    assert [limiter.delay("a") for _ in range(3)] == [5 * MS, 10 * MS, 20 * MS]
    for _ in range(97):
        limiter.delay("a")
    assert limiter.delay("a") == timedelta(seconds=1000)
    assert limiter.delay("b") == 200 * MS, "the 102nd attempt is two tokens in debt"


class Gate:
    """Callers of a rate limiter, and when each of them passed."""

    def __init__(self, *, rate: float, burst: int) -> None:
        self.clock = FakeClock()
        self.limit = RateLimiter(self.clock, rate=rate, burst=burst)
        self.passed: list[tuple[str, float]] = []

    async def call(self, name: str) -> None:
        await self.limit.wait()
        self.passed.append((name, self.clock.monotonic()))


async def test_rate_limit_lets_callers_pass_in_order_at_the_rate() -> None:
    gate = Gate(rate=10, burst=2)
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(gate.call(name))
        await gate.clock.advance(SECOND)
    assert gate.passed == [("a", 0.0), ("b", 0.0), ("c", 0.1), ("d", 0.2)]


async def test_rate_limit_never_waits_below_its_burst() -> None:
    gate = Gate(rate=1, burst=5)
    for name in "abcde":
        await gate.call(name)
    assert len(gate.passed) == 5


async def test_cancelled_caller_uses_up_no_token() -> None:
    gate = Gate(rate=10, burst=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(gate.call("a"))
        sleeping = group.create_task(gate.call("b"))
        in_line = group.create_task(gate.call("c"))
        group.create_task(gate.call("d"))
        await gate.clock.advance(50 * MS)
        sleeping.cancel()
        in_line.cancel()
        await settle()
        await gate.clock.advance(SECOND)
    assert gate.passed == [("a", 0.0), ("d", 0.1)]
    assert gate.clock.waiting == 0


def test_a_controller_may_have_a_lower_ceiling() -> None:
    limiter = default_retry_limiter(FakeClock(), timedelta(minutes=1))
    delays = [limiter.delay("key") for _ in range(30)]
    assert delays[:2] == [timedelta(milliseconds=5), timedelta(milliseconds=10)]
    assert max(delays) == delays[-1] == timedelta(minutes=1)
