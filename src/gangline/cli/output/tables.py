"""Text in columns, as kubectl prints it; coloured states on a terminal."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

COLUMN_PADDING = 3
MIN_COLUMN_WIDTH = 6
"""Of a column with its padding, as in kubectl."""

_GREEN, _RED, _YELLOW, _BLUE, _DIM = "32", "31", "33", "36", "2"
_STATE_COLOURS = {
    **dict.fromkeys(("Running", "Ready", "True", "Bound", "Active"), _GREEN),
    **dict.fromkeys(("Succeeded", "Completed"), _BLUE),
    **dict.fromkeys(("Failed", "Error", "OOMKilled", "CrashLoopBackOff", "Blocked", "Evicted"), _RED),
    **dict.fromkeys(("ImagePullBackOff", "ErrImagePull", "ContainerCannotRun", "Warning"), _RED),
    **dict.fromkeys(("Pending", "Restarting", "ContainerCreating", "Created", "Terminating"), _YELLOW),
    **dict.fromkeys(("Suspended", "Stopped"), _DIM),
}


def is_ansi_terminal(stream: IO[str]) -> bool:
    """Whether it is a terminal that takes orders: to move its cursor, to erase, to change colour."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def use_colour(stream: IO[str]) -> bool:
    """Whether to use colour: on a terminal that can, unless NO_COLOR is set (https://no-color.org).

    That is about colour only: what is drawn in place is drawn all the same, and may be bold.
    """
    return is_ansi_terminal(stream) and not os.environ.get("NO_COLOR")


def clipped_text(text: str, width: int) -> str:
    """Text for a cell: cut to a width for people at a terminal, whole for everybody else."""
    return text if len(text) <= width or not sys.stdout.isatty() else f"{text[: width - 1]}…"


class Columns:
    """Rows in columns whose widths only grow: what is printed later lines up with what came before."""

    def __init__(self, header: Sequence[str], *, colour: bool = False) -> None:
        self.header = tuple(header)
        self._colour = colour
        self._widths = [len(name) for name in header]

    def widen(self, rows: Iterable[Sequence[str]]) -> None:
        """Make room for these."""
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def line(self, row: Sequence[str]) -> str:
        """One row, without a line end. The last column is not padded."""
        self.widen([row])
        *others, last = row
        padded = (
            self._painted(cell) + " " * (max(width + COLUMN_PADDING, MIN_COLUMN_WIDTH) - len(cell))
            for cell, width in zip(others, self._widths, strict=False)
        )
        return "".join(padded) + self._painted(last)

    def _painted(self, cell: str) -> str:
        return paint(cell, _STATE_COLOURS.get(cell, "")) if self._colour else cell


def paint(text: str, code: str) -> str:
    """Text in a colour of the terminal; none for no code."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def render(header: Sequence[str], rows: Sequence[Sequence[str]], *, headers: bool = True, colour: bool = False) -> str:
    """A whole table, each line ended. Without rows, nothing."""
    if not rows:
        return ""
    columns = Columns(header, colour=colour)
    if not headers:
        columns = Columns([""] * len(header), colour=colour)
    columns.widen(rows)
    lines = ([columns.line(header)] if headers else []) + [columns.line(row) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def cell_text(value: Any) -> str:
    """A cell of a server's table as text."""
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def labels_text(found: Mapping[str, str] | None) -> str:
    """All labels of an object in one cell."""
    return ",".join(f"{name}={value}" for name, value in sorted((found or {}).items())) or "<none>"


def write_stdout(text: str) -> None:
    """Data, to standard output."""
    sys.stdout.write(text)
    sys.stdout.flush()
