"""Where a running job is shown: plain lines for files and pipes, a live block under the logs for a terminal."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import IO, Any, Protocol, Self

import click

from gangline.base.clock import Clock
from gangline.cli.follow.outcome import Outcome, live_ending, plain_ending
from gangline.cli.follow.view import Facts, Line, Span, block, plain, text
from gangline.cli.output.log_lines import tamed
from gangline.cli.output.tables import obeys
from gangline.progress.line import Progress

COLOURS = (36, 35, 34, 32, 33, 96, 95, 94)
"""Of members' names, as terminals number them: cyan, magenta, blue ..."""
PARTS = 4
"""Into so many parts progress is divided in plain lines: one line for each that is done."""
PERIOD = timedelta(seconds=10)
"""How often progress is told in plain lines when nobody knows how much there is."""


class Screen(Protocol):
    """What a follower has to tell. Left with `with`, so that a terminal is never left in disorder."""

    # Whether it is worth looking at what processes take.
    draws: bool

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def ready(self, url: str, seconds: float) -> None:
        """The plane is there."""

    def state(self, job: str, state: str) -> None:
        """The job's state is another one."""

    def pod(self, member: str, phase: str) -> None:
        """A member's phase is another one."""

    def log(self, member: str, line: str) -> None: ...
    def progress(self, member: str, progress: Progress) -> None: ...
    def draw(self, *jobs: Facts) -> None:
        """All there is to know now of every job. Called again and again."""

    def say(self, *lines: Line) -> None:
        """Lines for people."""

    def end(self, outcome: Outcome) -> None:
        """The job has ended: the verdict. Nothing is drawn after it."""


def choose(stream: IO[str], clock: Clock) -> Screen:
    """A live screen for a terminal that can move its cursor, else plain lines."""
    if obeys(stream):
        return Live(stream)
    return Plain(stream, clock)


class Plain:
    """One line per change: no colour, nothing is drawn twice, nothing is cut."""

    draws = False

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        # How far each member was, and when, at the last line about that.
        self._told: dict[str, tuple[int, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ready(self, url: str, seconds: float) -> None:
        # For people, not for those who read the output.
        click.echo(f"local control plane ready: {url}", file=sys.stderr)

    def state(self, job: str, state: str) -> None:
        self._echo(f"{job}  {state}")

    def pod(self, member: str, phase: str) -> None:
        self._echo(f"  {member:<10} {phase.lower()}")

    def log(self, member: str, line: str) -> None:
        # A terminal that takes no orders from us takes none from programs. A pipe has what they said.
        said = tamed(line, coloured=False) if self._stream.isatty() else line
        self._echo(f"{member}| {said}")

    def progress(self, member: str, progress: Progress) -> None:
        share, now = progress.share, self._clock.monotonic()
        part, since = self._told.get(member, (-1, -PERIOD.total_seconds()))
        here = part if share is None else int(share * PARTS)
        # A member that was restarted may be further back than it was.
        if here != part or (share is None and now - since >= PERIOD.total_seconds()):
            self._told[member] = (here, now)
            self._echo(f"  {member:<10} {plain(progress)}")

    def draw(self, *jobs: Facts) -> None:
        """Every change was told already."""

    def say(self, *lines: Line) -> None:
        for line in lines:
            self._echo(text(line))

    def end(self, outcome: Outcome) -> None:
        self.say(*plain_ending(outcome))

    def _echo(self, line: str) -> None:
        click.echo(line, file=self._stream)


class Folding:
    """Lines of members, where one that a member says again and again is said once and counted."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}

    def add(self, member: str, line: str) -> Iterator[str]:
        """What to show now that a member said this."""
        last, times = self._last.get(member, (None, 0))
        if line == last:
            self._last[member] = (line, times + 1)
            return
        yield from self._rest(member)
        self._last[member] = (line, 0)
        yield line

    def rest(self) -> Iterator[tuple[str, str]]:
        """What was counted and not yet told, by member."""
        for member, (line, _) in list(self._last.items()):
            for told in self._rest(member):
                yield member, told
            self._last[member] = (line, 0)

    def _rest(self, member: str) -> Iterator[str]:
        times = self._last.get(member, ("", 0))[1]
        if times:
            yield "… repeated once" if times == 1 else f"… repeated {times} times"


class _Written:
    """Text for rich to print as it is. Styling every line would take a hundred times as long."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        from rich.segment import Segment

        yield Segment(self._text + "\n")


class Live:
    """Logs scroll by, and under them a block with every member is drawn anew in place."""

    draws = True

    def __init__(self, stream: IO[str]) -> None:
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live as Block

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._block: Any = Block(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._folding = Folding()
        # Log lines since the block was last drawn: printed together, for each print draws the block anew.
        self._waiting: list[str] = []
        self._coloured = self._console.color_system is not None and not self._console.no_color
        self._colours: dict[str, int] = {}
        # Of the members' names that were seen so far.
        self._longest = 0

    def __enter__(self) -> Self:
        self._block.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()

    def ready(self, url: str, seconds: float) -> None:
        from gangline import __version__

        told = f"gangline {__version__} · local control plane ready in {seconds:.1f} s · {url}"
        self.say((Span(told, "dim"),))

    def state(self, job: str, state: str) -> None:
        """The block has it."""

    def pod(self, member: str, phase: str) -> None:
        """The block has it."""

    def progress(self, member: str, progress: Progress) -> None:
        """The block has it."""

    def log(self, member: str, line: str) -> None:
        for told in self._folding.add(member, line):
            self._hold(member, told)

    def draw(self, *jobs: Facts) -> None:
        from rich.text import Text

        self._longest = max([self._longest, *(len(seat.name) for facts in jobs for seat in facts.seats)])
        self._print()
        width, height = self._console.size
        room = max(3, height // 2 // max(1, len(jobs)))
        lines = [line for facts in jobs for line in block(facts, width - 1, room)]
        rule = Text("─" * (width - 1), style="dim")
        self._block.update(Text("\n").join([rule, *map(self._styled, lines)]), refresh=True)

    def say(self, *lines: Line) -> None:
        self._print()
        for line in lines:
            self._console.print(self._styled(line), soft_wrap=True)

    def end(self, outcome: Outcome) -> None:
        self._finish()
        self.say(*live_ending(outcome))

    def _hold(self, member: str, line: str) -> None:
        self._longest = max(self._longest, len(member))
        before = f"{member:>{self._longest}}│"
        if self._coloured:
            colour = self._colours.setdefault(member, COLOURS[len(self._colours) % len(COLOURS)])
            before = f"\x1b[{colour}m{before}\x1b[0m"
        self._waiting.append(f"{before} {tamed(line, coloured=self._coloured)}")

    def _print(self) -> None:
        if self._waiting:
            self._console.print(_Written("\n".join(self._waiting)), soft_wrap=True)
            self._waiting = []

    def _finish(self) -> None:
        for member, told in self._folding.rest():
            self._hold(member, told)
        self._print()
        self._block.stop()

    @staticmethod
    def _styled(line: Line) -> Any:
        from rich.text import Text

        return Text.assemble(*((span.text, span.style) for span in line))
