"""The number of concurrent requests: as many as help, whatever limits the server."""

import pytest

from gangline.kube.transport.raw.pool import (
    BASELINE_RESET_SECONDS,
    MAX_SERVER_QUEUE,
    MIN_CONCURRENCY,
    ConcurrencyEstimate,
)


def most(crowd: ConcurrencyEstimate, wanted: int = 32) -> int:
    """The number of requests in flight if `wanted` are waiting."""
    return next(number for number in range(wanted + 1) if number == wanted or crowd.is_saturated(number))


def served(cores: int, seconds: float, distance: float = 0.0, wanted: int = 32) -> int:
    """The final number of requests in flight at a server with limited concurrency and response time."""
    crowd, now, under_way = ConcurrencyEstimate(), 0.0, 1
    for _ in range(500):
        took = distance + seconds * max(1, under_way / cores)
        now += took / under_way
        crowd.observe(took, now)
        under_way = min(under_way + 1, most(crowd, wanted))
    return under_way


def test_an_unknown_server_gets_a_few() -> None:
    assert most(ConcurrencyEstimate()) == MIN_CONCURRENCY


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_a_server_gets_what_it_answers_at_once_and_a_short_queue(cores: int) -> None:
    assert cores + MAX_SERVER_QUEUE / 2 <= served(cores, 0.002) <= cores + 2 * MAX_SERVER_QUEUE


@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_a_server_that_is_never_busy_gets_all(seconds: float) -> None:
    assert served(64, seconds) == 32


def test_a_server_far_away_gets_all() -> None:
    assert served(2, 0.001, distance=0.2) == 32


def test_there_are_always_some_under_way() -> None:
    crowd = ConcurrencyEstimate()
    crowd.observe(0.001, 0.0)
    for number in range(1000):
        crowd.observe(60.0, float(number % 20))
    assert most(crowd) >= MIN_CONCURRENCY


def test_one_quick_answer_is_forgotten_in_time() -> None:
    crowd = ConcurrencyEstimate()
    crowd.observe(0.001, 0.0)
    for number in range(100):
        crowd.observe(0.1, number * 0.1)
    assert most(crowd) < 2 * MAX_SERVER_QUEUE
    crowd.observe(0.1, BASELINE_RESET_SECONDS + 1)
    assert most(crowd) == 32
