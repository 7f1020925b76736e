"""What is gathered of a team while it runs, and how it is told in plain lines."""

import io
import re
from datetime import timedelta

import pytest

from gangline.api.kubeflow.kinds import TFJOB
from gangline.cli.follow.follower import MAX_CURVE_POINTS, TAIL_LINES, JobView
from gangline.cli.follow.screen import PlainScreen, RepeatCollapser, choose_screen
from gangline.cli.follow.view import Span, plain_text, replica_line
from gangline.cli.output.curve import Point
from gangline.cli.output.log_lines import printable_text
from gangline.progress.line import Progress
from gangline.testing.builders import make_job, make_member
from gangline.testing.clock import FakeClock


def test_every_seat_is_there_before_its_pod_is() -> None:
    team = JobView()
    team.job = make_job(TFJOB, "linear", ps=1, worker=2)
    team.update_pod("worker-1", make_member("Worker", 1))
    facts = team.frame(TFJOB, "linear", 3.0)
    assert [(seat.name, seat.pod is not None) for seat in facts.replicas] == [
        ("ps-0", False),
        ("worker-0", False),
        ("worker-1", True),
    ]
    assert (facts.replica_counts, facts.state, facts.elapsed) == ({"PS": 1, "Worker": 2}, "Pending", 3.0)


def test_a_pod_beyond_the_seats_is_shown_as_long_as_it_is_there() -> None:
    team = JobView()
    team.job = make_job(TFJOB, worker=1)
    team.update_pod("worker-1", make_member("Worker", 1))
    assert [seat.name for seat in team.frame(TFJOB, "job", 0).replicas] == ["worker-0", "worker-1"]
    team.update_pod("worker-1", None)
    assert [seat.name for seat in team.frame(TFJOB, "job", 0).replicas] == ["worker-0"]


def test_a_seat_remembers_who_sat_there() -> None:
    team = JobView()
    team.job = make_job(TFJOB, worker=1)
    team.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.update_pod("worker-0", None)
    team.update_pod("worker-0", make_member("Worker", uid="b"))
    assert team.frame(TFJOB, "job", 0).replicas[0].history.restarts == 1
    assert team.failed_replicas() == {}


def test_that_a_member_failed_can_be_seen_for_a_while() -> None:
    team = JobView()
    team.job = make_job(TFJOB, worker=1)
    team.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.update_pod("worker-0", make_member("Worker", uid="b"))
    shown = [
        plain_text(replica_line(team.frame(TFJOB, "job", now).replicas[0])).split()[1:3] for now in (5.1, 7.0, 7.2)
    ]
    assert shown == [["◐", "restarted"], ["◐", "restarted"], ["●", "running"]]


def test_that_a_member_failed_is_seen_though_nothing_was_drawn_until_it_had_long_been_back() -> None:
    team = JobView()
    team.job = make_job(TFJOB, worker=1)
    before = plain_text(replica_line(team.frame(TFJOB, "job", 5.0).replicas[0]))
    team.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    team.update_pod("worker-0", make_member("Worker", uid="b"))
    shown = plain_text(replica_line(team.frame(TFJOB, "job", 60.0).replicas[0]))
    assert "waiting" in before
    assert re.search(r"◐ restarted +1 restart .*exit 137 \(SIGKILL\)", shown)


def test_members_that_are_down_at_the_end_are_known() -> None:
    team = JobView()
    team.update_pod("worker-0", make_member("Worker", phase="Succeeded"))
    team.update_pod("worker-1", make_member("Worker", 1, phase="Failed", exit_code=3))
    team.update_pod("worker-2", make_member("Worker", 2, phase="Failed"))
    assert team.failed_replicas() == {"worker-1": 3, "worker-2": None}


def test_the_curve_is_that_of_the_loss_or_else_of_the_first_metric() -> None:
    team = JobView()
    team.add_progress("worker-0", Progress(1, 9))
    team.add_progress("worker-0", Progress(2, 9, {"accuracy": 0.5, "loss": 3.0}))
    team.add_progress("worker-1", Progress(2, 9, {"accuracy": 0.6}))
    assert (team.metric, team.curves) == ("loss", {"worker-0": [Point(2, 3.0)]})
    other = JobView()
    other.add_progress("worker-0", Progress(1, 9, {"reward": 7.0}))
    assert (other.metric, other.curves) == ("reward", {"worker-0": [Point(1, 7.0)]})


def test_a_long_curve_keeps_its_ends_and_stays_small() -> None:
    team = JobView()
    for step in range(3 * MAX_CURVE_POINTS):
        team.add_progress("worker-0", Progress(step, None, {"loss": 1.0}))
    points = team.curves["worker-0"]
    assert len(points) <= MAX_CURVE_POINTS
    assert (points[0].step, points[-1].step) == (0, 3 * MAX_CURVE_POINTS - 1)


def test_of_a_members_lines_the_last_are_kept() -> None:
    team = JobView()
    for at in range(100):
        team.add_line("worker-0", str(at))
    assert list(team.tails["worker-0"]) == [str(at) for at in range(100 - TAIL_LINES, 100)]


def test_a_line_said_again_and_again_is_said_once_and_counted() -> None:
    folding = RepeatCollapser()
    said = [(member, line) for member, line in [("a", "x"), ("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")]]
    shown = [(member, told) for member, line in said for told in folding.add(member, line)]
    assert shown == [("a", "x"), ("b", "x"), ("a", "… repeated 2 times"), ("a", "y")]
    assert list(folding.add("b", "x")) == []
    assert list(folding.drain()) == [("b", "… repeated once")]
    assert list(folding.drain()) == []


def plain() -> tuple[PlainScreen, io.StringIO, FakeClock]:
    stream, clock = io.StringIO(), FakeClock()
    return PlainScreen(stream, clock), stream, clock


def test_plain_lines_are_one_per_change() -> None:
    screen, stream, _ = plain()
    with screen:
        screen.show_state("tfjob/linear", "Running")
        screen.show_phase("worker-0", "Running")
        screen.show_log("worker-0", "hello")
        screen.say((Span("warning: ", "yellow"), Span("careful")))
    assert stream.getvalue() == "tfjob/linear  Running\n  worker-0   running\nworker-0| hello\nwarning: careful\n"


def test_plain_progress_is_told_once_per_quarter() -> None:
    screen, stream, _ = plain()
    for step in range(1, 401):
        screen.show_progress("worker-0", Progress(step, 400))
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
        screen.show_progress("worker-0", Progress(step))
        await clock.advance(timedelta(seconds=1))
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["0", "10", "20"]


def test_what_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(choose_screen(io.StringIO(), FakeClock()), PlainScreen)


def test_a_terminal_that_cannot_draw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Teletype(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_screen(Teletype(), FakeClock()), PlainScreen)


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
def test_a_program_may_colour_its_lines_and_give_no_other_orders(line: str, coloured: bool, shown: str) -> None:
    assert printable_text(line, coloured=coloured) == shown
