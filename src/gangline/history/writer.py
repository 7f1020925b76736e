"""Writes a history: an append-only sequence of segments in a folder.

A segment begins with the states of all objects, so that every moment of it can be replayed without another segment.
It is closed when the changes in it outweigh those states, so at most half of a history are states. A segment never
changes after that; the oldest are removed when the history is too large or too old.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.base.files import private_folder
from gangline.history.deltas import patch_between
from gangline.history.records import (
    FORMAT_VERSION,
    BodyLine,
    DeletionLine,
    IndexedJob,
    JobSummary,
    Line,
    LogLine,
    ObjectLine,
    PatchLine,
    PulseLine,
    SegmentIndex,
    SegmentStart,
    StateLine,
    UsageLine,
    VerdictLine,
)
from gangline.history.replay import orphan_owners
from gangline.history.retention import HistoryLimits
from gangline.history.segments import SegmentFile, SegmentName, encode_line
from gangline.history.selection import is_listed_job, job_summary, subject_uid

FRAME_LINES = 500
"""Lines in a frame of states."""
DEFAULT_LIMITS = HistoryLimits()


class NextSegment(msgspec.Struct, frozen=True):
    """The segment to begin after a flush: its number and its first lines, and the index of the one before it."""

    began: float
    number: int
    states: list[tuple[ObjectLine, JSON]]
    index: SegmentIndex


class PendingLines(NamedTuple):
    """What a flush writes."""

    lines: list[bytes]
    next: NextSegment | None = None


class HistoryWriter:
    """Appends to one stream of a folder. Lines are in memory until they are flushed.

    A flush hands lines to the operating system, so they survive the end of this process; a closed segment survives a
    power loss too. `take` and `write` are the two halves of `flush`: the second may run in a thread.
    """

    def __init__(
        self,
        folder: Path,
        now: float,
        *,
        source: str,
        objects: Mapping[str, JSON] | None = None,
        limits: HistoryLimits = DEFAULT_LIMITS,
    ) -> None:
        """`objects` are the states of all objects now, by path."""
        self._folder, self._source, self._min_segment = folder, source, limits.segment_bytes
        self._stream = secrets.token_hex(4)
        self._bodies: dict[str, JSON] = dict(objects or {})
        self._last = now
        self._file: SegmentFile | None = None
        self._pending: list[bytes] = []
        self._first = self._begin_segment(now, 0)

    @property
    def objects(self) -> Mapping[str, JSON]:
        """The newest states of all objects, by path."""
        return self._bodies

    # Recording

    def record(self, at: float, path: str, body: JSON | None) -> None:
        """Add a version of the object at a path; None: it was deleted. The body must not be changed afterwards."""
        before = self._bodies.get(path)
        if before is not None and (body is None or _uid(before) != _uid(body)):
            self._add(DeletionLine(self._number(path, before), self._offset(at)))
            del self._bodies[path]
            if is_listed_job(path, before):
                last = job_summary(path, before, at)
                self._ended_jobs[last.uid] = msgspec.structs.replace(last, deleted=at)
            before = None
        if body is None:
            return
        self._bodies[path] = body
        number = self._number(path, body)
        patch = patch_between(before, body) if before is not None else None
        if patch is None:
            self._add(BodyLine(number, self._offset(at), body))
        elif patch:
            self._add(PatchLine(number, self._offset(at), patch))
        else:
            return
        self._changed[path] = at

    def record_log(self, at: float, path: str, pod: JSON, end: LogLine) -> None:
        """Add the end of the log of a container of the pod at a path. The numbers and time of `end` are set here."""
        number = self._number(path, pod)
        self._add(msgspec.structs.replace(end, object=number, at=self._offset(at)))

    def record_verdict(self, at: float, path: str, job: JSON, report: JSON) -> None:
        """Add what `gangline why` said of the job at a path."""
        self._add(VerdictLine(self._number(path, job), self._offset(at), report))
        self._changed.setdefault(path, at)

    def record_usage(self, at: float, path: str, pod: JSON, cores: float, memory: int) -> None:
        """Add what the pod at a path uses: CPU cores, and bytes of memory."""
        self._add(UsageLine(self._number(path, pod), self._offset(at), round(cores * 1000), memory // 1024))
        self._measured.add(subject_uid(pod))

    def pulse(self, at: float) -> None:
        """Record that every change until now is recorded."""
        self._add(PulseLine(self._offset(at)))

    # Writing

    def flush(self) -> None:
        """Write the lines that are in memory. Raises OSError."""
        self.write(self.take())

    def take(self) -> PendingLines:
        """The lines to write next; what is recorded from now on comes after them."""
        lines, self._pending = self._pending, []
        self._segment_bytes += sum(map(len, lines))
        if self._segment_bytes < max(self._min_segment, self._state_bytes):
            return PendingLines(lines)
        index, number = self._index(), self._segment_number + 1
        return PendingLines(lines, self._begin_segment(self._last, number, index))

    def write(self, pending: PendingLines) -> None:
        """Write lines of `take`, in the order in which they were taken. Raises OSError."""
        file = self._file or self._open_segment(self._first)
        if pending.lines:
            file.append(pending.lines)
        if pending.next is not None:
            file.close(pending.next.index)
            self._open_segment(pending.next)

    def close(self, at: float) -> None:
        """End the stream in order. Raises OSError."""
        self.pulse(at)
        lines, self._pending = self._pending, []
        file = self._file or self._open_segment(self._first)
        file.append(lines)
        file.close(self._index())

    def abandon(self) -> None:
        """Give up the segment after a failed write. It ends with its last complete frame."""
        if self._file is not None:
            self._file.abandon()

    # Segments

    def _begin_segment(self, now: float, number: int, index: SegmentIndex | None = None) -> NextSegment:
        self._began, self._segment_number = now, number
        self._numbers: dict[tuple[str, str], tuple[int, str]] = {}
        # Paths of objects that changed in the segment, with the time of their last version; jobs that were deleted in it.
        self._changed: dict[str, float] = {}
        self._ended_jobs: dict[str, JobSummary] = {}
        # The uids of jobs whose pods were measured in it.
        self._measured: set[str] = set()
        self._segment_bytes, self._state_bytes = 0, 0
        states = []
        for path, body in self._bodies.items():
            uid, about = _uid(body), subject_uid(body)
            states.append((ObjectLine(len(self._numbers), path, uid, about), body))
            self._numbers[path, uid] = len(self._numbers), about
        empty = SegmentIndex(self._source, self._stream, number, now, now)
        return NextSegment(now, number, states, index or empty)

    def _open_segment(self, begin: NextSegment) -> SegmentFile:
        private_folder(self._folder)
        name = SegmentName(round(begin.began * 1000), self._stream, begin.number)
        self._file = file = SegmentFile(self._folder / name.text)
        lines = [encode_line(SegmentStart(FORMAT_VERSION, self._source, self._stream, begin.number, begin.began))]
        size = 0
        for described, body in begin.states:
            lines += encode_line(described), encode_line(StateLine(described.object, body))
            if len(lines) > FRAME_LINES:
                size += sum(map(len, lines))
                file.append(lines)
                lines.clear()
        if lines:
            file.append(lines)
        self._state_bytes = size + sum(map(len, lines))
        return file

    def _index(self) -> SegmentIndex:
        current = {
            _uid(body): IndexedJob(
                job_summary(path, body, self._changed.get(path, self._began)),
                path in self._changed or _uid(body) in self._measured,
            )
            for path, body in self._bodies.items()
            if is_listed_job(path, body)
        }
        ended = {uid: IndexedJob(job, changed=True) for uid, job in self._ended_jobs.items()}
        jobs = tuple((ended | current).values())
        orphans = orphan_owners((uid, about) for (_, uid), (_, about) in self._numbers.items())
        number, began, last = self._segment_number, self._began, self._last
        return SegmentIndex(self._source, self._stream, number, began, last, jobs, orphans)

    def _number(self, path: str, body: JSON) -> int:
        key, about = (path, _uid(body)), subject_uid(body)
        known = self._numbers.get(key)
        if known is not None and known[1] == about:
            return known[0]
        number = known[0] if known is not None else len(self._numbers)
        self._numbers[key] = number, about
        self._pending.append(encode_line(ObjectLine(number, *key, about)))
        return number

    def _offset(self, at: float) -> int:
        # A clock that is set back must not make later changes older than earlier ones.
        self._last = max(self._last, at)
        return round((self._last - self._began) * 1000)

    def _add(self, line: Line) -> None:
        self._pending.append(encode_line(line))


def _uid(body: JSON) -> str:
    return str(body["metadata"].get("uid", ""))
