"""The recorded past, as far as a viewer may read it: jobs that are gone, and any job at an earlier moment.

The history was recorded by a process with rights of its own. What of it a viewer sees is what the viewer may read now.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import msgspec

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.dashboard.live.rights import Access, AccessRefused, Refusal, ViewerRights
from gangline.dashboard.live.usage import UsagePoint
from gangline.dashboard.rows.cluster import ClusterView, free_holes, recorded_nodes
from gangline.dashboard.rows.detail import JobDetail, JobObjects, job_detail
from gangline.dashboard.rows.job_row import JobRow, job_id, job_row
from gangline.dashboard.rows.sweeps import Trial, deleted_trial_row, trial_note
from gangline.history.reader import HistoryReader
from gangline.history.records import JobSummary, JobVerdict, LogEnd, ObjectVersion
from gangline.kube.errors import Status, error_from_status
from gangline.summary.event_rows import is_about
from gangline.summary.objects import EVENTS, JOB_KINDS, NODES, PODS, SERVICES, ServerJob
from gangline.summary.pending_reasons import PODGROUPS
from gangline.summary.replicas import owns_pod, sorted_pods
from gangline.timeline.build import team_timeline

MEMBER_KINDS = (PODS, EVENTS, PODGROUPS, SERVICES)
"""The kinds of objects that belong to a job."""


class Past:
    """The history in a folder, for one viewer."""

    def __init__(self, folder: Path, rights: ViewerRights) -> None:
        self._reader, self._rights = HistoryReader(folder), rights

    async def rows(self, namespace: str = "") -> list[JobRow]:
        """All recorded jobs that the viewer may list, in one namespace or in all, as they were last."""
        kinds = {kind.plural: kind for kind in JOB_KINDS}
        recorded = await asyncio.to_thread(self._reader.jobs)
        wanted = [job for job in recorded if job.plural in kinds and namespace in ("", job.namespace)]
        allowed: dict[tuple[str, str], bool] = {}
        for plural, where in {(job.plural, job.namespace) for job in wanted}:
            allowed[plural, where] = await self._rights.is_granted(Access("list", kinds[plural], where))
        return [summary_row(job) for job in wanted if allowed[job.plural, job.namespace]]

    async def trials(self, namespace: str = "") -> list[Trial]:
        """The recorded trials of sweeps whose jobs are gone and that the viewer may list."""
        kinds = {kind.plural: kind for kind in JOB_KINDS}
        recorded = await asyncio.to_thread(self._reader.jobs)
        wanted = {
            job.uid: job
            for job in recorded
            if job.sweep and job.deleted is not None and job.plural in kinds and namespace in ("", job.namespace)
        }
        wanted = {
            uid: job
            for uid, job in wanted.items()
            if await self._rights.is_granted(Access("list", kinds[job.plural], job.namespace))
        }
        bodies = await asyncio.to_thread(self._reader.job_bodies, wanted.keys())
        trials: list[Trial] = []
        for uid, body in bodies.items():
            note, job = trial_note(body), wanted[uid]
            if note is not None:
                now = datetime.fromtimestamp(job.deleted or job.last, UTC)
                trials.append((note, deleted_trial_row(kinds[job.plural], body, now)))
        return trials

    async def rows_at(self, moment: datetime, namespace: str = "") -> list[JobRow]:
        """The jobs that existed at a moment, as they were then."""
        servers = await asyncio.to_thread(self._reader.servers_at, moment.timestamp())
        kinds = {kind.plural: kind for kind in JOB_KINDS}
        rows: list[JobRow] = []
        for path, body in chain.from_iterable(objects.items() for objects in servers.values()):
            where = split_path(path)
            kind = kinds.get(where.plural)
            if kind is None or where.group != kind.group or namespace not in ("", where.namespace):
                continue
            if await self._rights.is_granted(Access("list", kind, where.namespace)):
                rows.append(job_row(kind, body, moment))
        return rows

    async def cluster_at(self, moment: datetime) -> ClusterView:
        """The nodes at a moment, and the pods on them that the viewer may list."""
        refused: list[Refusal] = []
        if not await self._rights.is_granted(Access("list", NODES)):
            refused.append(await self._rights.refusal(Access("list", NODES)))
            return ClusterView(nodes=[], holes=[], refused=refused)
        objects = await asyncio.to_thread(self._reader.objects_at, moment.timestamp())
        pods = {path: body for path, body in objects.items() if path.startswith(collection_prefix("", "pods"))}
        if not await self._rights.is_granted(Access("list", PODS)):
            refused.append(await self._rights.refusal(Access("list", PODS)))
            namespaces = {split_path(path).namespace for path in pods}
            readable = {name for name in namespaces if await self._rights.is_granted(Access("list", PODS, name))}
            pods = {path: body for path, body in pods.items() if split_path(path).namespace in readable}
        nodes = [body for path, body in objects.items() if path.startswith(collection_prefix("", "nodes"))]
        rows = await asyncio.to_thread(recorded_nodes, nodes, pods.values())
        return ClusterView(nodes=rows, holes=free_holes(rows), refused=refused)

    async def versions(
        self, kind: Resource[JSON], key: Key, uid: str = ""
    ) -> tuple[list[ObjectVersion], list[Refusal]]:
        """The versions of a job's objects that the viewer may read, and what of them is refused."""
        access = Access("get", kind, key.namespace)
        if not await self._rights.is_granted(access):
            raise AccessRefused(await self._rights.refusal(access))
        found = await asyncio.to_thread(self._reader.job_changes, key.namespace, kind.plural, key.name, uid or None)
        refused: list[Refusal] = []
        hidden: set[str] = set()
        for member in MEMBER_KINDS:
            access = Access("list", member, key.namespace)
            if not await self._rights.is_granted(access):
                refused.append(await self._rights.refusal(access))
                hidden.add(member.plural)
        return [version for version in found if split_path(version.path).plural not in hidden], refused

    async def detail(self, kind: Resource[JSON], key: Key, uid: str, moment: datetime, *, past: bool) -> JobDetail:
        """The page of a recorded job: as it was last, or with `past` as it was at the moment. Raises `NotFound`."""
        versions, refused = await self.versions(kind, key, uid)
        return await asyncio.to_thread(_recorded_detail, kind, key, versions, refused, moment, past)

    async def log_ends(self, kind: Resource[JSON], key: Key, uid: str = "") -> list[LogEnd]:
        """The recorded ends of logs of a job. Raises `AccessRefused`."""
        access = Access("get", PODS, key.namespace, subresource="log")
        if not await self._rights.is_granted(access):
            raise AccessRefused(await self._rights.refusal(access))
        return await asyncio.to_thread(self._reader.log_ends, key.namespace, kind.plural, key.name, uid or None)

    async def usage(self, kind: Resource[JSON], key: Key, uid: str = "") -> list[UsagePoint]:
        """What was recorded of the CPU and memory of a job's pods; nothing if the viewer may not read such."""
        if not await self._rights.is_granted(Access("list", PODS, key.namespace)):
            return []
        samples = await asyncio.to_thread(self._reader.usage, key.namespace, kind.plural, key.name, uid or None)
        return [
            UsagePoint(sample.at, sample.pod.removeprefix(f"{key.name}-"), sample.cores, sample.memory)
            for sample in samples
        ]

    async def verdicts(self, kind: Resource[JSON], key: Key, uid: str = "") -> list[JobVerdict]:
        """What was recorded of why a job failed or waited. Raises `AccessRefused`."""
        for access in (Access("get", kind, key.namespace), Access("get", PODS, key.namespace, subresource="log")):
            if not await self._rights.is_granted(access):
                raise AccessRefused(await self._rights.refusal(access))
        return await asyncio.to_thread(self._reader.verdicts, key.namespace, kind.plural, key.name, uid or None)


def _recorded_detail(
    kind: Resource[JSON],
    key: Key,
    versions: Sequence[ObjectVersion],
    refused: list[Refusal],
    moment: datetime,
    past: bool,
) -> JobDetail:
    until = [version for version in versions if version.at <= moment.timestamp()]
    bodies: dict[str, JSON] = {}
    alive: dict[str, JSON | None] = {}
    for version in until:
        alive[version.uid] = version.body
        if version.body is not None:
            bodies[version.uid] = version.body
    paths = {version.uid: split_path(version.path) for version in until}
    job_uid = next((uid for uid, path in paths.items() if path.plural == kind.plural and path.name == key.name), "")
    if job_uid not in bodies:
        when = f" at {moment:%Y-%m-%d %H:%M:%S} UTC" if past else ""
        message = f"{kind.name} {key}: there is no such job{when}, and none was recorded"
        raise error_from_status(Status(code=404, reason="NotFound", message=message))
    job = ServerJob(kind, bodies[job_uid])
    # Who asks for the last state has seen that the server has this job no more; the record may be a second behind.
    deleted = not past or alive.get(job_uid) is None

    def members(plural: str) -> Iterable[JSON]:
        # Of a job that is gone, the pods as they were last.
        shown = bodies if deleted else alive
        return [body for uid, body in shown.items() if paths[uid].plural == plural and body is not None]

    objects = JobObjects(
        job=job,
        pods=_newest_pods(pod for pod in members("pods") if owns_pod(job, pod)),
        events=[event for event in members("events") if is_about(event, job)],
        group=next(iter(members("podgroups")), None),
    )
    timeline = team_timeline(until, moment.timestamp())
    detail = job_detail(objects, timeline, moment, recorded=True, deleted=deleted)
    return msgspec.structs.replace(detail, refused=refused)


def _newest_pods(pods: Iterable[JSON]) -> list[JSON]:
    """The last pod of each name: a replica that was restarted had several."""
    by_name: dict[str, JSON] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        by_name[pod["metadata"]["name"]] = pod
    return sorted_pods(by_name.values())


def summary_row(job: JobSummary) -> JobRow:
    """The row of a recorded job. What only its objects tell is left out: its page has it."""
    return JobRow(
        id=job_id(job.plural, job.namespace, job.name),
        namespace=job.namespace,
        plural=job.plural,
        kind=job.kind,
        name=job.name,
        uid=job.uid,
        state=job.state or "Pending",
        state_text=job.state or "Pending",
        reason="",
        progress=None,
        restarts=0,
        ready=0,
        replicas=0,
        queue="",
        gang_phase="",
        place_in_line=None,
        created_at=_stamp(job.created),
        started_at=None,
        ended_at=_stamp(job.ended),
        deleted=job.deleted is not None,
    )


def _stamp(moment: float | None) -> str | None:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None
