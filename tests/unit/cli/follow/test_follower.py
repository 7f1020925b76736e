"""What is gathered of a team while it runs, and how it is told in plain lines."""

import io
import re
from datetime import timedelta

import pytest

from gangline.api.kubeflow.tfjob import TFJOB
from gangline.cli.follow.follower import POINTS, TAIL, Team
from gangline.cli.follow.screen import Folding, Plain, choose
from gangline.cli.follow.view import Span, row, text
from gangline.cli.output.curve import Point
from gangline.cli.output.log_lines import tamed
from gangline.progress.line import Progress
from gangline.testing.builders import make_job, make_member
from gangline.testing.clock import FakeClock


def test_every_seat_is_there_before_its_pod_is() -> None:
    team = Team()
    team.job = make_job(TFJOB, "linear", ps=1, worker=2)
    team.pod("worker-1", make_member("Worker", 1))
    facts = team.facts(TFJOB, "linear", 3.0)
    assert [(seat.name, seat.pod is not None) for seat in facts.seats] == [
        ("ps-0", False),
        ("worker-0", False),
        ("worker-1", True),
    ]
    assert (facts.wanted, facts.state, facts.elapsed) == ({"PS": 1, "Worker": 2}, "Pending", 3.0)


def test_a_pod_beyond_the_seats_is_shown_as_long_as_it_is_there() -> None:
    team = Team()
    team.job = make_job(TFJOB, worker=1)
    team.pod("worker-1", make_member("Worker", 1))
    assert [seat.name for seat in team.facts(TFJOB, "job", 0).seats] == ["worker-0", "worker-1"]
    team.pod("worker-1", None)
    assert [seat.name for seat in team.facts(TFJOB, "job", 0).seats] == ["worker-0"]


def test_a_seat_remembers_who_sat_there() -> None:
    team = Team()
    team.job = make_job(TFJOB, worker=1)
    team.pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.pod("worker-0", None)
    team.pod("worker-0", make_member("Worker", uid="b"))
    assert team.facts(TFJOB, "job", 0).seats[0].history.restarts == 1
    assert team.failed() == {}


def test_that_a_member_failed_can_be_seen_for_a_while() -> None:
    team = Team()
    team.job = make_job(TFJOB, worker=1)
    team.pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.pod("worker-0", make_member("Worker", uid="b"))
    shown = [text(row(team.facts(TFJOB, "job", now).seats[0])).split()[1:3] for now in (5.1, 7.0, 7.2)]
    assert shown == [["◐", "restarted"], ["◐", "restarted"], ["●", "running"]]


def test_that_a_member_failed_is_seen_though_nothing_was_drawn_until_it_had_long_been_back() -> None:
    team = Team()
    team.job = make_job(TFJOB, worker=1)
    before = text(row(team.facts(TFJOB, "job", 5.0).seats[0]))
    team.pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.pod("worker-0", make_member("Worker", uid="b"))
    shown = text(row(team.facts(TFJOB, "job", 60.0).seats[0]))
    assert "waiting" in before
    assert re.search(r"◐ restarted +1 restart .*exit 137 \(SIGKILL\)", shown)


def test_members_that_are_down_at_the_end_are_known() -> None:
    team = Team()
    team.pod("worker-0", make_member("Worker", phase="Succeeded"))
    team.pod("worker-1", make_member("Worker", 1, phase="Failed", exit_code=3))
    team.pod("worker-2", make_member("Worker", 2, phase="Failed"))
    assert team.failed() == {"worker-1": 3, "worker-2": None}


def test_the_curve_is_that_of_the_loss_or_else_of_the_first_metric() -> None:
    team = Team()
    team.report("worker-0", Progress(1, 9))
    team.report("worker-0", Progress(2, 9, {"accuracy": 0.5, "loss": 3.0}))
    team.report("worker-1", Progress(2, 9, {"accuracy": 0.6}))
    assert (team.metric, team.curves) == ("loss", {"worker-0": [Point(2, 3.0)]})
    other = Team()
    other.report("worker-0", Progress(1, 9, {"reward": 7.0}))
    assert (other.metric, other.curves) == ("reward", {"worker-0": [Point(1, 7.0)]})


def test_a_long_curve_keeps_its_ends_and_stays_small() -> None:
    team = Team()
    for step in range(3 * POINTS):
        team.report("worker-0", Progress(step, None, {"loss": 1.0}))
    points = team.curves["worker-0"]
    assert len(points) <= POINTS
    assert (points[0].step, points[-1].step) == (0, 3 * POINTS - 1)


def test_of_a_members_lines_the_last_are_kept() -> None:
    team = Team()
    for at in range(100):
        team.line("worker-0", str(at))
    assert list(team.tails["worker-0"]) == [str(at) for at in range(100 - TAIL, 100)]


def test_a_line_said_again_and_again_is_said_once_and_counted() -> None:
    folding = Folding()
    said = [(member, line) for member, line in [("a", "x"), ("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")]]
    shown = [(member, told) for member, line in said for told in folding.add(member, line)]
    assert shown == [("a", "x"), ("b", "x"), ("a", "… repeated 2 times"), ("a", "y")]
    assert list(folding.add("b", "x")) == []
    assert list(folding.rest()) == [("b", "… repeated once")]
    assert list(folding.rest()) == []


def plain() -> tuple[Plain, io.StringIO, FakeClock]:
    stream, clock = io.StringIO(), FakeClock()
    return Plain(stream, clock), stream, clock


def test_plain_lines_are_one_per_change() -> None:
    screen, stream, _ = plain()
    with screen:
        screen.state("tfjob/linear", "Running")
        screen.pod("worker-0", "Running")
        screen.log("worker-0", "hello")
        screen.say((Span("warning: ", "yellow"), Span("careful")))
    assert (
        stream.getvalue()
        == "tfjob/linear  Running\n  worker-0   running\nworker-0| hello\nwarning: careful\n"
    )


def test_plain_progress_is_told_once_per_quarter() -> None:
    screen, stream, _ = plain()
    for step in range(1, 401):
        screen.progress("worker-0", Progress(step, 400))
    assert stream.getvalue().splitlines() == [
        "  worker-0   step 1/400  0 %",
        "  worker-0   step 100/400  25 %",
        "  worker-0   step 200/400  50 %",
        "  worker-0   step 300/400  75 %",
        "  worker-0   step 400/400  100 %",
    ]


async def test_plain_progress_without_a_total_is_told_now_and_then() -> None:
    screen, stream, clock = plain()
    for step in range(25):
        screen.progress("worker-0", Progress(step))
        await clock.advance(timedelta(seconds=1))
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["0", "10", "20"]


def test_what_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(choose(io.StringIO(), FakeClock()), Plain)


def test_a_terminal_that_cannot_draw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Teletype(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose(Teletype(), FakeClock()), Plain)


@pytest.mark.parametrize(
    ("line", "coloured", "shown"),
    [
        ("plain ● text", True, "plain ● text"),
        ("a\tb", True, "a\tb"),
        ("\x1b[31mred\x1b[0m", True, "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[31mred\x1b[0m", False, "red"),
        ("10 %\r50 %\r100 %", True, "100 %"),
        ("done\r", True, "done"),
        ("\x1b[2J\x1b[H\x1b[1Agone", True, "gone"),
        ("\x1b]0;title\x07text\x1bc\x1b", True, "text"),
        ("bell\x07\x08\x9b", True, "bell"),
    ],
)
def test_a_program_may_colour_its_lines_and_give_no_other_orders(
    line: str, coloured: bool, shown: str
) -> None:
    assert tamed(line, coloured=coloured) == shown
