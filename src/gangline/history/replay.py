"""Replays segments: lines to versions of objects. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.history.deltas import patched
from gangline.history.records import (
    BodyLine,
    ChangeLine,
    DeletionLine,
    IndexedJob,
    JobSummary,
    JobVerdict,
    Line,
    LogEnd,
    LogLine,
    ObjectLine,
    ObjectVersion,
    PatchLine,
    PulseLine,
    SegmentIndex,
    StateLine,
    UsageLine,
    UsageSample,
    VerdictLine,
)
from gangline.history.segments import decode_line, segment_start
from gangline.history.selection import is_listed_job, job_summary, may_be_job

# The line end before a line is part of the match, because a search for fixed characters is fast. The first line is another.
_OBJECT_LINES = re.compile(rb'\n(\["object",[^\n]*)')
_USAGE_LINES = re.compile(rb'\n\["usage",(\d+)')


def _change_lines(numbers: Collection[int] | None) -> re.Pattern[bytes]:
    """Matches the lines about objects with these numbers, or about all: a Python loop over all lines would be slow."""
    choice = rb"\d+" if numbers is None else b"|".join(b"%d" % number for number in sorted(numbers)) or rb"(?!)"
    return re.compile(rb'\n(\["(?:state|body|patch|delete|log|why|usage)",(?:' + choice + rb")[,\]][^\n]*)")


class RecordedChange(msgspec.Struct, frozen=True, gc=False):
    """A line of a segment with what it is about. `initial`: the state of an object when the segment began."""

    version: ObjectVersion | None = None
    log: LogEnd | None = None
    verdict: JobVerdict | None = None
    usage: UsageSample | None = None
    initial: bool = False


class SegmentReplay:
    """The lines of one segment. Objects that are not asked for are skipped without being decoded."""

    def __init__(self, text: bytes, name: str) -> None:
        """`text` are the lines of the segment. Raises `HistoryDamaged`."""
        self.start = segment_start(text, name)
        self._text = text
        self.objects: dict[int, ObjectLine] = {}
        for match in _OBJECT_LINES.finditer(text):
            item = decode_line(match[1])
            assert isinstance(item, ObjectLine)
            self.objects[item.object] = item

    @property
    def end(self) -> float:
        """The time of the last line."""
        began = self.start.began if self.start is not None else 0.0
        end = len(self._text) - 1
        while end > 0:
            start = self._text.rfind(b"\n", 0, end) + 1
            decoded = decode_line(self._text[start:end])
            if isinstance(decoded, ChangeLine | PulseLine):
                return began + decoded.at / 1000
            end = start - 1
        return began

    def members(self, uid: str) -> set[int]:
        """The numbers of an object, of what it owns, directly or not, and of the events about them."""
        owned: dict[str, list[ObjectLine]] = {}
        for item in self.objects.values():
            owned.setdefault(item.about, []).append(item)
        members = {item.object for item in self.objects.values() if item.uid == uid}
        waiting, visited = [uid] if uid else [], {uid, ""}
        while waiting:
            for item in owned.get(waiting.pop(), ()):
                members.add(item.object)
                if item.uid not in visited:
                    visited.add(item.uid)
                    waiting.append(item.uid)
        return members

    def changes(self, numbers: Collection[int] | None = None, until: float | None = None) -> Iterator[RecordedChange]:
        """The changes of these objects, or of all, up to a moment, oldest first."""
        if self.start is None:
            return
        began = self.start.began
        limit = None if until is None else round((until - began) * 1000)
        bodies: dict[int, JSON] = {}
        for match in _change_lines(numbers).finditer(self._text):
            decoded = decode_line(match[1])
            if not isinstance(decoded, StateLine):
                assert isinstance(decoded, ChangeLine)
                if limit is not None and decoded.at > limit:
                    return
            yield _change(decoded, self.objects[decoded.object], began, bodies)

    def index(self) -> SegmentIndex:
        """The index of the segment, made from its lines."""
        assert self.start is not None
        jobs: dict[str, IndexedJob] = {}
        candidates = {number for number, item in self.objects.items() if may_be_job(item.path)}
        for change in self.changes(candidates):
            if (version := change.version) is None:
                continue
            if version.body is not None and is_listed_job(version.path, version.body):
                summary = job_summary(version.path, version.body, version.at)
                jobs[version.uid] = IndexedJob(summary, changed=not change.initial)
            elif version.body is None and version.uid in jobs:
                jobs[version.uid] = IndexedJob(deleted_job(jobs[version.uid].job, version.at), changed=True)
        measured = {self.objects[int(match[1])].about for match in _USAGE_LINES.finditer(self._text)}
        entries = tuple(
            msgspec.structs.replace(entry, changed=entry.changed or uid in measured) for uid, entry in jobs.items()
        )
        start, orphans = self.start, orphan_owners((item.uid, item.about) for item in self.objects.values())
        return SegmentIndex(start.source, start.stream, start.number, start.began, self.end, entries, orphans)


def _change(line: Line, item: ObjectLine, began: float, bodies: dict[int, JSON]) -> RecordedChange:
    match line:
        case StateLine():
            bodies[line.object] = line.body
            return RecordedChange(ObjectVersion(began, item.path, item.uid, line.body), initial=True)
        case BodyLine():
            bodies[line.object] = line.body
            return RecordedChange(ObjectVersion(began + line.at / 1000, item.path, item.uid, line.body))
        case PatchLine():
            body = bodies[line.object] = patched(bodies[line.object], line.patch)
            return RecordedChange(ObjectVersion(began + line.at / 1000, item.path, item.uid, body))
        case DeletionLine():
            bodies.pop(line.object, None)
            return RecordedChange(ObjectVersion(began + line.at / 1000, item.path, item.uid, None))
        case LogLine():
            where, at = split_path(item.path), began + line.at / 1000
            end = LogEnd(at, where.namespace, where.name, item.uid, line.container, line.run, line.attempt, line.text)
            return RecordedChange(log=end)
        case VerdictLine():
            where, at = split_path(item.path), began + line.at / 1000
            verdict = JobVerdict(at, where.namespace, where.plural, where.name, item.uid, line.report)
            return RecordedChange(verdict=verdict)
        case UsageLine():
            name, at = split_path(item.path).name, began + line.at / 1000
            return RecordedChange(usage=UsageSample(at, name, item.uid, line.millicores / 1000, line.memory * 1024))
        case _:
            raise AssertionError(line)


def deleted_job(job: JobSummary, at: float) -> JobSummary:
    """The summary of a job that was deleted."""
    return msgspec.structs.replace(job, deleted=at, last=at)


def orphan_owners(objects: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The uids of owners that are not among the objects; each object is its uid and that of what it is about."""
    pairs = list(objects)
    return tuple(sorted({about for _, about in pairs} - {uid for uid, _ in pairs} - {""}))
