"""Screens that show a running sweep: a leaderboard redrawn in place on a terminal, else one line per change."""

from collections.abc import Sequence
from typing import IO, Any, Self

import click

from gangline.cli.output.tables import is_ansi_terminal
from gangline.cli.output.text import Span, StyledLine, clip_line, duration_text, number_text
from gangline.cli.sweep.leaderboard import (
    Leaderboard,
    TrialRow,
    TrialState,
    leaderboard_header,
    leaderboard_rows,
    parameter_labels,
    trial_label,
)

STATE_STYLES = {
    TrialState.SUCCEEDED: "green",
    TrialState.RUNNING: "bold",
    TrialState.QUEUED: "dim",
    TrialState.FAILED: "red",
    TrialState.TIMED_OUT: "red",
    TrialState.STOPPED: "yellow",
}
COLUMN_GAP = 2


class SweepScreen:
    """Prints one line per change. A context manager, so that the terminal is always restored."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show_trial(self, board: Leaderboard, row: TrialRow) -> None:
        """A trial has started or finished."""
        self.say(trial_line(board, row))

    def draw(self, board: Leaderboard) -> None:
        """Redraw the leaderboard, if this screen draws one. Called several times a second."""

    def say(self, text: str) -> None:
        """Print a line for the user."""
        click.echo(text, file=self._stream)


class LiveSweepScreen(SweepScreen):
    """Redraws the leaderboard in place, and erases it at the end: the final one is printed to stdout."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live as Block

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Any = Block(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_trial(self, board: Leaderboard, row: TrialRow) -> None:
        self.draw(board)

    def draw(self, board: Leaderboard) -> None:
        from rich.text import Text

        width, height = self._console.size
        lines = leaderboard_lines(board, width - 1, max(4, height - 4))
        styled = [Text.assemble(*((span.text, span.style) for span in line)) for line in lines]
        self._live.update(Text("\n").join(styled), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def choose_sweep_screen(stream: IO[str]) -> SweepScreen:
    """A live leaderboard for a terminal that can move its cursor, else plain lines."""
    return LiveSweepScreen(stream) if is_ansi_terminal(stream) else SweepScreen(stream)


def trial_line(board: Leaderboard, row: TrialRow) -> str:
    """`trial 3 of 4  lr=0.01 batch=32  Succeeded in 2.1 s  loss 0.113  best so far`."""
    parts = [f"trial {row.number} of {len(board.rows)}", trial_label(row, parameter_labels(board.rows))]
    duration = f" in {duration_text(row.seconds)}" if row.seconds is not None and row.state.is_over else ""
    parts.append(f"{row.state}{duration}")
    if row.value is not None and row.state.is_over:
        parts.append(f"{board.objective.metric} {number_text(row.value)}")
    best = board.best_row()
    if best is not None and best.number == row.number:
        parts.append("best so far")
    return "  ".join([*parts, *([row.cause] if row.cause else [])])


def leaderboard_lines(board: Leaderboard, width: int = 100, rows: int = 40) -> list[StyledLine]:
    """The header, then one line per trial, best first: at most `rows` lines in all."""
    done = sum(row.state.is_over for row in board.rows)
    objective = f"{'highest' if board.objective.maximize else 'lowest'} {board.objective.metric}"
    running = board.count(TrialState.RUNNING)
    header = (
        Span("sweep", "bold"),
        Span(f"  {done} of {len(board.rows)} trials done · {running} running · {objective}"),
    )
    table = _aligned_rows([leaderboard_header(board), *leaderboard_rows(board)])
    ordered = board.sorted_rows()
    best = board.best_row()
    lines = [(Span(table[0], "dim"),)]
    for row, text in list(zip(ordered, table[1:], strict=True))[: max(1, rows - 3)]:
        style = "bold green" if best is not None and row.number == best.number else STATE_STYLES[row.state]
        lines.append((Span(text, style),))
    hidden = len(ordered) - (len(lines) - 1)
    more: list[StyledLine] = [(Span(f"… and {hidden} more", "dim"),)] if hidden else []
    return [clip_line(line, width) for line in (header, *lines, *more)]


def _aligned_rows(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        (" " * COLUMN_GAP).join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
