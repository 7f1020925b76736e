"""Log lines of several replicas merged into one stream, in order of time. Pure: the times come from the lines."""

import heapq
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple

MERGE_DELAY = timedelta(milliseconds=250)
"""How long a line is held back for an earlier line of another replica."""


class TimedLine(NamedTuple):
    """A log line of a replica. The timestamp is UTC with nine fractional digits, so that it sorts as text."""

    timestamp: str
    replica: str
    text: str

    def as_text(self, *, prefix: bool = True, timestamps: bool = False) -> str:
        """The line as printed, with the replica before it and, on request, the timestamp."""
        stamp = f"{self.timestamp} " if timestamps else ""
        return f"{self.replica}| {stamp}{self.text}" if prefix else f"{stamp}{self.text}"


def parse_line(replica: str, raw: bytes) -> TimedLine:
    """A log line with the timestamp that the server put before it; empty if there is none (after a broken write)."""
    text = raw.decode(errors="replace")
    stamp, space, rest = text.partition(" ")
    timestamp = normalized_time(stamp)
    return TimedLine(timestamp, replica, rest if space else "") if timestamp else TimedLine("", replica, text)


def printable_text(line: str, *, coloured: bool = False) -> str:
    """A program's line without control characters, so that it cannot steer the terminal; colours stay if `coloured`."""
    if line.isprintable():
        return line
    # A progress bar overwrites itself after each carriage return: keep its last state.
    text = line.rstrip("\r").rpartition("\r")[2]
    text = _ESCAPE.sub(lambda escape: escape[0] if coloured and escape[1] == "m" else "", text)
    text = _CONTROL.sub("", text)
    return f"{text}\x1b[0m" if "\x1b" in text else text


_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?<=>]*([A-Za-z@`~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[^\[\]])?")
# Without \x1b: the escapes that remain are colours.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]")


def normalized_time(stamp: str) -> str:
    """An RFC 3339 time in UTC with nine fractional digits, so that texts sort as times; empty if it is none."""
    body, dot, fraction = stamp.rstrip("Z").partition(".")
    if not stamp.endswith("Z"):
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            return ""
        if moment.tzinfo is None:
            return ""
        utc = moment - (moment.utcoffset() or timedelta())
        digits = fraction.partition("+")[0].partition("-")[0] if dot else ""
        return f"{utc.replace(tzinfo=None, microsecond=0).isoformat()}.{digits[:9]:0<9}Z"
    if len(body) != 19 or body[10] != "T":
        return ""
    return f"{body}.{fraction[:9]:0<9}Z"


def merge_lines(sources: Iterable[Iterable[TimedLine]]) -> Iterator[TimedLine]:
    """All lines, earliest first; lines of one replica stay in their order."""
    return heapq.merge(*(_with_rising_times(source) for source in sources), key=lambda line: line.timestamp)


def _with_rising_times(lines: Iterable[TimedLine]) -> Iterator[TimedLine]:
    """Lines with timestamps that never decrease; a line without one gets that of the line before it."""
    last = ""
    for line in lines:
        last = max(last, line.timestamp)
        yield line._replace(timestamp=last)


class LineMerger:
    """Merges live lines: holds each back for `MERGE_DELAY`, so that an earlier line of another replica comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[str, int, datetime, TimedLine]] = []
        self._sequence = count()
        self._last_timestamps: dict[str, str] = {}

    def add(self, line: TimedLine, now: datetime) -> None:
        """Add a line that arrived at `now`."""
        timestamp = max(self._last_timestamps.get(line.replica, ""), line.timestamp)
        self._last_timestamps[line.replica] = timestamp
        heapq.heappush(self._heap, (timestamp, next(self._sequence), now, line._replace(timestamp=timestamp)))

    def due_lines(self, now: datetime) -> Iterator[TimedLine]:
        """Lines that were held back long enough, and all earlier lines."""
        due = [timestamp for timestamp, _, arrived, _ in self._heap if now - arrived >= MERGE_DELAY]
        if due:
            latest = max(due)
            while self._heap and self._heap[0][0] <= latest:
                yield heapq.heappop(self._heap)[3]

    def drain(self) -> Iterator[TimedLine]:
        """All lines that are still held back."""
        while self._heap:
            yield heapq.heappop(self._heap)[3]
