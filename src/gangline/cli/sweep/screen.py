"""Where a sweep is shown while it goes on: a leaderboard drawn in place on a terminal, else a line per change."""

from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Protocol, Self

import click

from gangline.cli.follow.view import Line, Span, clipped, lasted, number
from gangline.cli.output.tables import obeys
from gangline.cli.sweep.leaderboard import Board, Row, State, cells, header, labels, told

STYLES = {
    State.SUCCEEDED: "green",
    State.RUNNING: "bold",
    State.QUEUED: "dim",
    State.FAILED: "red",
    State.TIMED_OUT: "red",
    State.STOPPED: "yellow",
}
GAP = 2


class Shown(Protocol):
    """Left with `with`, so that a terminal is never left in disorder."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def changed(self, board: Board, row: Row) -> None:
        """A trial has begun or ended."""

    def draw(self, board: Board) -> None:
        """All there is to know now. Called again and again."""

    def say(self, text: str) -> None:
        """A line for people."""


def choose(stream: IO[str]) -> Shown:
    """A live board for a terminal that can move its cursor, else plain lines."""
    if obeys(stream):
        return Live(stream)
    return Plain(stream)


class Plain:
    """One line per change."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def changed(self, board: Board, row: Row) -> None:
        self.say(line(board, row))

    def draw(self, board: Board) -> None:
        """Every change was told already."""

    def say(self, text: str) -> None:
        click.echo(text, file=self._stream)


class Live:
    """The leaderboard, drawn anew in place, and gone at the end: then it is printed once and for all."""

    def __init__(self, stream: IO[str]) -> None:
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live as Block

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._block: Any = Block(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._block.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._block.stop()

    def changed(self, board: Board, row: Row) -> None:
        self.draw(board)

    def draw(self, board: Board) -> None:
        from rich.text import Text

        width, height = self._console.size
        drawn = lines(board, width - 1, max(4, height - 4))
        styled = [Text.assemble(*((span.text, span.style) for span in each)) for each in drawn]
        self._block.update(Text("\n").join(styled), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def line(board: Board, row: Row) -> str:
    """`trial 3 of 4  lr=0.01 batch=32  Succeeded in 2.1 s  loss 0.113  best so far`."""
    parts = [f"trial {row.number} of {len(board.rows)}", told(row, labels(board.rows))]
    took = f" in {lasted(row.seconds)}" if row.seconds is not None and row.state.over else ""
    parts.append(f"{row.state}{took}")
    if row.value is not None and row.state.over:
        parts.append(f"{board.aim.metric} {number(row.value)}")
    best = board.best()
    if best is not None and best.number == row.number:
        parts.append("best so far")
    return "  ".join([*parts, *([row.cause] if row.cause else [])])


def lines(board: Board, width: int = 100, rows: int = 40) -> list[Line]:
    """The head, then one line per trial: at most `rows` in all, from the best downwards."""
    done = sum(row.state.over for row in board.rows)
    aim = f"{'highest' if board.aim.most else 'lowest'} {board.aim.metric}"
    going = board.count(State.RUNNING)
    head = (
        Span("sweep", "bold"),
        Span(f"  {done} of {len(board.rows)} trials done · {going} running · {aim}"),
    )
    table = _aligned([header(board), *cells(board)])
    ordered = board.ordered()
    best = board.best()
    shown = [(Span(table[0], "dim"),)]
    for row, text in list(zip(ordered, table[1:], strict=True))[: max(1, rows - 3)]:
        style = "bold green" if best is not None and row.number == best.number else STYLES[row.state]
        shown.append((Span(text, style),))
    left = len(ordered) - (len(shown) - 1)
    more: list[Line] = [(Span(f"… and {left} more", "dim"),)] if left else []
    return [clipped(each, width) for each in (head, *shown, *more)]


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        (" " * GAP).join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
