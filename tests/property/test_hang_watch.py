"""The watch over random teams: one that moves never stalls, one that stands is found in time, and nothing is forgotten."""

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.health.settings import WatchSettings
from support.health.teams import (
    COMPILES,
    DOWNLOADS,
    EVALUATES,
    FILE_LOCK,
    LOCKED,
    ONE_LONG_CALL,
    READS,
    SAVES,
    SERVES,
    SLEEPS,
    SPINS,
    TRAINS,
    WAITS,
    Doing,
    Team,
    every,
    in_turn,
    play,
    then,
)

SETTINGS = WatchSettings()
MOVING = st.sampled_from([TRAINS, EVALUATES, DOWNLOADS])
RESTING = st.sampled_from([WAITS, SPINS, READS, LOCKED, SLEEPS, ONE_LONG_CALL, COMPILES, SAVES, SERVES])
TIMES = st.lists(st.integers(1, 40), max_size=200).map(lambda gaps: [float(at) for at in accumulate(gaps)])


@settings(max_examples=20)
@given(
    moving=MOVING,
    phases=st.lists(st.tuples(RESTING, st.integers(1, 50)), max_size=6),
    other=RESTING,
    steps=TIMES,
    lines=TIMES,
    suspended=st.lists(st.integers(50, 1500), max_size=2),
)
def test_a_team_of_which_one_moves_between_short_rests_never_stalls(
    moving: Doing,
    phases: list[tuple[Doing, int]],
    other: Doing,
    steps: list[float],
    lines: list[float],
    suspended: list[int],
) -> None:
    """However little it reports: nobody stands for half a minute."""
    busy = in_turn((moving, 30), *((doing, float(min(seconds, 8))) for doing, seconds in phases[:3]))
    team = Team(
        {"worker-0": busy, "worker-1": lambda t: other},
        steps,
        lines,
        tuple(range(at, at + 400) for at in suspended),
    )
    assert play(team, 1500, SETTINGS).stalls == []


@settings(max_examples=20)
@given(
    first=st.integers(40, 400),
    parts=st.integers(3, 40),
    waiting=st.sampled_from([WAITS, SPINS]),
    standing=st.sampled_from([WAITS, LOCKED, READS, FILE_LOCK, SLEEPS]),
    dribbles=st.booleans(),
    ranks=st.integers(2, 5),
)
def test_a_team_in_which_all_stand_is_found_in_time(
    first: int, parts: int, waiting: Doing, standing: Doing, dribbles: bool, ranks: int
) -> None:
    lives = {f"worker-{number}": then((TRAINS, first), last=waiting) for number in range(ranks - 1)}
    lives["worker-9"] = then((TRAINS, first), last=standing)
    gap = first / parts
    steps = every(gap, first)
    played = play(Team(lives, steps, every(4) if dribbles else ()), first + 600, SETTINGS)
    assert len(played.stalls) == 1
    at, reason, _, replicas = played.stalls[0]
    usual = max(SETTINGS.floor, SETTINGS.factor * (gap + SETTINGS.period))
    assert first - gap <= at <= first + usual + 60
    assert (reason, replicas) == (("AllRanksWait", ()) if standing == WAITS else ("RankStands", ("worker-9",)))


@settings(max_examples=20)
@given(
    lives=st.lists(st.tuples(RESTING | MOVING, st.integers(1, 600)), min_size=1, max_size=8), steps=TIMES, lines=TIMES
)
def test_every_look_is_followed_by_another(
    lives: list[tuple[Doing, int]], steps: list[float], lines: list[float]
) -> None:
    life = then(*((doing, float(seconds)) for doing, seconds in lives), last=TRAINS)
    state = play(Team({"worker-0": life}, steps, lines), 1500, SETTINGS).state
    assert 1500 - 5 <= state.next_at <= 1500 + max(SETTINGS.floor, SETTINGS.longest_calm)
