"""Screens that show running jobs: plain lines for files and pipes, a live block under the logs for a terminal."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import IO, Any, Self

import click

from gangline.base.clock import Clock
from gangline.cli.follow.outcome import RunOutcome, live_summary, plain_summary
from gangline.cli.follow.view import FINISHED_STATES, JobFrame, job_lines, plain_progress
from gangline.cli.output.tables import is_ansi_terminal
from gangline.cli.output.text import Span, StyledLine, can_draw, plain_text
from gangline.progress.line import Progress
from gangline.summary.log_lines import printable_text

REPLICA_COLOURS = (36, 35, 34, 32, 33, 96, 95, 94)
"""ANSI colour numbers of the replica names: cyan, magenta, blue ..."""
PROGRESS_PARTS = 4
"""Plain lines report progress once per quarter."""
PROGRESS_INTERVAL = timedelta(seconds=10)
"""How often plain lines report progress whose total is unknown."""


MAX_TIMELINE_LINES = 45
"""Lines of the timeline in the last frame of a job."""
EXTRA_LINES = 3
"""Lines of a redrawn block beyond half of the screen, for the timeline."""
PLAIN_WIDTH = 400
"""Plain lines are not clipped, except for a message without end."""


class Screen:
    """Shows what a follower reports. This one shows nothing; the others override what they show.

    A context manager, so that the terminal is always restored.
    """

    # Whether CPU and memory are shown, and so worth sampling.
    shows_usage = False
    # Whether frames are drawn with the timeline of their job.
    shows_timeline = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show_ready(self, url: str, seconds: float, gpus: str) -> None:
        """The local control plane is ready. `gpus` are those of this machine, in words."""

    def show_dashboard(self, link: str) -> None:
        """Where a browser shows the jobs."""

    def show_state(self, job: str, state: str) -> None:
        """The job's state has changed."""

    def show_phase(self, replica: str, phase: str) -> None:
        """The phase of a replica's pod has changed."""

    def show_log(self, replica: str, line: str) -> None: ...
    def show_progress(self, replica: str, progress: Progress) -> None: ...
    def draw(self, *jobs: JobFrame) -> None:
        """Redraw all jobs. Called several times a second."""

    def show_hang(self, *lines: StyledLine) -> None:
        """The job seems to hang: it gave no sign of life for a while. Called once; `draw` shows it as long as it lasts."""

    def say(self, *lines: StyledLine) -> None:
        """Print lines for the user."""

    def show_outcome(self, outcome: RunOutcome) -> None:
        """Print the outcome of a finished job. `draw` is not called after it."""


def choose_screen(stream: IO[str], clock: Clock) -> Screen:
    """A live screen for a terminal that can move its cursor, else plain lines."""
    if is_ansi_terminal(stream):
        return LiveScreen(stream)
    return PlainScreen(stream, clock)


class PlainScreen(Screen):
    """Prints one line per change when it happens, without colour and without clipping."""

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        # For each replica the part of the progress last reported, and when.
        self._last_progress: dict[str, tuple[int, float]] = {}

    def show_ready(self, url: str, seconds: float, gpus: str) -> None:
        # On stderr: programs may read stdout.
        click.echo(f"local control plane ready: {url}{f' · {gpus}' if gpus else ''}", file=sys.stderr)

    def show_dashboard(self, link: str) -> None:
        click.echo(f"dashboard: {link}", file=sys.stderr)

    def show_state(self, job: str, state: str) -> None:
        self._echo(f"{job}  {state}")

    def show_phase(self, replica: str, phase: str) -> None:
        self._echo(f"  {replica:<10} {phase.lower()}")

    def show_log(self, replica: str, line: str) -> None:
        # Programs must not control a terminal that we do not control either. A pipe gets the line unchanged.
        text = printable_text(line, coloured=False) if self._stream.isatty() else line
        self._echo(f"{replica}| {text}")

    def show_progress(self, replica: str, progress: Progress) -> None:
        share, now = progress.fraction, self._clock.monotonic()
        last_part, reported_at = self._last_progress.get(replica, (-1, -PROGRESS_INTERVAL.total_seconds()))
        part = last_part if share is None else int(share * PROGRESS_PARTS)
        # Not only larger parts: a restarted replica may be further back than before.
        if part != last_part or (share is None and now - reported_at >= PROGRESS_INTERVAL.total_seconds()):
            self._last_progress[replica] = (part, now)
            self._echo(f"  {replica:<10} {plain_progress(progress)}")

    def show_hang(self, *lines: StyledLine) -> None:
        self.say(*lines)

    def say(self, *lines: StyledLine) -> None:
        for line in lines:
            self._echo(plain_text(line))

    def show_outcome(self, outcome: RunOutcome) -> None:
        self.say(*plain_summary(outcome))
        if outcome.timeline is not None:
            from gangline.cli.follow.timeline_view import event_lines
            from gangline.cli.output.timeline import TimelineStyle

            style = TimelineStyle(PLAIN_WIDTH, ascii=not can_draw(self._stream), names=outcome.ranked_names)
            self.say(*event_lines(outcome.timeline, style, legend=False))

    def _echo(self, line: str) -> None:
        click.echo(line, file=self._stream)


class RepeatCollapser:
    """Collapses a line that a replica repeats into the line and a count."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}

    def add(self, replica: str, line: str) -> Iterator[str]:
        """The lines to show for this line of a replica: none if it repeats the last one."""
        last, times = self._last.get(replica, (None, 0))
        if line == last:
            self._last[replica] = (line, times + 1)
            return
        yield from self._drain_replica(replica)
        self._last[replica] = (line, 0)
        yield line

    def drain(self) -> Iterator[tuple[str, str]]:
        """The counts that were not shown yet, by replica."""
        for replica, (line, _) in list(self._last.items()):
            for text in self._drain_replica(replica):
                yield replica, text
            self._last[replica] = (line, 0)

    def _drain_replica(self, replica: str) -> Iterator[str]:
        times = self._last.get(replica, ("", 0))[1]
        if times:
            yield "… repeated once" if times == 1 else f"… repeated {times} times"


class _RawText:
    """Text that rich prints unchanged. Styling every line would take a hundred times as long."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        from rich.segment import Segment

        yield Segment(self._text + "\n")


class LiveScreen(Screen):
    """Prints logs, and redraws a block under them that shows the state and progress of all replicas."""

    shows_usage = True
    shows_timeline = True

    def __init__(self, stream: IO[str]) -> None:
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live as Block

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Any = Block(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._repeats = RepeatCollapser()
        # Log lines since the last redraw; printed together, because every print redraws the block.
        self._queued_lines: list[str] = []
        self._use_colour = self._console.color_system is not None and not self._console.no_color
        self._colours: dict[str, int] = {}
        # The length of the longest replica name so far.
        self._name_width = 0
        self._ascii = not can_draw(stream)
        # The width and the lines of the block as it is on the screen.
        self._drawn: tuple[int, list[StyledLine]] = (0, [])

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()

    def show_ready(self, url: str, seconds: float, gpus: str) -> None:
        from gangline import __version__

        texts = (f"gangline {__version__}", f"local control plane ready in {seconds:.1f} s", url, gpus)
        self.say((Span(" · ".join(filter(None, texts)), "dim"),))

    def show_dashboard(self, link: str) -> None:
        self.say((Span(f"dashboard: {link}", "dim"),))

    def show_log(self, replica: str, line: str) -> None:
        for text in self._repeats.add(replica, line):
            self._queue_line(replica, text)

    def draw(self, *jobs: JobFrame) -> None:
        from rich.text import Text

        self._name_width = max([self._name_width, *(len(replica.name) for frame in jobs for replica in frame.replicas)])
        self._flush_lines()
        width, height = self._console.size
        room = max(3, height // 2 // max(1, len(jobs)))
        lines = [line for frame in jobs for line in self._job_block(frame, width - 1, room)]
        if (width, lines) == self._drawn:
            # The same again would only be bytes, which a slow connection has to carry.
            return
        self._drawn = (width, lines)
        rule = Text("─" * (width - 1), style="dim")
        self._live.update(Text("\n").join([rule, *map(self._rich_text, lines)]), refresh=True)

    def _job_block(self, frame: JobFrame, width: int, room: int) -> list[StyledLine]:
        """The replicas, and where there is room the timeline. The last frame scrolls: it has room for all."""
        lines = job_lines(frame, width, room)
        if frame.timeline is None:
            return lines
        # Imported here and below: nothing of it is needed before a job runs.
        from gangline.cli.follow.timeline_view import timeline_block
        from gangline.cli.output.timeline import TimelineStyle

        names = {replica.name: replica.shown_name for replica in frame.replicas}
        style = TimelineStyle(width, ascii=self._ascii, names=names)
        left = MAX_TIMELINE_LINES if frame.state in FINISHED_STATES else room + EXTRA_LINES - len(lines)
        return [*lines, *timeline_block(frame.timeline, frame.reports, style, left)]

    def say(self, *lines: StyledLine) -> None:
        self._flush_lines()
        for line in lines:
            self._console.print(self._rich_text(line), soft_wrap=True)

    def show_outcome(self, outcome: RunOutcome) -> None:
        self._finish()
        self.say(*live_summary(outcome))
        if outcome.timeline is not None:
            from gangline.cli.follow.timeline_view import event_lines
            from gangline.cli.output.timeline import TimelineStyle

            style = TimelineStyle(self._console.size.width - 1, ascii=self._ascii, names=outcome.ranked_names)
            self.say(*event_lines(outcome.timeline, style))

    def _queue_line(self, replica: str, line: str) -> None:
        self._name_width = max(self._name_width, len(replica))
        prefix = f"{replica:>{self._name_width}}│"
        if self._use_colour:
            colour = self._colours.setdefault(replica, REPLICA_COLOURS[len(self._colours) % len(REPLICA_COLOURS)])
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        self._queued_lines.append(f"{prefix} {printable_text(line, coloured=self._use_colour)}")

    def _flush_lines(self) -> None:
        if self._queued_lines:
            self._console.print(_RawText("\n".join(self._queued_lines)), soft_wrap=True)
            self._queued_lines = []

    def _finish(self) -> None:
        for replica, text in self._repeats.drain():
            self._queue_line(replica, text)
        self._flush_lines()
        self._live.stop()

    @staticmethod
    def _rich_text(line: StyledLine) -> Any:
        from rich.text import Text

        return Text.assemble(*((span.text, span.style) for span in line))


class SplitScreen:
    """A screen that several jobs share. A single job gets the screen itself as its pane."""

    def __init__(self, screen: Screen, jobs: int) -> None:
        self.screen, self._jobs = screen, jobs
        # The last frame of each job, in the order of the jobs.
        self._frames: dict[str, JobFrame] = {}

    def pane(self, job: str) -> Screen:
        return self.screen if self._jobs == 1 else JobPane(self, job)

    def draw(self, job: str, frame: JobFrame) -> None:
        """Replace the frame of one job, and redraw all jobs."""
        self._frames[job] = frame
        self.screen.draw(*self._frames.values())


class JobPane(Screen):
    """The part of a shared screen that belongs to one job: its `worker-0` is shown as `linear/worker-0`.

    Entering and leaving it does nothing: the owner of the screen closes that.
    """

    def __init__(self, split_screen: SplitScreen, job: str) -> None:
        self._split_screen, self._screen, self._job = split_screen, split_screen.screen, job
        self.shows_usage, self.shows_timeline = self._screen.shows_usage, self._screen.shows_timeline

    def show_ready(self, url: str, seconds: float, gpus: str) -> None:
        self._screen.show_ready(url, seconds, gpus)

    def show_dashboard(self, link: str) -> None:
        self._screen.show_dashboard(link)

    def show_state(self, job: str, state: str) -> None:
        self._screen.show_state(job, state)

    def show_phase(self, replica: str, phase: str) -> None:
        self._screen.show_phase(self._qualified_name(replica), phase)

    def show_log(self, replica: str, line: str) -> None:
        self._screen.show_log(self._qualified_name(replica), line)

    def show_progress(self, replica: str, progress: Progress) -> None:
        self._screen.show_progress(self._qualified_name(replica), progress)

    def draw(self, *jobs: JobFrame) -> None:
        for frame in jobs:
            self._split_screen.draw(self._job, frame)

    def show_hang(self, *lines: StyledLine) -> None:
        self._screen.show_hang(*lines)

    def say(self, *lines: StyledLine) -> None:
        self._screen.say(*lines)

    def show_outcome(self, outcome: RunOutcome) -> None:
        self._screen.show_outcome(outcome)

    def _qualified_name(self, replica: str) -> str:
        return f"{self._job}/{replica}"
