"""Several jobs on one screen: each has a part of it, in which its members bear the job's name."""

from types import TracebackType
from typing import Self

from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import Facts, Line
from gangline.progress.line import Progress


class Board:
    """The screen that jobs share. With one job its part is the screen itself."""

    def __init__(self, screen: Screen, jobs: int) -> None:
        self.screen, self._jobs = screen, jobs
        # What was last drawn of each, in the order of the jobs.
        self._facts: dict[str, Facts] = {}

    def part(self, job: str) -> Screen:
        return self.screen if self._jobs == 1 else Part(self, job)

    def draw(self, job: str, facts: Facts) -> None:
        """One job has changed; all are drawn."""
        self._facts[job] = facts
        self.screen.draw(*self._facts.values())


class Part:
    """What one job has of a shared screen: `linear/worker-0` for its `worker-0`."""

    def __init__(self, board: Board, job: str) -> None:
        self._board, self._screen, self._job = board, board.screen, job
        self.draws = board.screen.draws

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """The screen is left by whoever entered it."""

    def ready(self, url: str, seconds: float) -> None:
        self._screen.ready(url, seconds)

    def state(self, job: str, state: str) -> None:
        self._screen.state(job, state)

    def pod(self, member: str, phase: str) -> None:
        self._screen.pod(self._named(member), phase)

    def log(self, member: str, line: str) -> None:
        self._screen.log(self._named(member), line)

    def progress(self, member: str, progress: Progress) -> None:
        self._screen.progress(self._named(member), progress)

    def draw(self, *jobs: Facts) -> None:
        for facts in jobs:
            self._board.draw(self._job, facts)

    def say(self, *lines: Line) -> None:
        self._screen.say(*lines)

    def end(self, outcome: Outcome) -> None:
        self._screen.end(outcome)

    def _named(self, member: str) -> str:
        return f"{self._job}/{member}"
