"""Several jobs on one screen: each has a part of it, in which its members bear the job's name."""

from types import TracebackType
from typing import Self

from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import JobFrame, StyledLine
from gangline.progress.line import Progress


class SplitScreen:
    """The screen that jobs share. With one job its part is the screen itself."""

    def __init__(self, screen: Screen, jobs: int) -> None:
        self.screen, self._jobs = screen, jobs
        # What was last drawn of each, in the order of the jobs.
        self._frames: dict[str, JobFrame] = {}

    def pane(self, job: str) -> Screen:
        return self.screen if self._jobs == 1 else JobPane(self, job)

    def draw(self, job: str, facts: JobFrame) -> None:
        """One job has changed; all are drawn."""
        self._frames[job] = facts
        self.screen.draw(*self._frames.values())


class JobPane:
    """What one job has of a shared screen: `linear/worker-0` for its `worker-0`."""

    def __init__(self, board: SplitScreen, job: str) -> None:
        self._split_screen, self._screen, self._job = board, board.screen, job
        self.shows_usage = board.screen.shows_usage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """The screen is left by whoever entered it."""

    def show_ready(self, url: str, seconds: float) -> None:
        self._screen.show_ready(url, seconds)

    def show_state(self, job: str, state: str) -> None:
        self._screen.show_state(job, state)

    def show_phase(self, member: str, phase: str) -> None:
        self._screen.show_phase(self._qualified_name(member), phase)

    def show_log(self, member: str, line: str) -> None:
        self._screen.show_log(self._qualified_name(member), line)

    def show_progress(self, member: str, progress: Progress) -> None:
        self._screen.show_progress(self._qualified_name(member), progress)

    def draw(self, *jobs: JobFrame) -> None:
        for facts in jobs:
            self._split_screen.draw(self._job, facts)

    def say(self, *lines: StyledLine) -> None:
        self._screen.say(*lines)

    def show_outcome(self, outcome: RunOutcome) -> None:
        self._screen.show_outcome(outcome)

    def _qualified_name(self, member: str) -> str:
        return f"{self._job}/{member}"
