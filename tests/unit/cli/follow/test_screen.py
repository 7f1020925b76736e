"""Several jobs on one screen."""

import io

from gangline.cli.follow.screen import PlainScreen, SplitScreen
from gangline.cli.follow.view import JobFrame
from gangline.progress.line import Progress
from gangline.testing.clock import FakeClock


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
