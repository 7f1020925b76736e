"""How many requests at once a server is sent: as many as help, whatever it is that limits it."""

import pytest

from gangline.kube.transport.raw.crowd import FORGETS, LEAST, QUEUE, Crowd


def most(crowd: Crowd, wanted: int = 32) -> int:
    """How many would be under way if so many are wanted."""
    return next(number for number in range(wanted + 1) if number == wanted or crowd.is_enough(number))


def served(cores: int, seconds: float, distance: float = 0.0, wanted: int = 32) -> int:
    """How many are under way, in the end, at a server that answers so many at once, each in so many seconds."""
    crowd, now, under_way = Crowd(), 0.0, 1
    for _ in range(500):
        took = distance + seconds * max(1, under_way / cores)
        now += took / under_way
        crowd.answered(took, now)
        under_way = min(under_way + 1, most(crowd, wanted))
    return under_way


def test_an_unknown_server_gets_a_few() -> None:
    assert most(Crowd()) == LEAST


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_a_server_gets_what_it_answers_at_once_and_a_short_queue(cores: int) -> None:
    assert cores + QUEUE / 2 <= served(cores, 0.002) <= cores + 2 * QUEUE


@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_a_server_that_is_never_busy_gets_all(seconds: float) -> None:
    assert served(64, seconds) == 32


def test_a_server_far_away_gets_all() -> None:
    assert served(2, 0.001, distance=0.2) == 32


def test_there_are_always_some_under_way() -> None:
    crowd = Crowd()
    crowd.answered(0.001, 0.0)
    for number in range(1000):
        crowd.answered(60.0, float(number % 20))
    assert most(crowd) >= LEAST


def test_one_quick_answer_is_forgotten_in_time() -> None:
    crowd = Crowd()
    crowd.answered(0.001, 0.0)
    for number in range(100):
        crowd.answered(0.1, number * 0.1)
    assert most(crowd) < 2 * QUEUE
    crowd.answered(0.1, FORGETS + 1)
    assert most(crowd) == 32
