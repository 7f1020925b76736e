"""Log lines of several replicas as one stream, in order of time. Pure: times come from the lines."""

import heapq
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple

MERGE_DELAY = timedelta(milliseconds=250)
"""How long a line waits for an earlier one of another replica."""


class TimedLine(NamedTuple):
    """What a replica said, and when: the moment as text has nine digits and sorts as text does."""

    timestamp: str
    replica: str
    text: str

    def as_text(self, *, prefix: bool = True, timestamps: bool = False) -> str:
        """As a person reads it."""
        stamp = f"{self.timestamp} " if timestamps else ""
        return f"{self.replica}| {stamp}{self.text}" if prefix else f"{stamp}{self.text}"


def parse_line(member: str, raw: bytes) -> TimedLine:
    """A line that the server put a time before. One without (a broken write) has none, and sorts first."""
    text = raw.decode(errors="replace")
    stamp, space, rest = text.partition(" ")
    moment = normalized_time(stamp)
    return TimedLine(moment, member, rest if space else "") if moment else TimedLine("", member, text)


def printable_text(line: str, *, coloured: bool = False) -> str:
    """A program's line among ours: it may have colours, if we say so, and gives a terminal no other orders."""
    if line.isprintable():
        return line
    # A bar that a program draws over itself: its last state.
    kept = line.rstrip("\r").rpartition("\r")[2]
    kept = _ESCAPE.sub(lambda found: found[0] if coloured and found[1] == "m" else "", kept)
    kept = _CONTROL.sub("", kept)
    return f"{kept}\x1b[0m" if "\x1b" in kept else kept


_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?<=>]*([A-Za-z@`~])|\].*?(?:\x07|\x1b\\)|[^\[\]])?")
# An escape that is left is one of a colour.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]")


def normalized_time(stamp: str) -> str:
    """A time of RFC 3339 in UTC with nine digits, so that texts compare as times do; empty for none."""
    body, dot, fraction = stamp.rstrip("Z").partition(".")
    if not stamp.endswith("Z"):
        try:
            found = datetime.fromisoformat(stamp)
        except ValueError:
            return ""
        if found.tzinfo is None:
            return ""
        shifted = found - (found.utcoffset() or timedelta())
        digits = fraction.partition("+")[0].partition("-")[0] if dot else ""
        return f"{shifted.replace(tzinfo=None, microsecond=0).isoformat()}.{digits[:9]:0<9}Z"
    if len(body) != 19 or body[10] != "T":
        return ""
    return f"{body}.{fraction[:9]:0<9}Z"


def merge_lines(sources: Iterable[Iterable[TimedLine]]) -> Iterator[TimedLine]:
    """All lines, earliest first; lines of one replica stay in their order."""
    return heapq.merge(*(_with_rising_times(source) for source in sources), key=lambda line: line.timestamp)


def _with_rising_times(lines: Iterable[TimedLine]) -> Iterator[TimedLine]:
    """Times that never go back: a line without one belongs to the line before it."""
    last = ""
    for line in lines:
        last = max(last, line.timestamp)
        yield line._replace(timestamp=last)


class LineMerger:
    """Live lines, held for a moment so that an earlier one of another replica can still come before them."""

    def __init__(self) -> None:
        self._heap: list[tuple[str, int, datetime, TimedLine]] = []
        self._sequence = count()
        self._last_timestamps: dict[str, str] = {}

    def add(self, line: TimedLine, now: datetime) -> None:
        """Take a line that came now."""
        moment = max(self._last_timestamps.get(line.replica, ""), line.timestamp)
        self._last_timestamps[line.replica] = moment
        heapq.heappush(self._heap, (moment, next(self._sequence), now, line._replace(timestamp=moment)))

    def due_lines(self, now: datetime) -> Iterator[TimedLine]:
        """Lines that have waited long enough, and all that are earlier than these."""
        ready = [moment for moment, _, came, _ in self._heap if now - came >= MERGE_DELAY]
        if ready:
            latest = max(ready)
            while self._heap and self._heap[0][0] <= latest:
                yield heapq.heappop(self._heap)[3]

    def drain(self) -> Iterator[TimedLine]:
        """Everything that is left."""
        while self._heap:
            yield heapq.heappop(self._heap)[3]
