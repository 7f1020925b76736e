"""Whether a running job gives signs of life: log lines, progress, changes of its pods, CPU use. Pure."""

from typing import NamedTuple

import msgspec

from gangline.cli.output.text import Span, StyledLine, duration_text, whole_seconds_text

IDLE_CORES = 0.01
"""A replica that uses less CPU than this is idle; `gangline why` has the same limit."""
QUIET_AFTER = 10.0
"""After so many seconds without a log line the screen says how long ago the last one was."""


class LifeSigns(msgspec.Struct, frozen=True):
    """When a job gave its last signs of life, in seconds since the start of the run."""

    # The last log line or progress report; None: there was none.
    last_line: float | None = None
    # The last sign of any kind.
    last_sign: float = 0.0

    def with_line(self, now: float) -> "LifeSigns":
        return LifeSigns(now, now)

    def with_sign(self, now: float) -> "LifeSigns":
        return LifeSigns(self.last_line, now)


class HangWatch(NamedTuple):
    """From when on a job without a sign of life is reported, and what to type then."""

    seconds: float = 60.0
    command: str = ""


def is_lifeless(signs: LifeSigns, now: float, watch: HangWatch) -> bool:
    """Whether there was no sign of life for so long that the user should look."""
    return now - signs.last_sign >= watch.seconds


def silence_lines(signs: LifeSigns, now: float, watch: HangWatch) -> list[StyledLine]:
    """The lines about a silent job: how long ago its last log line was; if it is also idle, what to type. Or none."""
    if is_lifeless(signs, now, watch):
        return hang_lines(signs, now, watch)
    since = now - (signs.last_line or 0.0)
    if since < QUIET_AFTER:
        return []
    text = "no log line yet" if signs.last_line is None else f"last log line {duration_text(since)} ago"
    return [(Span(f"  {text}", "dim"),)]


def stall_lines(message: str, command: str) -> list[StyledLine]:
    """What the operator says of a job that makes no progress, and the command that looks into it."""
    return [
        (Span("  stalled", "bold yellow"), Span(f": {message}", "yellow")),
        (Span("  in another terminal: ", "dim"), Span(command)),
    ]


def hang_lines(signs: LifeSigns, now: float, watch: HangWatch) -> list[StyledLine]:
    """What is said about a job that seems to hang, and the command that looks into it."""
    silence = whole_seconds_text(now - signs.last_sign)
    ago = whole_seconds_text(now - (signs.last_line or 0.0))
    last = "no log line yet" if signs.last_line is None else f"last log line {ago} ago"
    return [
        (Span(f"  no sign of life for {silence}", "bold yellow"), Span(f": no CPU use, {last}", "yellow")),
        (Span("  in another terminal: ", "dim"), Span(watch.command)),
    ]
