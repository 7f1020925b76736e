"""Several jobs on one screen."""

import io

import pytest

from gangline.cli.follow.screen import LiveScreen, PlainScreen, SplitScreen
from gangline.cli.follow.view import JobFrame, ReplicaState
from gangline.progress.line import Progress
from gangline.testing.clock import FakeClock
from gangline.timeline.model import ReplicaRow, StateSpan, TeamTimeline


class Seen(PlainScreen):
    """A plain screen that records redraws."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        super().__init__(self.stream, FakeClock())
        self.drawn: list[list[str]] = []

    def draw(self, *jobs: JobFrame) -> None:
        self.drawn.append([f"{frame.name} {frame.state}" for frame in jobs])


def test_one_job_has_the_screen_to_itself() -> None:
    screen = Seen()
    assert SplitScreen(screen, 1).pane("a") is screen


def test_replicas_are_qualified_by_their_job() -> None:
    screen = Seen()
    split_screen = SplitScreen(screen, 2)
    for name in ("a", "b"):
        with split_screen.pane(name) as part:
            part.show_phase("worker-0", "Running")
            part.show_log("worker-0", "hello")
            part.show_progress("worker-0", Progress(1, 4))
    assert screen.stream.getvalue().splitlines() == [
        "  a/worker-0 running",
        "a/worker-0| hello",
        "  a/worker-0 step 1/4  25 %",
        "  b/worker-0 running",
        "b/worker-0| hello",
        "  b/worker-0 step 1/4  25 %",
    ]


def test_a_change_of_one_job_redraws_all() -> None:
    screen = Seen()
    split_screen = SplitScreen(screen, 2)
    first, second = split_screen.pane("a"), split_screen.pane("b")
    first.draw(JobFrame("TFJob", "a", "Running"))
    second.draw(JobFrame("TFJob", "b", "Running"))
    first.draw(JobFrame("TFJob", "a", "Failed"))
    assert screen.drawn == [["a Running"], ["a Running", "b Running"], ["a Failed", "b Running"]]


class TerminalStream(io.StringIO):
    """A terminal of the usual size."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_block_that_has_not_changed_is_not_written_again() -> None:
    stream = TerminalStream()
    with LiveScreen(stream) as screen:
        screen.draw(JobFrame("TFJob", "a", "Running", elapsed=1.1))
        written = stream.getvalue()
        screen.draw(JobFrame("TFJob", "a", "Running", elapsed=1.9))
        assert stream.getvalue() == written
        screen.draw(JobFrame("TFJob", "a", "Running", elapsed=2.1))
        assert stream.getvalue() != written


def test_the_timeline_is_drawn_where_there_is_room_and_the_last_one_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    rows = tuple(ReplicaRow(f"worker-{at}", "worker", at, (StateSpan("running", 0.0),)) for at in range(8))
    timeline = TeamTimeline(0.0, 9.5, rows)
    few = TeamTimeline(0.0, 9.5, rows[:3])
    for frame, shown in (
        (JobFrame("TFJob", "a", "Running", timeline=few), True),
        (JobFrame("TFJob", "a", "Running", replicas_of(8), timeline=timeline), False),
        (JobFrame("TFJob", "a", "Succeeded", replicas_of(8), timeline=timeline), True),
    ):
        stream = TerminalStream()
        with LiveScreen(stream) as screen:
            screen.draw(frame)
        assert ("▆▆▆" in stream.getvalue()) is shown


def replicas_of(count: int) -> tuple[ReplicaState, ...]:
    return tuple(ReplicaState(f"worker-{at}") for at in range(count))
