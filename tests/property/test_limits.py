"""Limiters over all histories: monotone, capped, and never faster than they promise."""

import asyncio
import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gangline.runtime.rate_limits import ExponentialBackoff, MaxOfLimiters, RateLimiter, TokenBucket
from gangline.testing.clock import FakeClock

delays = st.timedeltas(timedelta.resolution, timedelta(days=365))
gaps = st.lists(st.integers(0, 3_000_000).map(lambda us: timedelta(microseconds=us)), min_size=1, max_size=40)
rates = st.floats(0.1, 5000, allow_nan=False)
bursts = st.integers(1, 10)


def assert_within_limit(granted: list[float], rate: float, burst: int) -> None:
    """Over every window between two grants. A grant is told to the microsecond: that much is forgiven."""
    for first, start in enumerate(granted):
        for last in range(first, len(granted)):
            window = granted[last] - start + 2e-6
            assert last - first + 1 <= rate * window + burst + 1e-6


@given(delays, delays, st.integers(1, 200))
def test_exponential_is_monotone_and_capped(one: timedelta, two: timedelta, attempts: int) -> None:
    base, ceiling = sorted((one, two))
    limiter = ExponentialBackoff(base, ceiling)
    waits = [limiter.delay("key") for _ in range(attempts)]
    assert waits == sorted(waits)
    assert waits[0] == base
    assert waits[-1] <= ceiling
    assert all(after == min(2 * before, ceiling) for before, after in itertools.pairwise(waits))
    assert limiter.attempts("key") == attempts


@given(rates, bursts, gaps)
def test_bucket_never_grants_more_than_rate_and_burst(rate: float, burst: int, pauses: list[timedelta]) -> None:
    async def run() -> list[float]:
        clock = FakeClock()
        bucket = TokenBucket(clock, rate=rate, burst=burst)
        granted = []
        for pause in pauses:
            await clock.advance(pause)
            granted.append(clock.monotonic() + bucket.delay("any").total_seconds())
        return granted

    granted = asyncio.run(run())
    assert granted == sorted(granted), "who asks later is not served earlier"
    assert_within_limit(granted, rate, burst)


@given(rates, bursts, st.integers(1, 30))
def test_bucket_wastes_nothing(rate: float, burst: int, asked: int) -> None:
    bucket = TokenBucket(FakeClock(), rate=rate, burst=burst)
    last = [bucket.delay("any") for _ in range(asked)][-1].total_seconds()
    assert last <= max(0, asked - burst) / rate + 2e-6


@given(rates, bursts, gaps, st.sets(st.integers(0, 39)))
def test_rate_limit_holds_with_callers_coming_and_giving_up(
    rate: float, burst: int, pauses: list[timedelta], fickle: set[int]
) -> None:
    async def run() -> list[float]:
        clock = FakeClock()
        limit = RateLimiter(clock, rate=rate, burst=burst)
        passed: list[float] = []

        async def call() -> None:
            await limit.wait()
            passed.append(clock.monotonic())

        async with asyncio.TaskGroup() as group:
            calls = []
            for index, pause in enumerate(pauses):
                calls.append(group.create_task(call()))
                await clock.advance(pause)
                if index in fickle:
                    calls[index].cancel()
            await clock.advance(timedelta(seconds=len(pauses) / rate + 1))
        assert len(passed) == sum(not task.cancelled() for task in calls)
        return passed

    assert_within_limit(asyncio.run(run()), rate, burst)


@given(
    st.lists(st.tuples(delays, st.sampled_from("abc")), max_size=5),
    st.lists(st.sampled_from("abc"), max_size=20),
)
def test_max_of_is_the_longest_and_everyone_counts(specs: list[tuple[timedelta, str]], asked: list[str]) -> None:
    ceiling = timedelta(days=400)
    together = MaxOfLimiters(*(ExponentialBackoff(base, ceiling) for base, _ in specs))
    alone = [ExponentialBackoff(base, ceiling) for base, _ in specs]
    for key in asked:
        longest = together.delay(key)
        single = [limiter.delay(key) for limiter in alone]
        assert all(longest >= delay for delay in single)
        assert longest in (single or [timedelta()])
        assert together.attempts(key) == max((limiter.attempts(key) for limiter in alone), default=0)
