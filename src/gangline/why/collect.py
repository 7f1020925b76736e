"""Reads the objects, events and logs that a diagnosis needs, and records what cannot be read."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from gangline.api.core import Lease, Node, Pod
from gangline.api.kubeflow.kinds import MPIJOB
from gangline.api.meta import JSON, Key, Selector
from gangline.api.quantity import Quantity, QuantityError, add_resources, parse_resources
from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import run_all
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.mpi_v2.framework import SshMpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.kube.client import Client, Kind
from gangline.kube.errors import BadRequest, Forbidden, KubeError, NotFound
from gangline.kube.pod_metrics import POD_METRICS
from gangline.kube.pods import PodSubresources
from gangline.why.custom import custom_kinds, custom_workload_kind
from gangline.why.diagnosis import decode
from gangline.why.diagnosis.case import (
    ClaimFact,
    DiagnosisTimeouts,
    EventFact,
    JobSnapshot,
    OperatorFacts,
    PodGroupFacts,
    ReplicaFacts,
)
from gangline.why.diagnosis.rules.no_progress import is_silent
from gangline.why.diagnosis.wording import time_of_day
from gangline.why.kinds import (
    CLAIMS,
    EVENTS,
    MPI_V2_JOBS,
    POD_GROUPS,
    PODS,
    QUEUES,
    WORKLOAD_KINDS,
    WorkloadKind,
    json_value,
    served_kind,
    workload_kind,
)

T = TypeVar("T")

LOG_LINES = 60
LOG_BYTES = 4 * 2**20
"""The most that is read of a log's last lines: a line may be as long as its program likes."""
MAX_POD_LOGS = 24
"""The number of pods whose logs are read: failed pods first, the earliest failure first, then running pods."""
MAX_NODE_GETS = 30
"""More nodes than this are listed in one request instead of one by one."""
OPERATOR_SELECTOR = "control-plane in (kubeflow-training-operator,gangline-operator)"
OPERATOR_LEASES = ("1ca428e5.training-operator.kubeflow.org",)
ONE_POD_RESOURCES = parse_resources({"pods": "1"})

FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(), PyTorch(), XGBoost(), Mpi(), SshMpi(), Paddle(), Jax())


JOB_REMOVED_REASON = "SuccessfulDeleteJob"
"""The reason of the event by which an operator says that it removed a job: its ttlSecondsAfterFinished was over."""
MAX_LAST_EVENTS = 5


class JobNotFound(GanglineError):
    """No job has this name. If the operator has removed it, `events` are the last events about it."""

    def __init__(self, message: str, events: tuple[EventFact, ...] = ()) -> None:
        super().__init__(message)
        self.events = events


async def collect(
    client: Client, target: str, namespace: str, clock: Clock, patience: DiagnosisTimeouts | None = None
) -> JobSnapshot:
    """Everything about `[KIND/]NAME`. Raises `JobNotFound`, `InputError`, and `KubeError` if the job itself is not readable."""
    try:
        kind, body = await find_job(client, target, namespace)
    except JobNotFound as error:
        raise await _with_last_events(client, Key(namespace, target.rpartition("/")[2]), error) from None
    return await SnapshotCollector(client, kind, body, clock, patience or DiagnosisTimeouts()).collect()


async def _with_last_events(client: Client, job: Key, error: JobNotFound) -> JobNotFound:
    """The error with what the events say of a job that its operator has removed; else as it is."""
    try:
        bodies = [body async for body in client.iterate(EVENTS, Selector(namespace=job.namespace))]
    except KubeError:
        return error
    about = [body for body in bodies if json_value(body, "regarding", "name") == job.name]
    removals = [body for body in about if body.get("reason") == JOB_REMOVED_REASON]
    if not removals:
        return error
    last = max(removals, key=lambda body: _event_time(decode.event_fact(body)))
    removed, uid = decode.event_fact(last), json_value(last, "regarding", "uid")
    events = [decode.event_fact(body) for body in about if json_value(body, "regarding", "uid") == uid]
    when = f" at {time_of_day(removed.time)}" if removed.time is not None else ""
    before = [event for event in _sorted_by_time(events) if event.reason != JOB_REMOVED_REASON]
    return JobNotFound(
        f"{error} any more: the operator removed it{when}, because its ttlSecondsAfterFinished was over",
        tuple(before[-MAX_LAST_EVENTS:]),
    )


async def find_job(client: Client, target: str, namespace: str) -> tuple[WorkloadKind, JSON]:
    """The job that a person means. Raises `InputError` if jobs of several kinds have the name."""
    named, slash, name = target.rpartition("/")
    try:
        kinds = (workload_kind(named),) if slash else WORKLOAD_KINDS
    except InputError:
        return await _find_custom_job(client, named, Key(namespace, name))
    jobs: list[tuple[WorkloadKind, JSON]] = []
    errors: list[KubeError] = []

    async def look(one: WorkloadKind) -> None:
        try:
            jobs.append((one, await client.get(one.resource, Key(namespace, name))))
        except NotFound:
            # mpi-operator's own definition serves only its version.
            if one.job_kind is MPIJOB:
                await look(MPI_V2_JOBS)
        except KubeError as error:
            errors.append(error)

    await run_all(look(kind) for kind in kinds)
    for error in errors:
        if not isinstance(error, Forbidden):
            raise error
    outer = [(kind, body) for kind, body in jobs if not _is_owned(body, jobs)]
    if len(outer) > 1:
        names = ", ".join(sorted(f"{kind.resource.kind.lower()}/{name}" for kind, _ in outer))
        raise InputError(f"{name}: several jobs have this name; write one of {names}")
    if outer:
        return outer[0]
    if errors and (slash or len(errors) == len(kinds)):
        raise errors[0]
    if not slash:
        with suppress(JobNotFound):
            return await _find_custom_job(client, "", Key(namespace, name))
    what = f"{kinds[0].resource.kind} {name}" if slash else f"job {name} of any kind"
    raise JobNotFound(f"there is no {what} in namespace {namespace}")


async def _find_custom_job(client: Client, word: str, key: Key) -> tuple[WorkloadKind, JSON]:
    """A job of a custom kind. Raises `JobNotFound`, or `InputError` if there is no such kind."""
    kinds = await custom_kinds(client, word)
    if word and not kinds:
        workload_kind(word)  # raises the error that lists the known kinds
    for kind in kinds:
        with suppress(NotFound):
            body = await client.get(kind, key)
            return custom_workload_kind(kind, body), body
    raise JobNotFound(f"there is no {word or 'job'} {key.name} in namespace {key.namespace}")


def _is_owned(body: JSON, owners: Iterable[tuple[WorkloadKind, JSON]]) -> bool:
    uids = {json_value(one, "metadata", "uid") for _, one in owners}
    return any(ref.get("uid") in uids for ref in json_value(body, "metadata", "ownerReferences") or ())


class SnapshotCollector:
    """Reads everything about one job, once."""

    def __init__(
        self, client: Client, kind: WorkloadKind, body: JSON, clock: Clock, patience: DiagnosisTimeouts
    ) -> None:
        kind = served_kind(kind, body)
        self._client, self._kind, self._job_body = client, kind, body
        self._now, self._timeouts = clock.now(), patience
        framework = next((one for one in FRAMEWORKS if one.facts is kind.job_kind), None)
        self._job = decode.job_facts(kind, body, framework)
        # For an archived run, time stops at its end: nothing has changed since, and nothing is overdue.
        self._now = self._job.run_ended_at or self._now
        self._unreadable: list[str] = []
        self._intermediate_uids: set[str] = set()
        self._pods_unreadable = False
        self._usage_error = ""
        failure = self._job.first_failure
        self._first_failed_pod = failure.pod if failure is not None else ""

    async def collect(self) -> JobSnapshot:
        """Read everything, with as many requests in parallel as possible."""
        job = self._job
        await self._find_intermediates()
        replicas = await self._pods()
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._events())
            claims = group.create_task(self._claims(replicas))
            logs = group.create_task(self._logs(replicas))
            nodes = group.create_task(self._nodes(replicas))
            allocations = group.create_task(self._allocations(replicas))
            gang = group.create_task(self._pod_group(replicas))
            operator = group.create_task(self._operator())
        about, read = events.result(), logs.result()
        queues = await self._queues(gang.result())
        case = JobSnapshot(
            job=job,
            now=self._now,
            replicas=tuple(
                msgspec.structs.replace(
                    read.get(replica.name, replica),
                    events=tuple(_sorted_by_time(about.get(replica.pod.metadata.uid, ()))),
                )
                for replica in replicas
            ),
            events=tuple(
                _sorted_by_time(event for uid in (job.uid, *self._intermediate_uids) for event in about.get(uid, ()))
            ),
            first_failure_events=tuple(_sorted_by_time(about.get(f"pod/{self._first_failed_pod}", ()))),
            claims={
                name: msgspec.structs.replace(replica, events=tuple(about.get(f"claim/{name}", ())))
                for name, replica in claims.result().items()
            },
            nodes=nodes.result(),
            allocated_by_node=allocations.result(),
            pod_group=gang.result(),
            queues=queues,
            operator=operator.result(),
            pods_unreadable=self._pods_unreadable,
            unreadable=tuple(dict.fromkeys(self._unreadable)),
            timeouts=self._timeouts,
        )
        # A silent job may hang, and a container that has started again may need more memory than it has.
        return await self._with_usage(case) if is_silent(case) or _has_restarted(case) else case

    async def _with_usage(self, case: JobSnapshot) -> JobSnapshot:
        usage = await self._usage(case.replicas)
        replicas = (
            msgspec.structs.replace(replica, cpu=cpu, memory=memory)
            for replica in case.replicas
            for cpu, memory in [usage.get(replica.pod.metadata.name, (None, None))]
        )
        return msgspec.structs.replace(case, replicas=tuple(replicas), usage_error=self._usage_error)

    # Reading

    async def _list(self, kind: Kind[T], label: str, where: Selector, *, needed: bool = True) -> list[T] | None:
        """All objects of a kind; none for an unserved kind; None, and an `unreadable` entry, if they cannot be read."""
        try:
            return [one async for one in self._client.iterate(kind, where)]
        except NotFound:
            return []
        except KubeError as error:
            if needed:
                self._unreadable.append(f"{label}: {_error_line(error)}")
            return None

    async def _find_intermediates(self) -> None:
        """Read the objects between the job and its pods."""
        owners = {self._job.uid}
        for kind in self._kind.intermediates:
            for body in await self._list(kind, kind.name, Selector(namespace=self._job.namespace)) or ():
                if any(ref.get("uid") in owners for ref in json_value(body, "metadata", "ownerReferences") or ()):
                    owners.add(json_value(body, "metadata", "uid") or "")
        self._intermediate_uids = owners - {self._job.uid}

    async def _pods(self) -> list[ReplicaFacts]:
        owners = {self._job.uid, *self._intermediate_uids}
        pods: dict[str, JSON] = {}
        for label in self._kind.pod_labels:
            where = Selector(namespace=self._job.namespace, labels=f"{label}={self._job.name}")
            bodies = await self._list(PODS, "pods", where)
            self._pods_unreadable = bodies is None
            for body in bodies or ():
                references = json_value(body, "metadata", "ownerReferences") or ()
                if not references or any(ref.get("uid") in owners for ref in references):
                    pods[json_value(body, "metadata", "name") or ""] = body
        made = (decode.replica_facts(self._kind, self._job.name, pods[name]) for name in sorted(pods))
        return [one for one in made if one is not None]

    async def _events(self) -> dict[str, list[EventFact]]:
        """The events of the namespace by the uid of their object; events of claims by the claim's name.

        A pod that is gone has no uid any more: the events of the pod that failed first are also kept by its name.
        """
        about: dict[str, list[EventFact]] = {}
        for body in await self._list(EVENTS, "events", Selector(namespace=self._job.namespace)) or ():
            regarding = body.get("regarding") or {}
            event = decode.event_fact(body)
            about.setdefault(regarding.get("uid") or "", []).append(event)
            if regarding.get("kind") == "PersistentVolumeClaim":
                about.setdefault(f"claim/{regarding.get('name')}", []).append(event)
            if regarding.get("kind") == "Pod" and regarding.get("name") == self._first_failed_pod:
                about.setdefault(f"pod/{self._first_failed_pod}", []).append(event)
        return about

    async def _claims(self, replicas: Iterable[ReplicaFacts]) -> dict[str, ClaimFact]:
        """The claims of pods that have not started. A pod that started had usable claims."""
        waiting = [replica for replica in replicas if replica.pod.status.phase in ("", "Pending")]
        names = {volume.claim for replica in waiting for volume in replica.volumes if volume.claim}
        claims: dict[str, ClaimFact] = {}
        for name in sorted(names):
            try:
                body: JSON = await self._client.get(CLAIMS, Key(self._job.namespace, name))
                claims[name] = decode.claim_fact(name, body)
            except NotFound:
                claims[name] = decode.claim_fact(name, None)
            except KubeError as error:
                self._unreadable.append(f"claim {name}: {_error_line(error)}")
        return claims

    async def _nodes(self, replicas: Iterable[ReplicaFacts]) -> tuple[Node, ...] | None:
        """The nodes of the job's pods; all nodes if a pod has no node yet."""
        names = {one.pod.spec.node_name for one in replicas}
        if "" in names or len(names) > MAX_NODE_GETS:
            found = await self._list(Node, "nodes", Selector())
            return None if found is None else tuple(found)
        nodes: list[Node] = []
        for name in sorted(names):
            try:
                nodes.append(await self._client.get(Node, Key("", name)))
            except NotFound:
                continue
            except KubeError as error:
                self._unreadable.append(f"nodes: {_error_line(error)}")
                return None
        return tuple(nodes)

    async def _allocations(self, replicas: Iterable[ReplicaFacts]) -> Mapping[str, Mapping[str, Quantity]] | None:
        """What pods of all namespaces use of each node. Read only if a replica lacks capacity or memory."""
        if not any(_lacks_capacity(one) for one in replicas):
            return None
        where = Selector(fields="status.phase!=Succeeded,status.phase!=Failed")
        pods = await self._list(Pod, "pods of all namespaces", where)
        if pods is None:
            return None
        same_run = await self._jobs_of_same_run()
        allocations: dict[str, dict[str, Quantity]] = {}
        for pod in pods:
            elsewhere = same_run is not None and not any(one.uid in same_run for one in pod.metadata.owner_references)
            if pod.spec.node_name and not elsewhere:
                total = add_resources(allocations.get(pod.spec.node_name, {}), ONE_POD_RESOURCES)
                for one in pod.spec.containers:
                    total = add_resources(total, parse_resources(one.resources.requests))
                allocations[pod.spec.node_name] = total
        return allocations

    async def _jobs_of_same_run(self) -> set[str] | None:
        """The uids of the jobs of the same archived run or plane; None if a server runs.

        An archive shows the pods of many runs on one node, which never shared it.
        """
        if self._job.run_ended_at is None:
            return None
        ended_at, _ = decode.run_end(self._job_body)
        uids = {self._job.uid}
        for kind in (one.resource for one in WORKLOAD_KINDS if one.job_kind is not None):
            jobs = await self._list(kind, kind.name, Selector()) or ()
            uids |= {json_value(body, "metadata", "uid") for body in jobs if decode.run_end(body)[0] == ended_at}
        return uids

    async def _pod_group(self, replicas: Iterable[ReplicaFacts]) -> PodGroupFacts | None:
        names = {self._job.name}
        complete = sum(bool(group.pod.spec.node_name) for group in replicas) >= max(self._job.desired_total, 1)
        if complete or self._job.is_finished:
            return None
        for group in replicas:
            metadata = group.pod.metadata
            names.add(metadata.annotations.get("scheduling.k8s.io/group-name", self._job.name))
            names.add(metadata.labels.get("scheduling.x-k8s.io/pod-group", self._job.name))
        for kind in POD_GROUPS:
            where = Selector(namespace=self._job.namespace)
            for body in await self._list(kind, kind.name, where, needed=False) or ():
                if json_value(body, "metadata", "name") in names:
                    return decode.pod_group_facts(body)
        return None

    async def _queues(self, gang: PodGroupFacts | None) -> tuple[str, ...] | None:
        """The names of our scheduler's queues. Read only if the PodGroup names a queue that must exist."""
        if gang is None or not gang.is_gangline or gang.queue in ("", DEFAULT_QUEUE):
            return None
        if self._job.run_ended_at is not None:  # An archived run has no queues.
            return None
        found = await self._list(QUEUES, "queues", Selector())
        return None if found is None else tuple(sorted(json_value(one, "metadata", "name") or "" for one in found))

    async def _usage(self, replicas: Iterable[ReplicaFacts]) -> dict[str, tuple[Quantity | None, Quantity | None]]:
        """CPU and memory use by pod, if the cluster serves the metrics API."""
        running_pods = {one.pod.metadata.name for one in replicas if one.pod.status.phase == "Running"}
        label = f"{self._kind.pod_labels[0]}={self._job.name}"
        where = Selector(namespace=self._job.namespace, labels=label)
        try:
            metrics = [one async for one in self._client.iterate(POD_METRICS, where)] if running_pods else []
        except NotFound:
            # Few clusters have the metrics API, and only the detection of hangs needs it.
            self._usage_error = "the server has no metrics API (metrics.k8s.io)"
            return {}
        except KubeError as error:
            self._usage_error = _error_line(error)
            return {}
        return {json_value(one, "metadata", "name"): _pod_usage(one) for one in metrics}

    # Operator

    async def _operator(self) -> OperatorFacts:
        if self._job.has_status or self._kind.job_kind is None:
            return OperatorFacts()
        before = len(self._unreadable)
        signs: list[str] = []
        for name in OPERATOR_LEASES:
            for lease in await self._list(Lease, "leases", Selector(fields=f"metadata.name={name}")) or ():
                renewed = lease.spec.renew_time
                if lease.spec.holder_identity and renewed is not None and self._now - renewed < timedelta(minutes=1):
                    signs.append(f"{lease.spec.holder_identity} renews lease {lease.metadata.key}")
        ill, log = [], list[str]()
        for pod in await self._list(Pod, "operator pods", Selector(labels=OPERATOR_SELECTOR)) or ():
            if pod.status.phase == "Running":
                signs.append(f"pod {pod.metadata.key} runs")
                log += [line for line in await self._log_tail(pod.metadata.key, "", tail=500) if self._job.name in line]
            else:
                ill.append(f"operator pod {pod.metadata.key} is {pod.status.phase}")
        return OperatorFacts(
            tuple(signs), tuple(ill), tuple(log[-20:]), search_complete=len(self._unreadable) == before
        )

    # Logs

    async def _logs(self, replicas: Iterable[ReplicaFacts]) -> dict[str, ReplicaFacts]:
        chosen = sorted(replicas, key=_log_priority)[:MAX_POD_LOGS]
        read: dict[str, ReplicaFacts] = {}

        async def one(replica: ReplicaFacts) -> None:
            read[replica.name] = await self._with_logs(replica)

        if self._job.state != "Succeeded":
            await run_all((one(replica) for replica in chosen), at_once=8)
        return read

    async def _with_logs(self, replica: ReplicaFacts) -> ReplicaFacts:
        logs: dict[str, list[tuple[datetime | None, str]]] = {}
        earlier: dict[str, tuple[str, ...]] = {}
        for status in replica.container_statuses:
            state = status.state
            if state.running is None and state.terminated is None and status.last_state.terminated is None:
                continue
            if state.terminated is not None and state.terminated.exit_code == 0:
                continue
            stamped = await self._log_tail(replica.pod.metadata.key, status.name, timestamps=True)
            logs[status.name] = [_split_timestamp(line) for line in stamped]
            if state.running is not None and status.last_state.terminated is not None:
                earlier[status.name] = await self._log_tail(replica.pod.metadata.key, status.name, previous=True)
        return decode.with_logs(replica, logs, earlier)

    async def _log_tail(
        self,
        pod: Key,
        container: str,
        *,
        previous: bool = False,
        timestamps: bool = False,
        tail: int = LOG_LINES,
    ) -> tuple[str, ...]:
        reading = PodSubresources(self._client).logs(
            pod, container=container, tail=tail, previous=previous, timestamps=timestamps, limit_bytes=LOG_BYTES
        )
        try:
            async with aclosing(reading) as lines:
                read = tuple([line.decode(errors="replace") async for line in lines])
            if tail > 1 and sum(map(len, read)) > LOG_BYTES // 2:
                # The server stopped before the end, which says most: fewer lines have less before it.
                fewer = max(1, tail // 10)
                return await self._log_tail(pod, container, previous=previous, timestamps=timestamps, tail=fewer)
            return read
        except (NotFound, BadRequest):
            return ()
        except KubeError as error:
            self._unreadable.append(f"log of {pod.name}: {_error_line(error)}")
            return ()


def _lacks_capacity(replica: ReplicaFacts) -> bool:
    states = [state for status in replica.container_statuses for state in (status.state, status.last_state)]
    killed = any(state.terminated is not None and state.terminated.reason == "OOMKilled" for state in states)
    return killed or not replica.pod.spec.node_name


def _log_priority(replica: ReplicaFacts) -> tuple[int, float]:
    """The order in which logs are read: failed replicas first, the earliest failure first."""
    ends = [
        state.finished_at.timestamp()
        for status in replica.container_statuses
        for state in (status.state.terminated, status.last_state.terminated)
        if state is not None and state.exit_code and state.finished_at is not None
    ]
    return (0, min(ends)) if ends else (1, 0.0)


def _has_restarted(case: JobSnapshot) -> bool:
    statuses = (status for replica in case.replicas for status in replica.pod.status.container_statuses)
    return any(status.restart_count for status in statuses)


def _pod_usage(body: JSON) -> tuple[Quantity | None, Quantity | None]:
    totals: dict[str, Quantity] = {}
    for one in body.get("containers") or ():
        try:
            totals = add_resources(totals, parse_resources(one.get("usage") or {}))
        except QuantityError:
            return None, None
    return totals.get("cpu"), totals.get("memory")


def _split_timestamp(line: str) -> tuple[datetime | None, str]:
    stamp, _, text = line.partition(" ")
    at = decode.parse_time(stamp) if stamp[:2].isdigit() else None
    return (at, text) if at is not None else (None, line)


def _sorted_by_time(events: Iterable[EventFact]) -> list[EventFact]:
    return sorted(events, key=_event_time)


def _event_time(event: EventFact) -> float:
    return event.time.timestamp() if event.time is not None else 0.0


def _error_line(error: KubeError) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
