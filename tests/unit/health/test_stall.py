"""The watch over a job in simulated time: what is a hang and is found, what is health and is left alone."""

from typing import Any

import pytest

from gangline.health.evidence import RankActivity, TeamSample, team_evidence
from gangline.health.settings import WatchSettings
from gangline.health.signs import ObservedTime
from gangline.health.stall import Look, duration_words
from support.builders.stacks import all_reduce, process, rank
from support.health.teams import (
    ALL_REDUCE,
    COMPILES,
    COMPILES_IN_A_COMMAND,
    DOWNLOADS,
    EVALUATES,
    FILE_LOCK,
    IN_TENSORFLOW,
    LISTENS,
    LOCKED,
    ONE_LONG_CALL,
    READS,
    RECEIVES,
    RECEIVES_NOTHING,
    SAVES,
    SAVES_BY_NAME,
    SERVES,
    SLEEPS,
    SPINS,
    STANDS_IN_SOCKET,
    STOPPED,
    TRAINS,
    WAITS,
    Doing,
    Team,
    always,
    every,
    in_turn,
    play,
    then,
)

HOUR = 3600
BACKWARD_IN_COLLECTIVES = in_turn((TRAINS, 3), (SPINS, 7))
"""A team whose network is slow: most of the time it is seen in a collective."""


def pair(first: Any, second: Any = None) -> dict[str, Any]:
    return {"worker-0": first, "worker-1": second or first}


HEALTHY = {
    "it trains and reports steps": Team(pair(always(TRAINS)), steps=every(2)),
    "a slow compile at the start, one call of half an hour": Team(
        pair(then((COMPILES, 1800), last=TRAINS)), steps=every(1, start=1800), lines=[1, 2]
    ),
    "rank 0 compiles, the other waits": Team(
        pair(then((COMPILES, 1500), last=TRAINS), then((WAITS, 1500), last=TRAINS)), steps=every(5, start=1500)
    ),
    "rank 0 compiles by a command, the other waits for a lock on a file": Team(
        pair(then((COMPILES_IN_A_COMMAND, 500), last=TRAINS), then((FILE_LOCK, 500), last=TRAINS)),
        steps=every(5, start=500),
        lines=[1, 2],
    ),
    "rank 0 computes in one call, the other waits for its bytes": Team(
        pair(then((ONE_LONG_CALL, 500), last=TRAINS), then((RECEIVES_NOTHING, 500), last=TRAINS)),
        steps=every(5, start=500),
        lines=[1, 2],
    ),
    "silent steps of 5 minutes, each one call": Team(pair(always(ONE_LONG_CALL)), steps=every(300)),
    "silent steps of 5 minutes that somebody plays by sleeping": Team(pair(always(SLEEPS)), steps=every(300)),
    "steps of 5 minutes that are only logged": Team(pair(always(ONE_LONG_CALL)), lines=every(300)),
    "a long checkpoint of rank 0": Team(
        pair(in_turn((TRAINS, 300), (SAVES, 240)), in_turn((TRAINS, 300), (WAITS, 240))),
        steps=[t for t in every(1) if t % 540 < 300],
    ),
    "a long checkpoint that only its function's name gives away": Team(
        pair(then((TRAINS, 200), (SAVES_BY_NAME, 240), last=TRAINS), then((TRAINS, 200), (WAITS, 240), last=TRAINS)),
        steps=[t for t in every(1) if not 200 < t < 440],
    ),
    "a long pause that only the last log line explains": Team(
        pair(then((TRAINS, 200), (SLEEPS, 240), last=TRAINS), then((TRAINS, 200), (WAITS, 240), last=TRAINS)),
        steps=[t for t in every(1) if not 200 < t < 440],
        last_line="saving the model, please wait",
    ),
    "an evaluation of 50 minutes on rank 0": Team(
        pair(then((TRAINS, 600), (EVALUATES, 3000), last=TRAINS), then((TRAINS, 600), (SPINS, 3000), last=TRAINS)),
        steps=[t for t in every(1) if not 600 < t < 3600],
    ),
    "a download at the start": Team(
        pair(then((DOWNLOADS, 1200), last=TRAINS), then((WAITS, 1200), last=TRAINS)), steps=every(1, start=1200)
    ),
    "a download so slow that hardly any CPU is used": Team(
        pair(then((RECEIVES, 1200), last=TRAINS), then((WAITS, 1200), last=TRAINS)), steps=every(1, start=1200)
    ),
    "quiet parameter servers": Team(
        {"ps-0": always(SERVES), "ps-1": always(SERVES), "worker-0": always(TRAINS)}, steps=every(20)
    ),
    "a parameter server alone": Team({"ps-0": always(SERVES)}),
    "it says nothing at all and computes": Team(pair(always(TRAINS))),
    "it says nothing at all and computes in one call": Team(pair(always(ONE_LONG_CALL))),
    "most of its time is in a collective, and it says nothing": Team(pair(BACKWARD_IN_COLLECTIVES)),
    "a suspended laptop": Team(pair(always(TRAINS)), steps=every(10), suspended=(range(100, 9000), range(9100, 12000))),
    "a suspended laptop, and nothing is said": Team(pair(in_turn((TRAINS, 9), (READS, 6))), suspended=(range(70, 5000),)),
    "all of it is stopped for an hour": Team(pair(then((TRAINS, 100), (STOPPED, HOUR), last=TRAINS)), steps=[5, 10, 15, 20]),
    "it waits for requests": Team({"worker-0": always(LISTENS)}, lines=[3.0]),
    "it does nothing but sleep": Team({"worker-0": always(SLEEPS)}),
    "it sleeps until there is something to do": Team({"worker-0": in_turn((SLEEPS, 1200), (TRAINS, 60))}),
}  # fmt: skip


RESTING = {
    "a parameter server alone",
    "it waits for requests",
    "it does nothing but sleep",
    "it sleeps until there is something to do",
}
"""Without stacks nobody can tell these from a hang."""


@pytest.mark.parametrize("name", HEALTHY)
def test_health_is_left_alone(name: str) -> None:
    assert play(HEALTHY[name], 3 * HOUR).stalls == []


@pytest.mark.parametrize("name", sorted(HEALTHY.keys() - RESTING))
@pytest.mark.parametrize("has_usage", [True, False])
def test_health_is_left_alone_without_stacks(name: str, has_usage: bool) -> None:
    assert play(HEALTHY[name], 2 * HOUR, has_stacks=False, has_usage=has_usage).stalls == []


HANGS = {
    "all wait": (Team(pair(then((TRAINS, 60), last=WAITS)), steps=every(1, 60)), "AllRanksWait", ()),
    "all spin": (Team(pair(then((TRAINS, 60), last=SPINS)), steps=every(1, 60)), "AllRanksWait", ()),
    "all wait, and only logs were written": (
        Team(pair(then((TRAINS, 60), last=WAITS)), lines=every(1, 60)),
        "AllRanksWait",
        (),
    ),
    "all wait from the start, without a word": (Team(pair(always(WAITS))), "AllRanksWait", ()),
    "one stands in a lock, the other waits": (
        Team(pair(then((TRAINS, 60), last=WAITS), then((TRAINS, 60), last=LOCKED)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "one reads data for ever, the other spins": (
        Team(pair(then((TRAINS, 60), last=SPINS), then((TRAINS, 60), last=READS)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "one sleeps for ever, the other waits": (
        Team(pair(then((TRAINS, 60), last=WAITS), then((TRAINS, 60), last=SLEEPS)), lines=every(2, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "one stands, and the library of the other hides that it waits": (
        Team(pair(then((TRAINS, 60), last=ONE_LONG_CALL), then((TRAINS, 60), last=LOCKED)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "one waits for bytes that never come": (
        Team(pair(then((TRAINS, 60), last=WAITS), then((TRAINS, 60), last=STANDS_IN_SOCKET)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "one stands, and the other is in an operation that does not end": (
        Team(pair(then((TRAINS, 60), last=IN_TENSORFLOW), then((TRAINS, 60), last=LOCKED)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "a parameter server is stopped": (
        Team(
            {"ps-0": then((SERVES, 60), last=STOPPED), **pair(then((TRAINS, 60), last=WAITS))}, steps=every(1, 60)
        ),
        "RankStands",
        ("ps-0",),
    ),
    "one is stopped, the other waits": (
        Team(pair(then((TRAINS, 60), last=WAITS), then((TRAINS, 60), last=STOPPED)), steps=every(1, 60)),
        "RankStands",
        ("worker-1",),
    ),
    "a file lock, one process": (Team({"worker-0": then((TRAINS, 20), last=FILE_LOCK)}, lines=[5, 15]), "NoProgress", ()),
    "it dribbles log lines while its steps stand still": (
        Team(pair(then((TRAINS, 60), last=WAITS)), steps=every(1, 60), lines=every(3)),
        "AllRanksWait",
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_found_within_two_minutes(name: str) -> None:
    team, reason, replicas = HANGS[name]
    began = max((*team.steps, *(team.lines if not team.steps else ()), 0))
    played = play(team, 600)
    assert len(played.stalls) == 1
    at, found, message, blamed = played.stalls[0]
    assert at - began <= 120
    assert (found, blamed) == (reason, replicas)
    assert message.startswith("no progress for ")
    assert played.recoveries == []


def test_one_rank_that_computes_for_ever_is_found_though_the_other_only_waits_for_bytes() -> None:
    lives = pair(then((TRAINS, 60), last=ONE_LONG_CALL), then((TRAINS, 60), last=RECEIVES_NOTHING))
    ((at, _, message, _),) = play(Team(lives, steps=every(1, 60)), HOUR).stalls
    assert 600 <= at - 60 <= 800
    assert "worker-1 (rank 1) waits for the network (train.py:10)" in message


def test_a_hang_says_who_stands_where() -> None:
    team, _, _ = HANGS["one stands in a lock, the other waits"]
    ((_, _, message, _),) = play(team, 600).stalls
    assert "worker-0 (rank 0) waits in all_reduce (train.py:10)" in message
    assert "worker-1 (rank 1) waits for a lock (train.py:10)" in message


@pytest.mark.parametrize(
    ("team", "after"),
    [
        # Nobody uses the CPU: five minutes.
        (HANGS["all wait"][0], 300),
        (HANGS["all wait, and only logs were written"][0], 300),
        # It may compute: an hour.
        (HANGS["all spin"][0], 3600),
    ],
)
def test_without_stacks_a_long_silence_is_needed(team: Team, after: int) -> None:
    ((at, reason, message, _),) = play(team, 4 * HOUR, has_stacks=False).stalls
    assert reason == "NoProgress"
    assert after <= at - 60 <= after + 150
    assert message.startswith(("no progress for ", "no log line for "))


def test_without_stacks_the_longest_gap_so_far_counts() -> None:
    steps = [*every(2, 600), 1200.0, *every(2, 1800, start=1200)]
    team = Team(pair(then((TRAINS, 1800), last=WAITS)), steps=steps)
    ((at, _, message, _),) = play(team, 6 * HOUR, has_stacks=False).stalls
    assert at >= 1800 + 10 * 600
    assert "(usually 10 min at most)" in message


def test_without_anything_but_logs_an_hour_is_needed() -> None:
    team = Team(pair(then((TRAINS, 900), last=WAITS)), lines=every(5, 900))
    ((at, _, _, _),) = play(team, 4 * HOUR, has_stacks=False, has_usage=False).stalls
    assert at - 900 >= HOUR
    # A program that logged nothing before cannot be told from one that computes.
    silent = Team(pair(always(WAITS)), lines=[1])
    assert play(silent, 4 * HOUR, has_stacks=False, has_usage=False).stalls == []


def test_one_sign_of_life_ends_the_stall() -> None:
    team = Team(pair(then((TRAINS, 60), (WAITS, 300), last=TRAINS)), steps=[*every(1, 60), *every(1, start=360)])
    played = play(team, 900)
    assert len(played.stalls) == 1
    ((at, text),) = played.recoveries
    assert at - 360 <= 40
    assert text == "it reports progress again"


def test_a_team_that_moves_without_a_word_ends_the_stall() -> None:
    team = Team(pair(then((TRAINS, 60), (WAITS, 300), last=TRAINS)), lines=every(1, 60))
    played = play(team, 1200)
    assert len(played.stalls) == 1
    ((at, text),) = played.recoveries
    assert at - 360 <= 60
    assert text == "its processes move again"


def test_log_lines_of_a_job_with_steps_do_not_end_its_stall() -> None:
    team, _, _ = HANGS["it dribbles log lines while its steps stand still"]
    assert play(team, HOUR).recoveries == []


def test_an_idle_job_that_computes_again_is_not_stalled_any_more() -> None:
    team = Team(pair(then((TRAINS, 60), (WAITS, 600), last=TRAINS)), lines=every(1, 60))
    played = play(team, 1200, has_stacks=False)
    assert [text for _, text in played.recoveries] == ["it uses the CPU again"]


def test_a_job_that_reports_steps_is_only_looked_at_in_the_cache() -> None:
    played = play(Team(pair(always(TRAINS)), steps=every(2)), HOUR)
    assert played.looks[Look.STACKS] == 0
    # Until it is known that it reports steps.
    assert played.looks[Look.SIGNS] <= 5
    assert 300 <= played.looks[Look.PROGRESS] <= 400


def test_stacks_of_a_silent_job_that_computes_are_read_ever_more_rarely() -> None:
    played = play(Team(pair(always(TRAINS))), HOUR)
    assert played.looks[Look.STACKS] <= 2 * HOUR / 120 + 12


def test_a_silent_job_that_stops_computing_is_looked_into_at_once() -> None:
    team = Team(pair(then((TRAINS, 3000), last=WAITS)))
    ((at, _, _, _),) = play(team, HOUR).stalls
    assert at - 3000 <= 60


def test_the_floor_can_be_set() -> None:
    team, _, _ = HANGS["all wait"]
    ((at, _, _, _),) = play(team, 600, WatchSettings(floor=10.0, period=2.0, sample_distance=2.0, confirm=6.0)).stalls
    assert at - 60 <= 25


def test_stacks_that_cannot_be_read_once_are_read_again() -> None:
    silent = play(Team(pair(always(WAITS))), 200, has_stacks=False)
    assert silent.looks[Look.STACKS] >= 1
    assert not silent.state.has_stacks
    assert play(Team(pair(always(WAITS))), 800, has_stacks=False).looks[Look.STACKS] >= 3


def test_a_replica_in_a_poll_loop_stands() -> None:
    """A library that polls is seen in another line of its loop each time."""
    polling = Doing(ALL_REDUCE, cores=0.03, moves=True)
    ((_, reason, _, _),) = play(Team(pair(then((TRAINS, 60), last=polling)), steps=every(1, 60)), 400).stalls
    assert reason == "AllRanksWait"


def test_observed_time_leaves_out_what_nobody_lived_through() -> None:
    time = ObservedTime(100.0, 5.0)
    assert time.advance(102.0) == 2.0
    assert time.advance(4000.0) == 7.0
    assert time.advance(3999.0) == 7.0
    assert time.advance(4000.5) == 8.5


@pytest.mark.parametrize(
    ("seconds", "text"), [(80.4, "80 s"), (119, "119 s"), (150, "2 min"), (7100, "118 min"), (7500, "2 h 5 min")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration_words(seconds) == text


def test_one_long_call_on_a_machine_with_too_much_to_do_is_no_hang() -> None:
    """It hardly gets the CPU, but wants to run."""
    starved = Doing(ONE_LONG_CALL.frames, cores=0.04, wants_cpu=True)
    assert play(Team(pair(then((TRAINS, 60), last=starved)), steps=every(1, 60)), 1500).stalls == []


def test_a_process_that_has_ended_is_no_sign_of_life() -> None:
    """The first process of a container leaves those that have ended as they are: each look would find a new one."""
    stands = process(all_reduce(), 1, parent=0)
    before = TeamSample(0.0, (rank(0, stands),))
    after = TeamSample(10.0, (rank(0, stands, process(pid=70, source="proc", state="Z")),))
    assert [one.activity for one in team_evidence(before, after)] == [RankActivity.WAITS]
    started = TeamSample(10.0, (rank(0, stands, process(pid=70, source="proc")),))
    assert [one.activity for one in team_evidence(before, started)] == [RankActivity.MOVES]
