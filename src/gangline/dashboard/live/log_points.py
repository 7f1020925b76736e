"""The progress that teams report in their logs, for curves without a history. Of each log only what is new is read."""

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta

from gangline.api.meta import JSON, Key
from gangline.base.tasks import for_each
from gangline.dashboard.live.log_follower import ContainerRun, RunId, readable_runs
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, Forbidden, KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.progress.line import parse_progress
from gangline.summary.log_lines import normalized_time, parse_line
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import container_name, list_replicas, replica_name
from gangline.timeline.model import ProgressPoint

MAX_JOBS = 64
"""The most jobs whose points are kept for one viewer; the one unused for longest makes room."""
MAX_POINTS = 50_000
"""The most points that are kept of one job. Beyond that every second one is dropped."""
MAX_READ_BYTES = 2 * 1024 * 1024
"""The most that is read of one log for one answer; the next answer goes on from there."""
MAX_TEAM_BYTES = 64 * 1024 * 1024
AT_ONCE = 8


class _ReadJob:
    def __init__(self) -> None:
        self.points: list[ProgressPoint] = []
        # The timestamp of the last line that was read of each run.
        self.positions: dict[RunId, str] = {}
        self.lock = asyncio.Lock()

    def add(self, point: ProgressPoint) -> None:
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            del self.points[1::2]

    def forget(self) -> None:
        self.points, self.positions = [], {}


class LogPointReader:
    """Reads the logs of the teams of one viewer, and keeps the points that it has read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # By the uid of the job; the last used is the last.
        self._jobs: dict[str, _ReadJob] = {}

    async def read(self, job: ServerJob) -> tuple[list[ProgressPoint], list[str]]:
        """What a team has reported so far, by its time; and what could not be read, in words."""
        uid = str(job.body["metadata"].get("uid", ""))
        known = self._jobs.pop(uid, None) or _ReadJob()
        self._jobs[uid] = known
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        async with known.lock:
            not_read = await self._read_new(job, known)
            return sorted(known.points, key=lambda point: point.at), not_read

    async def _read_new(self, job: ServerJob, known: _ReadJob) -> list[str]:
        try:
            pods = await list_replicas(self._client, job)
        except Forbidden:
            known.forget()
            raise
        most = min(max(MAX_TEAM_BYTES // max(len(pods), 1), 64 * 1024), MAX_READ_BYTES)
        notes: list[str] = []

        async def read(pod: JSON) -> None:
            for run in readable_runs(pod):
                try:
                    note = await self._read_run(run, replica_name(job, pod), known, most)
                except Forbidden as error:
                    known.forget()  # What was read before may not be shown any more, either.
                    note = _note(replica_name(job, pod), error)
                except KubeError as error:
                    note = _note(replica_name(job, pod), error)
                if note:
                    notes.append(note)

        await for_each(pods, read, at_once=AT_ONCE)
        return sorted(notes)

    async def _read_run(self, run: ContainerRun, replica: str, known: _ReadJob, most: int) -> str:
        metadata, after = run.pod["metadata"], known.positions.get(run.id, "")
        stream = PodSubresources(self._client).logs(
            Key(metadata["namespace"], metadata["name"]),
            container=container_name(run.pod),
            previous=run.previous,
            timestamps=True,
            since=_moment(after) if after else None,
            limit_bytes=most,
        )
        size, last = 0, b""
        try:
            async with aclosing(stream):
                async for raw in stream:
                    self._take(last, replica, run.id, known, after)
                    size, last = size + len(raw) + 1, raw
        except (BadRequest, NotFound):
            return ""  # It has not started, or its log is gone.
        if size < most - 1024:
            self._take(last, replica, run.id, known, after)
            return ""
        # The last line may be cut, and is read again.
        if after and known.positions[run.id] == after:
            # A server may read from whole seconds on, and this one has more lines than are read at once.
            known.positions[run.id] = normalized_time((_moment(after) + timedelta(seconds=1)).isoformat())
        return f"{replica}: its log is long; the rest of it is being read"

    def _take(self, raw: bytes, replica: str, run: RunId, known: _ReadJob, after: str) -> None:
        line = parse_line(replica, raw)
        if not line.timestamp or line.timestamp <= after:
            return
        known.positions[run] = line.timestamp
        progress = parse_progress(line.text)
        if progress is not None:
            at = _moment(line.timestamp).timestamp()
            known.add(ProgressPoint(at, progress.step, dict(progress.metrics), replica, run.attempt))


def _moment(timestamp: str) -> datetime:
    return datetime.fromisoformat(f"{timestamp[:26]}+00:00")


def _note(replica: str, error: KubeError) -> str:
    return f"{replica}: {' '.join(str(error).split())}"
