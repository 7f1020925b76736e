"""Text in columns, as kubectl prints it; coloured states on a terminal."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

COLUMN_PADDING = 3
MIN_COLUMN_WIDTH = 6
"""The minimum width of a column with its padding, as in kubectl."""

_GREEN, _RED, _YELLOW, _BLUE, _DIM = "32", "31", "33", "36", "2"
_STATE_COLOURS = {
    **dict.fromkeys(("Running", "Ready", "True", "Bound", "Active"), _GREEN),
    **dict.fromkeys(("Succeeded", "Completed"), _BLUE),
    **dict.fromkeys(("Failed", "Error", "OOMKilled", "CrashLoopBackOff", "Blocked", "Stalled", "Evicted"), _RED),
    **dict.fromkeys(("ImagePullBackOff", "ErrImagePull", "ContainerCannotRun", "Warning"), _RED),
    **dict.fromkeys(("Pending", "Restarting", "ContainerCreating", "Created", "Terminating"), _YELLOW),
    **dict.fromkeys(("Suspended", "Stopped"), _DIM),
}


def is_ansi_terminal(stream: IO[str]) -> bool:
    """Whether a stream is a terminal that obeys ANSI escapes: cursor movement, erasing, colours."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def use_colour(stream: IO[str]) -> bool:
    """Whether to use colour: on an ANSI terminal, unless NO_COLOR is set (https://no-color.org).

    NO_COLOR is about colour only: a display may still redraw itself in place and use bold text.
    """
    return is_ansi_terminal(stream) and not os.environ.get("NO_COLOR")


def stdout_uses_colour() -> bool:
    """Whether standard output is printed in colour."""
    return use_colour(sys.stdout)


def clipped_text(text: str, width: int) -> str:
    """Text for a cell: cut to a width if standard output is a terminal, else unchanged."""
    return text if len(text) <= width or not sys.stdout.isatty() else f"{text[: width - 1]}…"


class Columns:
    """Formats rows in columns whose widths only grow, so that later rows line up with earlier ones."""

    def __init__(self, header: Sequence[str], *, colour: bool = False) -> None:
        self.header = tuple(header)
        self._colour = colour
        self._widths = [len(name) for name in header]

    def widen(self, rows: Iterable[Sequence[str]]) -> None:
        """Widen the columns to fit these rows."""
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def line(self, row: Sequence[str]) -> str:
        """One row as a line without line end. The last column is not padded."""
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
    """Text in the colour of an ANSI code; unchanged without a code."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def render(header: Sequence[str], rows: Sequence[Sequence[str]], *, headers: bool = True, colour: bool = False) -> str:
    """A table as text, every line with its line end. Empty without rows."""
    if not rows:
        return ""
    columns = Columns(header, colour=colour)
    if not headers:
        columns = Columns([""] * len(header), colour=colour)
    columns.widen(rows)
    lines = ([columns.line(header)] if headers else []) + [columns.line(row) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def cell_text(value: Any) -> str:
    """The text of a cell of a server's table, as kubectl prints it."""
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def labels_text(labels: Mapping[str, str] | None) -> str:
    """All labels of an object in one cell."""
    return ",".join(f"{name}={value}" for name, value in sorted((labels or {}).items())) or "<none>"


def write_stdout(text: str) -> None:
    """Write text to standard output and flush it."""
    sys.stdout.write(text)
    sys.stdout.flush()
