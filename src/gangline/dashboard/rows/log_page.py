"""Log lines of a team: merged by time, filtered, repeats folded, page by page. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from gangline.dashboard.rows.job_row import ViewStruct
from gangline.summary.log_lines import TimedLine, printable_text

MAX_LINE_LENGTH = 4000


class AttemptLine(NamedTuple):
    """A line of one run of a container; `attempt` counts its runs from 0."""

    line: TimedLine
    attempt: int


class LogLineView(ViewStruct, frozen=True):
    """A line, or several equal ones of a replica in a row."""

    at: str
    replica: str
    attempt: int
    text: str
    repeats: int


class LogPage(ViewStruct, frozen=True):
    """A page of lines; `cursor` continues after it."""

    lines: list[LogLineView]
    cursor: str
    more: bool
    # What could not be read, in words.
    not_read: list[str]
    # With this id, `logs/stream` sends the lines that come after the page; empty if none will come, or there are more pages.
    follow: str = ""


class LogLines(ViewStruct, frozen=True):
    """Lines that have just been written."""

    lines: list[LogLineView]
    not_read: list[str]


class LogQuery(ViewStruct, frozen=True):
    """Which lines: of replicas, from and to a time (as timestamps that sort as text), with a text in them."""

    replicas: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    search: str = ""
    fold: bool = True
    limit: int = 500
    cursor: str = ""
    # Only so many of the last lines of each replica.
    tail: int | None = None

    @property
    def filters_lines(self) -> bool:
        """Whether not all lines of a replica are asked for."""
        return bool(self.start or self.end or self.search)

    def has_replica(self, replica: str) -> bool:
        """Whether lines of a replica are asked for: by its name or its type."""
        return not self.replicas or replica in self.replicas or replica.rpartition("-")[0] in self.replicas

    def matches(self, line: TimedLine) -> bool:
        """Whether a line is asked for."""
        if not self.has_replica(line.replica):
            return False
        if (self.start and line.timestamp < self.start) or (self.end and line.timestamp > self.end):
            return False
        return self.search.lower() in line.text.lower()


EVERYTHING = LogQuery()


def log_page(lines: Iterable[AttemptLine], query: LogQuery, not_read: list[str]) -> LogPage:
    """The page of lines after the cursor. `lines` are in the order of time; a cursor is a number of matching lines."""
    skipped = int(query.cursor) if query.cursor.isdecimal() else 0
    matching = islice((item for item in lines if query.matches(item.line)), skipped, None)
    views: list[LogLineView] = []
    taken = 0
    for item in matching:
        view = line_view(item)
        last = views[-1] if views else None
        if query.fold and last is not None and _is_repeat(last, view):
            views[-1] = LogLineView(
                at=last.at, replica=last.replica, attempt=last.attempt, text=last.text, repeats=last.repeats + 1
            )
        elif len(views) == query.limit:
            return LogPage(lines=views, cursor=str(skipped + taken), more=True, not_read=not_read)
        else:
            views.append(view)
        taken += 1
    return LogPage(lines=views, cursor=str(skipped + taken), more=False, not_read=not_read)


def _is_repeat(view: LogLineView, other: LogLineView) -> bool:
    return (view.replica, view.attempt, view.text) == (other.replica, other.attempt, other.text)


def line_view(item: AttemptLine) -> LogLineView:
    """A line as a page shows it."""
    text = printable_text(item.line.text)
    return LogLineView(
        at=item.line.timestamp,
        replica=item.line.replica,
        attempt=item.attempt,
        text=text if len(text) <= MAX_LINE_LENGTH else f"{text[:MAX_LINE_LENGTH]}…",
        repeats=1,
    )


def merged_attempts(sources: Iterable[Iterable[AttemptLine]]) -> Iterator[AttemptLine]:
    """All lines, earliest first; lines of one source stay in their order."""
    import heapq

    return heapq.merge(*(_rising(source) for source in sources), key=lambda item: item.line.timestamp)


def _rising(source: Iterable[AttemptLine]) -> Iterator[AttemptLine]:
    last = ""
    for item in source:
        last = max(last, item.line.timestamp)
        yield AttemptLine(item.line._replace(timestamp=last), item.attempt)
