"""The first failing rank from what kubelets report: the second of each end, and log lines with finer times."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.jobs.plan.failures.ends import ReplicaEnd
from gangline.jobs.plan.failures.first import first_end
from support.failing_teams.plans import random_plan

START = datetime(2026, 1, 1, tzinfo=UTC)
TEAMS, MAX_RANKS = 1000, 6
MIN_RIGHT = 0.98
EXIT_SECONDS = {"exception": 0.03, "exit": 0.03, "oom": 0.2}
"""How long a program takes from its last words to its end."""


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def line(seconds: float, text: str) -> str:
    return f"{at(seconds).isoformat().replace('+00:00', 'Z')} {text}"


def end(rank: int, ended: float, *log: str, code: int = 1, reason: str = "Error") -> ReplicaEnd:
    """The end of a rank as a kubelet reports it."""
    replica = "master-0" if rank == 0 else f"worker-{rank - 1}"
    return ReplicaEnd(replica, code, reason=reason, ended_at=at(int(ended)), log=log, rank=rank)


def last_lines(how: dict[str, Any], seconds: float) -> list[str]:
    """What a rank writes when it fails, as tests/support/failing_teams/program.py does."""
    words = how["words"]
    if how["how"] != "exception":
        return [line(seconds, words)] if words else []
    name = f"__main__.{how['type']}" if how["type"] == "Gone" else how["type"]
    source = ('  File "/team/program.py", line 70, in fail', '    raise ERRORS[how["type"]](how["words"])')
    texts = ("Traceback (most recent call last):", *source, f"{name}: {words}" if words else name)
    return [line(seconds, text) for text in texts]


def simulated_ends(plan: dict[str, Any], dice: random.Random) -> list[ReplicaEnd]:
    """How the ranks of a team end: the first one in a random moment of a second, its peers when they notice that."""
    begin = 100 + dice.random()
    first = plan["ranks"][plan["cause"]]
    over = begin + EXIT_SECONDS.get(first["how"], 0.001) + dice.uniform(0, 0.05)
    ends = []
    for rank, how in enumerate(plan["ranks"]):
        failed, ended = begin, over
        if rank != plan["cause"]:
            failed = (over if plan["notice"] == "end" else begin) + dice.uniform(0.001, 0.02) + how["delay"]
            ended = failed + EXIT_SECONDS.get(how["how"], 0.001) + dice.uniform(0, 0.05)
        steps = [line(begin - dice.uniform(0.05, 0.3), f"step {step} of rank {rank}") for step in range(plan["steps"])]
        code = {"exception": 1, "signal": 128 + how["code"], "oom": 137}.get(how["how"], how["code"])
        reason = "OOMKilled" if how["how"] == "oom" else "Error"
        ends.append(end(rank, ended, *steps, *last_lines(how, failed), code=code, reason=reason))
    return ends


def test_the_first_failing_rank_of_random_teams_is_right_in_nearly_all() -> None:
    wrong = []
    for seed in range(TEAMS):
        plan = random_plan(seed, MAX_RANKS, silent_peers=False)
        found = first_end(simulated_ends(plan, random.Random(seed)))
        assert found is not None
        if found.index != plan["cause"]:
            wrong.append(seed)
            assert not found.order_known, plan
    assert len(wrong) <= TEAMS * (1 - MIN_RIGHT), wrong


def test_words_that_are_unlike_the_other_lines_tell_when_a_program_ended() -> None:
    ends = [
        end(0, 7.4, line(7.3, "step 4"), line(7.4, "what a pity"), code=2),
        end(1, 7.2, line(7.1, "step 4"), line(7.2, "bad sample 17"), code=2),
        end(2, 7.6, line(7.1, "step 4"), line(7.6, "what a pity"), code=2),
    ]
    found = first_end(ends)
    assert found is not None
    assert (found.index, found.order_known) == (1, True)


def test_last_words_count_although_the_end_was_noticed_late() -> None:
    """On a busy machine a process takes a while to end, and its runtime to notice it."""
    ends = [
        end(0, 8.1, line(7.8, "step 4"), line(8.1, "what a pity")),
        end(1, 8.2, line(7.8, "step 4"), line(7.9, "bad sample 17")),
    ]
    for exact in (True, False):
        found = first_end([msgspec.structs.replace(one, is_exact=exact) for one in ends])
        assert found is not None
        assert found.index == 1


def test_a_last_line_that_was_written_long_before_tells_nothing() -> None:
    ends = [end(0, 7.4, line(1, "training begins")), end(1, 7.2, line(7.3, "what a pity"))]
    found = first_end(ends)
    assert found is not None
    assert not found.order_known


@pytest.mark.parametrize(("written", "first"), [(7.3, 2), (7.02, 0)])
def test_a_silent_end_is_the_first_one_if_its_second_leaves_time_for_it(written: float, first: int) -> None:
    """Who ended in silence had to do so before the others complained."""
    ends = [
        end(0, 7.5, line(6.9, "step 4"), line(written, "bad sample 17")),
        end(1, 7.6, line(6.9, "step 4"), line(written + 0.2, "zonk")),
        end(2, 7.0, line(6.9, "step 4"), code=1),
    ]
    found = first_end(ends)
    assert found is not None
    assert (found.index, found.order_known) == (first, False)


def test_an_error_of_the_program_beats_a_silent_end_in_the_same_second() -> None:
    bug = ("Traceback (most recent call last):", '  File "train.py", line 3, in step', "    x()", "KeyError: 'label'")
    ends = [end(0, 7.0, line(6.9, "step 4"), code=5), end(1, 7.8, *(line(7.8, text) for text in bug))]
    found = first_end(ends)
    assert found is not None
    assert (found.index, found.order_known) == (1, True)


@pytest.mark.parametrize(("error", "first"), [("RuntimeError: giving up", 1), ("KeyError: 'label'", 0)])
def test_a_crash_that_is_noticed_late_comes_before_what_may_follow_from_it(error: str, first: int) -> None:
    """An error that only the program itself can make does not follow from a crash."""
    texts = ("Traceback (most recent call last):", '  File "train.py", line 3, in step', "    x()", error)
    ends = [end(0, 7.1, *(line(6.7, text) for text in texts)), end(1, 7.0, code=139)]
    found = first_end(ends)
    assert found is not None
    assert (found.index, found.order_known) == (first, True)
