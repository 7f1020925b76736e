"""Where a running job is shown: plain lines for files and pipes, a live block under the logs for a terminal."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import IO, Any, Protocol, Self

import click

from gangline.base.clock import Clock
from gangline.cli.follow.outcome import RunOutcome, live_summary, plain_summary
from gangline.cli.follow.view import JobFrame, Span, StyledLine, job_lines, plain_progress, plain_text
from gangline.cli.output.log_lines import printable_text
from gangline.cli.output.tables import is_ansi_terminal
from gangline.progress.line import Progress

REPLICA_COLOURS = (36, 35, 34, 32, 33, 96, 95, 94)
"""Of members' names, as terminals number them: cyan, magenta, blue ..."""
PROGRESS_PARTS = 4
"""Into so many parts progress is divided in plain lines: one line for each that is done."""
PROGRESS_INTERVAL = timedelta(seconds=10)
"""How often progress is told in plain lines when nobody knows how much there is."""


class Screen(Protocol):
    """What a follower has to tell. Left with `with`, so that a terminal is never left in disorder."""

    # Whether it is worth looking at what processes take.
    shows_usage: bool

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def show_ready(self, url: str, seconds: float) -> None:
        """The plane is there."""

    def show_state(self, job: str, state: str) -> None:
        """The job's state is another one."""

    def show_phase(self, member: str, phase: str) -> None:
        """A member's phase is another one."""

    def show_log(self, member: str, line: str) -> None: ...
    def show_progress(self, member: str, progress: Progress) -> None: ...
    def draw(self, *jobs: JobFrame) -> None:
        """All there is to know now of every job. Called again and again."""

    def say(self, *lines: StyledLine) -> None:
        """Lines for people."""

    def show_outcome(self, outcome: RunOutcome) -> None:
        """The job has ended: the verdict. Nothing is drawn after it."""


def choose_screen(stream: IO[str], clock: Clock) -> Screen:
    """A live screen for a terminal that can move its cursor, else plain lines."""
    if is_ansi_terminal(stream):
        return LiveScreen(stream)
    return PlainScreen(stream, clock)


class PlainScreen:
    """One line per change: no colour, nothing is drawn twice, nothing is cut."""

    shows_usage = False

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        # How far each member was, and when, at the last line about that.
        self._last_progress: dict[str, tuple[int, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show_ready(self, url: str, seconds: float) -> None:
        # For people, not for those who read the output.
        click.echo(f"local control plane ready: {url}", file=sys.stderr)

    def show_state(self, job: str, state: str) -> None:
        self._echo(f"{job}  {state}")

    def show_phase(self, member: str, phase: str) -> None:
        self._echo(f"  {member:<10} {phase.lower()}")

    def show_log(self, member: str, line: str) -> None:
        # A terminal that takes no orders from us takes none from programs. A pipe has what they said.
        said = printable_text(line, coloured=False) if self._stream.isatty() else line
        self._echo(f"{member}| {said}")

    def show_progress(self, member: str, progress: Progress) -> None:
        share, now = progress.fraction, self._clock.monotonic()
        part, since = self._last_progress.get(member, (-1, -PROGRESS_INTERVAL.total_seconds()))
        here = part if share is None else int(share * PROGRESS_PARTS)
        # A member that was restarted may be further back than it was.
        if here != part or (share is None and now - since >= PROGRESS_INTERVAL.total_seconds()):
            self._last_progress[member] = (here, now)
            self._echo(f"  {member:<10} {plain_progress(progress)}")

    def draw(self, *jobs: JobFrame) -> None:
        """Every change was told already."""

    def say(self, *lines: StyledLine) -> None:
        for line in lines:
            self._echo(plain_text(line))

    def show_outcome(self, outcome: RunOutcome) -> None:
        self.say(*plain_summary(outcome))

    def _echo(self, line: str) -> None:
        click.echo(line, file=self._stream)


class RepeatCollapser:
    """Lines of members, where one that a member says again and again is said once and counted."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}

    def add(self, member: str, line: str) -> Iterator[str]:
        """What to show now that a member said this."""
        last, times = self._last.get(member, (None, 0))
        if line == last:
            self._last[member] = (line, times + 1)
            return
        yield from self._drain_replica(member)
        self._last[member] = (line, 0)
        yield line

    def drain(self) -> Iterator[tuple[str, str]]:
        """What was counted and not yet told, by member."""
        for member, (line, _) in list(self._last.items()):
            for told in self._drain_replica(member):
                yield member, told
            self._last[member] = (line, 0)

    def _drain_replica(self, member: str) -> Iterator[str]:
        times = self._last.get(member, ("", 0))[1]
        if times:
            yield "… repeated once" if times == 1 else f"… repeated {times} times"


class _RawText:
    """Text for rich to print as it is. Styling every line would take a hundred times as long."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        from rich.segment import Segment

        yield Segment(self._text + "\n")


class LiveScreen:
    """Logs scroll by, and under them a block with every member is drawn anew in place."""

    shows_usage = True

    def __init__(self, stream: IO[str]) -> None:
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live as Block

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Any = Block(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._repeats = RepeatCollapser()
        # Log lines since the block was last drawn: printed together, for each print draws the block anew.
        self._queued_lines: list[str] = []
        self._use_colour = self._console.color_system is not None and not self._console.no_color
        self._colours: dict[str, int] = {}
        # Of the members' names that were seen so far.
        self._name_width = 0

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()

    def show_ready(self, url: str, seconds: float) -> None:
        from gangline import __version__

        told = f"gangline {__version__} · local control plane ready in {seconds:.1f} s · {url}"
        self.say((Span(told, "dim"),))

    def show_state(self, job: str, state: str) -> None:
        """The block has it."""

    def show_phase(self, member: str, phase: str) -> None:
        """The block has it."""

    def show_progress(self, member: str, progress: Progress) -> None:
        """The block has it."""

    def show_log(self, member: str, line: str) -> None:
        for told in self._repeats.add(member, line):
            self._queue_line(member, told)

    def draw(self, *jobs: JobFrame) -> None:
        from rich.text import Text

        self._name_width = max([self._name_width, *(len(seat.name) for facts in jobs for seat in facts.replicas)])
        self._flush_lines()
        width, height = self._console.size
        room = max(3, height // 2 // max(1, len(jobs)))
        lines = [line for facts in jobs for line in job_lines(facts, width - 1, room)]
        rule = Text("─" * (width - 1), style="dim")
        self._live.update(Text("\n").join([rule, *map(self._rich_text, lines)]), refresh=True)

    def say(self, *lines: StyledLine) -> None:
        self._flush_lines()
        for line in lines:
            self._console.print(self._rich_text(line), soft_wrap=True)

    def show_outcome(self, outcome: RunOutcome) -> None:
        self._finish()
        self.say(*live_summary(outcome))

    def _queue_line(self, member: str, line: str) -> None:
        self._name_width = max(self._name_width, len(member))
        before = f"{member:>{self._name_width}}│"
        if self._use_colour:
            colour = self._colours.setdefault(member, REPLICA_COLOURS[len(self._colours) % len(REPLICA_COLOURS)])
            before = f"\x1b[{colour}m{before}\x1b[0m"
        self._queued_lines.append(f"{before} {printable_text(line, coloured=self._use_colour)}")

    def _flush_lines(self) -> None:
        if self._queued_lines:
            self._console.print(_RawText("\n".join(self._queued_lines)), soft_wrap=True)
            self._queued_lines = []

    def _finish(self) -> None:
        for member, told in self._repeats.drain():
            self._queue_line(member, told)
        self._flush_lines()
        self._live.stop()

    @staticmethod
    def _rich_text(line: StyledLine) -> Any:
        from rich.text import Text

        return Text.assemble(*((span.text, span.style) for span in line))


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
