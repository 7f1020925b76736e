"""The view of a followed job, and how a plain screen prints it."""

import io
import re
from datetime import timedelta

import msgspec
import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB, ElasticPolicy, PyTorchJob
from gangline.api.kubeflow.training import JobProgress
from gangline.cli.follow.job_view import MAX_CURVE_POINTS, TAIL_LINES, JobView
from gangline.cli.follow.screen import PlainScreen, RepeatCollapser, choose_screen
from gangline.cli.follow.view import job_lines, replica_line
from gangline.cli.output.curve import Point
from gangline.cli.output.text import Span, plain_text
from gangline.node.usage import ResourceUsage
from gangline.progress.line import Progress
from gangline.summary.log_lines import printable_text
from gangline.testing.builders import make_job, make_member
from gangline.testing.clock import FakeClock


def test_every_replica_is_in_the_frame_before_its_pod_exists() -> None:
    view = JobView()
    view.job = make_job(TFJOB, "linear", ps=1, worker=2)
    view.update_pod("worker-1", make_member("Worker", 1))
    frame = view.frame(TFJOB, "linear", 3.0)
    assert [(replica.name, replica.pod is not None) for replica in frame.replicas] == [
        ("ps-0", False),
        ("worker-0", False),
        ("worker-1", True),
    ]
    assert (frame.replica_counts, frame.state, frame.elapsed) == ({"PS": 1, "Worker": 2}, "Pending", 3.0)


def test_ranks_stand_beside_the_names_of_replicas() -> None:
    view = JobView()
    view.job = make_job(PYTORCHJOB, "net", master=1, worker=2)
    shown = [replica.shown_name for replica in view.frame(PYTORCHJOB, "net", 0).replicas]
    assert shown == ["master-0 (rank 0)", "worker-0 (rank 1)", "worker-1 (rank 2)"]
    lines = [plain_text(line) for line in job_lines(view.frame(PYTORCHJOB, "net", 0))[1:]]
    assert lines[2].startswith("  worker-1 (rank 2)  ○ waiting")
    # Alone, or where the framework has task indices instead.
    view.job = make_job(PYTORCHJOB, "net", master=1)
    assert view.ranked_name(PYTORCHJOB, "master-0") == "master-0"
    view.job = make_job(TFJOB, "net", worker=2)
    assert view.ranked_name(TFJOB, "worker-1") == "worker-1"


def test_the_ranks_of_an_elastic_job_are_not_known() -> None:
    view = JobView()
    job = make_job(PYTORCHJOB, "net", worker=2)
    assert isinstance(job, PyTorchJob)
    view.job = msgspec.structs.replace(
        job, spec=msgspec.structs.replace(job.spec, elastic_policy=ElasticPolicy(min_replicas=1))
    )
    assert view.ranked_name(PYTORCHJOB, "worker-1") == "worker-1"


def test_usage_is_known_when_that_of_every_running_replica_is() -> None:
    view = JobView()
    view.job = make_job(TFJOB, worker=2)
    view.update_pod("worker-0", make_member("Worker"))
    view.update_pod("worker-1", make_member("Worker", 1, phase="Succeeded"))
    assert not view.has_all_usage
    view.usage = {"worker-0": ResourceUsage()}
    assert view.has_all_usage


def test_a_surplus_pod_is_shown_until_it_is_deleted() -> None:
    view = JobView()
    view.job = make_job(TFJOB, worker=1)
    view.update_pod("worker-1", make_member("Worker", 1))
    assert [replica.name for replica in view.frame(TFJOB, "job", 0).replicas] == ["worker-0", "worker-1"]
    view.update_pod("worker-1", None)
    assert [replica.name for replica in view.frame(TFJOB, "job", 0).replicas] == ["worker-0"]


def test_restarts_are_counted_across_the_pods_of_a_replica() -> None:
    view = JobView()
    view.job = make_job(TFJOB, worker=1)
    view.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    view.update_pod("worker-0", None)
    view.update_pod("worker-0", make_member("Worker", uid="b"))
    assert view.frame(TFJOB, "job", 0).replicas[0].history.restarts == 1
    assert view.failed_replicas() == {}


def test_a_restarted_replica_is_shown_as_such_for_a_while() -> None:
    view = JobView()
    view.job = make_job(TFJOB, worker=1)
    view.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    view.update_pod("worker-0", make_member("Worker", uid="b"))
    shown = [
        plain_text(replica_line(view.frame(TFJOB, "job", now).replicas[0])).split()[1:3] for now in (5.1, 7.0, 7.2)
    ]
    assert shown == [["◐", "restarted"], ["◐", "restarted"], ["●", "running"]]


def test_a_failure_is_shown_even_if_the_first_redraw_is_late() -> None:
    view = JobView()
    view.job = make_job(TFJOB, worker=1)
    before = plain_text(replica_line(view.frame(TFJOB, "job", 5.0).replicas[0]))
    view.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=137, uid="a"))
    view.update_pod("worker-0", make_member("Worker", uid="b"))
    shown = plain_text(replica_line(view.frame(TFJOB, "job", 60.0).replicas[0]))
    assert "waiting" in before
    assert re.search(r"◐ restarted +1 restart .*exit 137 \(SIGKILL\)", shown)


def test_failed_replicas_have_their_exit_codes() -> None:
    view = JobView()
    view.update_pod("worker-0", make_member("Worker", phase="Succeeded"))
    view.update_pod("worker-1", make_member("Worker", 1, phase="Failed", exit_code=3))
    view.update_pod("worker-2", make_member("Worker", 2, phase="Failed"))
    assert view.failed_replicas() == {"worker-1": 3, "worker-2": None}


def test_the_curve_is_that_of_the_loss_or_else_of_the_first_metric() -> None:
    view = JobView()
    view.add_progress("worker-0", Progress(1, 9), 0.0)
    view.add_progress("worker-0", Progress(2, 9, {"accuracy": 0.5, "loss": 3.0}), 1.0)
    view.add_progress("worker-1", Progress(2, 9, {"accuracy": 0.6}), 2.0)
    assert (view.metric, view.curves) == ("loss", {"worker-0": [Point(2, 3.0)]})
    other = JobView()
    other.add_progress("worker-0", Progress(1, 9, {"reward": 7.0}), 0.0)
    assert (other.metric, other.curves) == ("reward", {"worker-0": [Point(1, 7.0)]})


def test_a_long_curve_keeps_its_ends_and_stays_small() -> None:
    view = JobView()
    for step in range(3 * MAX_CURVE_POINTS):
        view.add_progress("worker-0", Progress(step, None, {"loss": 1.0}), float(step))
    points = view.curves["worker-0"]
    assert len(points) <= MAX_CURVE_POINTS
    assert (points[0].step, points[-1].step) == (0, 3 * MAX_CURVE_POINTS - 1)


def test_the_last_lines_of_a_replica_are_kept() -> None:
    view = JobView()
    for at in range(100):
        view.add_line("worker-0", str(at))
    assert list(view.tails["worker-0"]) == [str(at) for at in range(100 - TAIL_LINES, 100)]


def test_repeated_lines_are_collapsed_and_counted() -> None:
    folding = RepeatCollapser()
    lines = [(replica, line) for replica, line in [("a", "x"), ("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")]]
    shown = [(replica, text) for replica, line in lines for text in folding.add(replica, line)]
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


def test_plain_progress_is_printed_once_per_quarter() -> None:
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


async def test_plain_progress_without_a_total_is_printed_every_ten_seconds() -> None:
    screen, stream, clock = plain()
    for step in range(25):
        screen.show_progress("worker-0", Progress(step))
        await clock.advance(timedelta(seconds=1))
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["0", "10", "20"]


def test_a_stream_that_is_no_terminal_gets_plain_lines() -> None:
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
        ("\x1b]a\x1b]b\x07c", True, "]ac"),
        ("bell\x07\x08\x9b", True, "bell"),
    ],
)
def test_colours_are_the_only_escape_sequences_that_are_kept(line: str, coloured: bool, shown: str) -> None:
    assert printable_text(line, coloured=coloured) == shown


def test_the_estimate_of_the_operator_is_shown_where_the_program_makes_none() -> None:
    view = JobView()
    job = make_job(TFJOB, "linear", worker=2)
    progress = JobProgress(step=5, total=10, estimated_remaining_seconds=90, replica="worker-0")
    view.job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, progress=progress))
    view.add_progress("worker-0", Progress(6, 10), 0.0)
    view.add_progress("worker-1", Progress(6, 10), 0.0)

    def remaining() -> list[float | None]:
        frame = view.frame(TFJOB, "linear", 0)
        return [replica.progress.remaining_seconds for replica in frame.replicas if replica.progress is not None]

    assert remaining() == [90, None]
    view.add_progress("worker-0", Progress(7, 10, {}, 30), 1.0)
    assert remaining() == [30, None]
