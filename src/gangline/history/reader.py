"""Reads a history: objects at a moment, the versions of a job and of what belongs to it, ends of logs, verdicts."""

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from gangline.api.meta import JSON
from gangline.history.records import (
    JobSummary,
    JobVerdict,
    LogEnd,
    ObjectVersion,
    RecordedSpan,
    SegmentIndex,
    UsageSample,
)
from gangline.history.replay import RecordedChange, SegmentReplay, deleted_job
from gangline.history.retention import segment_paths
from gangline.history.segments import HistoryDamaged, read_index, read_text


class SegmentSource(Protocol):
    """Where segments are: a folder, or an object store."""

    def names(self) -> list[str]:
        """The names of the segments, oldest first."""
        ...

    def read(self, name: str) -> bytes:
        """All of a segment. Raises `FileNotFoundError` if it was removed."""
        ...

    def index(self, name: str) -> SegmentIndex | None:
        """The index of a segment, None if it is not closed. Raises `FileNotFoundError` if it was removed."""
        ...


class FolderSegments:
    """The segments in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return [path.name for path in segment_paths(self._folder)]

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def index(self, name: str) -> SegmentIndex | None:
        return read_index(self._folder / name)


class _Segment(msgspec.Struct, frozen=True):
    name: str
    index: SegmentIndex


class HistoryReader:
    """The history in a folder. Every call reads what is there now; the index of a closed segment is read once."""

    def __init__(self, segments: Path | SegmentSource, source: str = "") -> None:
        """`source` is the server to read, as in `RecordedSpan`; empty: all."""
        self._segments = FolderSegments(segments) if isinstance(segments, Path) else segments
        self._source = source
        self._indexes: dict[str, SegmentIndex] = {}

    def spans(self) -> list[RecordedSpan]:
        """The times in which changes were recorded, oldest first. Those of several servers may overlap."""
        spans: dict[str, RecordedSpan] = {}
        for segment in self._load():
            index = segment.index
            start = spans[index.stream].start if index.stream in spans else index.start
            spans[index.stream] = RecordedSpan(index.source, start, index.end)
        return sorted(spans.values(), key=lambda span: span.start)

    def last_recorded(self, moment: float) -> float | None:
        """The moment, or the last before it at which anything was recorded; None if there is none."""
        return max((min(moment, span.end) for span in self.spans() if span.start <= moment), default=None)

    def objects_at(self, moment: float) -> dict[str, JSON]:
        """The objects at a moment, by path: those of every server that was recorded then."""
        return {path: body for objects in self.servers_at(moment).values() for path, body in objects.items()}

    def servers_at(self, moment: float) -> dict[str, dict[str, JSON]]:
        """The objects at a moment, by path, of each server that was recorded then."""
        servers: dict[str, dict[str, JSON]] = {}
        for segment in self._covering(moment):
            objects = servers.setdefault(segment.index.source, {})
            replay = self._replay(segment.name)
            for change in replay.changes(until=moment) if replay is not None else ():
                if (version := change.version) is None:
                    continue
                if version.body is None:
                    objects.pop(version.path, None)
                else:
                    objects[version.path] = version.body
        return servers

    def changes(
        self, start: float, end: float, where: Callable[[str], bool] = lambda _: True
    ) -> Iterator[ObjectVersion]:
        """The versions that began in a span of time, of objects at paths for which `where` holds, oldest first."""
        segments = [segment for segment in self._load() if segment.index.start <= end and segment.index.end >= start]

        def selected(replay: SegmentReplay) -> set[int]:
            return {number for number, item in replay.objects.items() if where(item.path)}

        versions = _versions(self._changes(segments, selected))
        return iter(sorted((one for one in versions if start <= one.at <= end), key=lambda version: version.at))

    def jobs(self) -> list[JobSummary]:
        """Every recorded job, the newest last."""
        return sorted(_job_summaries(self._load()).values(), key=lambda job: (job.created, job.name))

    def job_bodies(self, uids: Collection[str]) -> dict[str, JSON]:
        """The last version of each of these jobs, by uid."""
        segments = [
            segment
            for segment in self._load()
            if any(entry.changed and entry.job.uid in uids for entry in segment.index.jobs)
        ]
        bodies: dict[str, JSON] = {}

        def selected(replay: SegmentReplay) -> set[int]:
            return {number for number, item in replay.objects.items() if item.uid in uids}

        for version in _versions(self._changes(segments, selected)):
            if version.body is not None:
                bodies[version.uid] = version.body
        return bodies

    def job_changes(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[ObjectVersion]:
        """The versions of a job, of the objects it owns and of the events about any of them, oldest first.

        Without `uid` it is the newest job of that name. Empty if there is no such job.
        """
        job, changes = self._job_changes(namespace, plural, name, uid)
        versions = sorted(_versions(changes), key=lambda version: version.at)
        if job is not None and job.deleted is not None:
            # Objects that went while nobody recorded went with the job, as far as anybody knows.
            newest = {(version.path, version.uid): version for version in versions}
            present = (version for version in newest.values() if version.body is not None)
            versions += [
                ObjectVersion(job.deleted, version.path, version.uid, None)
                for version in present
                if version.at <= job.deleted and (version.uid == job.uid or not version.path.startswith("//events/"))
            ]
        return versions

    def log_ends(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[LogEnd]:
        """The ends of the logs of a job's containers, oldest first."""
        _, changes = self._job_changes(namespace, plural, name, uid)
        return sorted((change.log for change in changes if change.log is not None), key=lambda end: end.at)

    def verdicts(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[JobVerdict]:
        """What `gangline why` said of a job, oldest first."""
        _, changes = self._job_changes(namespace, plural, name, uid)
        found = (change.verdict for change in changes if change.verdict is not None)
        return sorted(found, key=lambda verdict: verdict.at)

    def usage(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[UsageSample]:
        """The CPU and memory that the pods of a job used, oldest first."""
        _, changes = self._job_changes(namespace, plural, name, uid)
        return sorted((change.usage for change in changes if change.usage is not None), key=lambda sample: sample.at)

    def pod_log_ends(self, uid: str, moment: float) -> list[LogEnd]:
        """The ends of the logs of a pod that existed at a moment, oldest first; also of containers that ended later."""
        ends: list[LogEnd] = []
        segments = self._load()
        for covering in self._covering(moment):
            source = [segment for segment in segments if segment.index.source == covering.index.source]
            at = next(number for number, segment in enumerate(source) if segment.name == covering.name)
            for direction in (source[at:], source[:at][::-1]):
                for segment in direction:
                    replay = self._replay(segment.name)
                    numbers = replay.members(uid) if replay is not None else ()
                    if replay is None or not numbers:
                        break
                    ends += [change.log for change in replay.changes(numbers) if change.log is not None]
        return sorted((end for end in ends if end.uid == uid), key=lambda end: end.at)

    # Segments

    def _load(self) -> list[_Segment]:
        """All segments with their indexes, oldest first. A segment that cannot be read is left out."""
        segments = []
        for name in self._segments.names():
            index = self._indexes.get(name) or self._read_index(name)
            if index is not None and self._source in ("", index.source):
                segments.append(_Segment(name, index))
        return sorted(segments, key=lambda segment: (segment.index.start, segment.index.number))

    def _read_index(self, name: str) -> SegmentIndex | None:
        try:
            index = self._segments.index(name)
        except FileNotFoundError:
            return None
        if index is not None:
            self._indexes[name] = index
            return index
        replay = self._replay(name)
        return replay.index() if replay is not None and replay.start is not None else None

    def _replay(self, name: str) -> SegmentReplay | None:
        try:
            return SegmentReplay(read_text(self._segments.read(name)), name)
        except (FileNotFoundError, HistoryDamaged):
            return None

    def _changes(
        self, segments: Iterable[_Segment], select: Callable[[SegmentReplay], set[int]]
    ) -> Iterator[RecordedChange]:
        for segment in segments:
            replay = self._replay(segment.name)
            if replay is not None:
                yield from replay.changes(select(replay))

    def _covering(self, moment: float) -> list[_Segment]:
        """The segment of each stream that has a moment."""
        newest: dict[str, _Segment] = {}
        ends: dict[str, float] = {}
        for segment in self._load():
            index = segment.index
            ends[index.stream] = index.end
            if index.start <= moment:
                newest[index.stream] = segment
        return [segment for stream, segment in newest.items() if moment <= ends[stream]]

    def _job_changes(
        self, namespace: str, plural: str, name: str, uid: str | None
    ) -> tuple[JobSummary | None, list[RecordedChange]]:
        """A job, and all that is recorded of it and of what belongs to it."""
        segments = self._load()
        summaries = _job_summaries(segments).values()
        named = [job for job in summaries if (job.namespace, job.plural, job.name) == (namespace, plural, name)]
        if uid is not None:
            named = [job for job in named if job.uid == uid]
        if not named:
            return None, []
        job = max(named, key=lambda job: (job.created, job.last))
        relevant: list[_Segment] = []
        for segment in segments:
            listed = [entry.changed for entry in segment.index.jobs if entry.job.uid == job.uid]
            # A segment in which nothing changed matters only if it is the oldest that is left.
            if any(listed) or (listed and not relevant) or job.uid in segment.index.orphan_owners:
                relevant.append(segment)
        return job, list(self._changes(relevant, lambda replay: replay.members(job.uid)))


def _job_summaries(segments: Iterable[_Segment]) -> dict[str, JobSummary]:
    """Every job, by uid."""
    jobs: dict[str, JobSummary] = {}
    present: dict[str, set[str]] = {}
    for segment in segments:
        index = segment.index
        for uid in present.get(index.source, set()) - {entry.job.uid for entry in index.jobs}:
            # It was deleted while nobody recorded.
            jobs[uid] = deleted_job(jobs[uid], index.start)
        for entry in index.jobs:
            if entry.changed or entry.job.uid not in jobs:
                jobs[entry.job.uid] = entry.job
        present[index.source] = {entry.job.uid for entry in index.jobs if entry.job.deleted is None}
    return jobs


def _versions(changes: Iterable[RecordedChange]) -> Iterator[ObjectVersion]:
    """The versions among changes. States at the beginning of a segment count only where they differ from the last one."""
    newest: dict[tuple[str, str], JSON | None] = {}
    for change in changes:
        if (version := change.version) is None:
            continue
        key = version.path, version.uid
        if not change.initial or newest.get(key) != version.body:
            yield version
        newest[key] = version.body
