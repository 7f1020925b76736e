"""Reads a history: objects at a moment, the versions of a job and of what belongs to it, ends of logs, verdicts."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.history.deltas import patched
from gangline.history.records import (
    BodyLine,
    DeletionLine,
    JobSummary,
    JobVerdict,
    LogEnd,
    LogLine,
    ObjectLine,
    ObjectVersion,
    PatchLine,
    PulseLine,
    RecordedSpan,
    SegmentStart,
    StateLine,
    VerdictLine,
)
from gangline.history.segments import SUFFIX, read_segment

_END_CONDITIONS = ("Succeeded", "Failed")


class HistoryReader:
    """The history in a folder. Every call reads what is there now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spans(self) -> list[RecordedSpan]:
        """The times in which changes were recorded, oldest first. Those of different runs may overlap."""
        return [RecordedSpan(replay.start, replay.end) for replay in self._replays()]

    def objects_at(self, moment: float) -> dict[str, JSON]:
        """The objects at a moment, by path: those of every run and plane that was recorded then."""
        objects: dict[str, JSON] = {}
        for replay in self._replays():
            if replay.start <= moment <= replay.end:
                state: dict[str, JSON | None] = {}
                for version in replay.versions:
                    if version.at <= moment:
                        state[version.path] = version.body
                objects |= {path: body for path, body in state.items() if body is not None}
        return objects

    def changes(
        self, start: float, end: float, where: Callable[[str], bool] = lambda path: True
    ) -> Iterator[ObjectVersion]:
        """The versions that began in a span of time, of objects at the paths for which `where` holds, oldest first."""
        found = [
            version
            for replay in self._replays()
            for version in replay.versions
            if start <= version.at <= end and where(version.path)
        ]
        return iter(sorted(found, key=lambda version: version.at))

    def jobs(self) -> list[JobSummary]:
        """Every recorded job, the newest last."""
        jobs: dict[str, JobSummary] = {}
        for replay in self._replays():
            for version in replay.versions:
                if version.body is not None and is_job(version.body):
                    jobs[version.uid] = job_summary(version)
                elif version.uid in jobs:
                    jobs[version.uid] = _deleted_job(jobs[version.uid], version.at)
        return sorted(jobs.values(), key=lambda job: job.created)

    def job_changes(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[ObjectVersion]:
        """The versions of a job, of the objects it owns and of the events about any of them, oldest first.

        Without `uid` it is the newest job of that name. Empty if there is no such job.
        """
        uid = uid or self._newest_uid(namespace, plural, name)
        found: list[ObjectVersion] = []
        for replay in self._replays():
            members = replay.members(uid)
            found += [version for version in replay.versions if version.uid in members]
        return sorted(found, key=lambda version: version.at)

    def log_ends(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[LogEnd]:
        """The ends of the logs of a job's containers, oldest first."""
        uid = uid or self._newest_uid(namespace, plural, name)
        found: list[LogEnd] = []
        for replay in self._replays():
            members = replay.members(uid)
            found += [end for end in replay.log_ends if end.uid in members]
        return sorted(found, key=lambda end: end.at)

    def verdicts(self, namespace: str, plural: str, name: str, uid: str | None = None) -> list[JobVerdict]:
        """What `why` said of a job, oldest first."""
        uid = uid or self._newest_uid(namespace, plural, name)
        found = [verdict for replay in self._replays() for verdict in replay.verdicts if verdict.uid == uid]
        return sorted(found, key=lambda verdict: verdict.at)

    def _newest_uid(self, namespace: str, plural: str, name: str) -> str:
        named = [job.uid for job in self.jobs() if (job.namespace, job.plural, job.name) == (namespace, plural, name)]
        return named[-1] if named else ""

    def _replays(self) -> list["StreamReplay"]:
        streams: dict[str, list[Path]] = {}
        for file in sorted(self._folder.glob(f"*{SUFFIX}")):
            streams.setdefault(file.name.split("-")[1], []).append(file)
        return [StreamReplay(files) for files in streams.values()]


class StreamReplay:
    """Everything that one process recorded."""

    def __init__(self, files: list[Path]) -> None:
        self.start = self.end = 0.0
        self.versions: list[ObjectVersion] = []
        self.log_ends: list[LogEnd] = []
        self.verdicts: list[JobVerdict] = []
        self._about: dict[str, str] = {}
        self._bodies: dict[str, JSON] = {}
        for number, file in enumerate(files):
            self._read(file, first=number == 0)

    def members(self, uid: str) -> set[str]:
        """The uids of an object, of what it owns, directly or not, and of the events about them."""
        members = {uid} if uid else set()
        grown = bool(members)
        while grown:
            more = {other for other, about in self._about.items() if about in members} - members
            members |= more
            grown = bool(more)
        return members

    def _read(self, file: Path, *, first: bool) -> None:
        began, objects = 0.0, dict[int, ObjectLine]()
        for line in read_segment(file):
            match line:
                case SegmentStart():
                    began = self.end = line.began
                    self.start = began if first else self.start
                case ObjectLine():
                    objects[line.object] = line
                    self._about[line.uid] = line.about
                case StateLine(object=number, body=body):
                    if self._bodies.get(objects[number].path) != body:
                        self._add(objects[number], began, body)
                case PulseLine():
                    self.end = began + line.at / 1000
                case _:
                    self.end = began + line.at / 1000
                    self._change(objects[line.object], self.end, line)

    def _change(
        self, item: ObjectLine, at: float, line: BodyLine | PatchLine | DeletionLine | LogLine | VerdictLine
    ) -> None:
        where = split_path(item.path)
        match line:
            case BodyLine(body=body):
                self._add(item, at, body)
            case PatchLine(patch=patch):
                self._add(item, at, patched(self._bodies[item.path], patch))
            case DeletionLine():
                self._add(item, at, None)
            case LogLine():
                end = LogEnd(at, where.namespace, where.name, item.uid, line.container, line.attempt, line.text)
                self.log_ends.append(end)
            case VerdictLine():
                self.verdicts.append(JobVerdict(at, where.namespace, where.plural, where.name, item.uid, line.report))

    def _add(self, item: ObjectLine, at: float, body: JSON | None) -> None:
        if body is None:
            self._bodies.pop(item.path, None)
        else:
            self._bodies[item.path] = body
        self.versions.append(ObjectVersion(at, item.path, item.uid, body))


def is_job(body: JSON) -> bool:
    """Whether an object is a job of any kind: it has replicas by type."""
    spec = body.get("spec")
    return isinstance(spec, dict) and any(name.endswith("ReplicaSpecs") for name in spec)


def job_summary(version: ObjectVersion) -> JobSummary:
    """What a version of a job says of it."""
    body, where = version.body or {}, split_path(version.path)
    conditions = (body.get("status") or {}).get("conditions") or ()
    current = [condition for condition in conditions if condition.get("status") == "True"]
    ends = [_unix(condition.get("lastTransitionTime")) for condition in current if condition["type"] in _END_CONDITIONS]
    return JobSummary(
        where.namespace,
        where.plural,
        where.name,
        version.uid,
        str(body.get("kind", "")),
        str(current[-1]["type"]) if current else "",
        _unix(body["metadata"].get("creationTimestamp")) or version.at,
        ended=ends[0] if ends else None,
    )


def _deleted_job(job: JobSummary, at: float) -> JobSummary:
    return msgspec.structs.replace(job, deleted=at)


def _unix(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None
