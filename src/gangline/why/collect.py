"""Reads what `why` looks at. Writes nothing; what cannot be read is noted, and the rest is read all the same."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from gangline.api.core import Lease, Node, Pod
from gangline.api.meta import JSON, Key, Selector
from gangline.api.quantity import Quantity, QuantityError, add, parse_resources
from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import run_all
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.kube.client import Client, Kind
from gangline.kube.errors import BadRequest, Forbidden, KubeError, NotFound
from gangline.kube.pods import Pods
from gangline.why.custom import custom_kinds, custom_owner
from gangline.why.kinds import CLAIMS, EVENTS, METRICS, OWNERS, POD_GROUPS, PODS, QUEUES, Owner, owner, value
from gangline.why.model import decode
from gangline.why.model.case import Case, Claim, Gang, Operator, Patience, Replica, Told

T = TypeVar("T")

LOG_LINES = 60
MOST_LOGS = 24
"""Pods of one job whose logs are read: those that failed, the earliest first, then those that run."""
MOST_NODES = 30
"""More nodes than this are read all at once, and not one by one."""
OPERATORS = "control-plane in (kubeflow-training-operator,gangline-operator)"
LEASES = ("1ca428e5.training-operator.kubeflow.org",)
ONE_POD = parse_resources({"pods": "1"})

FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(), PyTorch(), XGBoost(), Mpi(), Paddle(), Jax())


class NoSuchJob(GanglineError):
    """There is no job of that name."""


async def collect(
    client: Client, target: str, namespace: str, clock: Clock, patience: Patience | None = None
) -> Case:
    """Everything about `[KIND/]NAME`. Raises `NoSuchJob`, `InputError`, and `KubeError` if the job itself is not readable."""
    kind, body = await find(client, target, namespace)
    return await Collector(client, kind, body, clock, patience or Patience()).case()


async def find(client: Client, target: str, namespace: str) -> tuple[Owner, JSON]:
    """The job that a person means. A name that several kinds have is a mistake to be told."""
    named, slash, name = target.rpartition("/")
    try:
        wanted = (owner(named),) if slash else OWNERS
    except InputError:
        return await _custom(client, named, Key(namespace, name))
    found: list[tuple[Owner, JSON]] = []
    errors: list[KubeError] = []

    async def look(one: Owner) -> None:
        try:
            found.append((one, await client.get(one.resource, Key(namespace, name))))
        except NotFound:
            pass
        except KubeError as error:
            errors.append(error)

    await run_all(look(one) for one in wanted)
    for error in errors:
        if not isinstance(error, Forbidden):
            raise error
    outer = [(one, body) for one, body in found if not _owned(body, found)]
    if len(outer) > 1:
        names = ", ".join(sorted(f"{one.resource.kind.lower()}/{name}" for one, _ in outer))
        raise InputError(f"{name}: several jobs have this name; write one of {names}")
    if outer:
        return outer[0]
    if errors and (slash or len(errors) == len(wanted)):
        raise errors[0]
    if not slash:
        with suppress(NoSuchJob):
            return await _custom(client, "", Key(namespace, name))
    what = f"{wanted[0].resource.kind} {name}" if slash else f"job {name} of any kind"
    raise NoSuchJob(f"there is no {what} in namespace {namespace}")


async def _custom(client: Client, word: str, key: Key) -> tuple[Owner, JSON]:
    """A job of somebody else's kind. Raises `NoSuchJob`, and `InputError` when there is no kind of that name."""
    kinds = await custom_kinds(client, word)
    if word and not kinds:
        owner(word)  # says what can be explained
    for kind in kinds:
        with suppress(NotFound):
            body = await client.get(kind, key)
            return custom_owner(kind, body), body
    raise NoSuchJob(f"there is no {word or 'job'} {key.name} in namespace {key.namespace}")


def _owned(body: JSON, found: Iterable[tuple[Owner, JSON]]) -> bool:
    uids = {value(one, "metadata", "uid") for _, one in found}
    return any(ref.get("uid") in uids for ref in value(body, "metadata", "ownerReferences") or ())


class Collector:
    """One look at one job."""

    def __init__(self, client: Client, kind: Owner, body: JSON, clock: Clock, patience: Patience) -> None:
        self._client, self._owner, self._body = client, kind, body
        self._now, self._patience = clock.now(), patience
        framework = next((one for one in FRAMEWORKS if one.facts.kind == kind.resource.kind), None)
        self._job = decode.job(kind, body, framework if kind.facts is not None else None)
        # Of what is over, the last moment counts: nothing has changed since, and nothing is late.
        self._now = self._job.recorded or self._now
        self._unread: list[str] = []
        self._between: set[str] = set()
        self._blind = False

    async def case(self) -> Case:
        """Read everything, as much as possible at once."""
        job = self._job
        await self._walk()
        replicas = await self._pods()
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._events())
            claims = group.create_task(self._claims(replicas))
            usage = group.create_task(self._usage(replicas))
            logs = group.create_task(self._logs(replicas))
            nodes = group.create_task(self._nodes(replicas))
            taken = group.create_task(self._taken(replicas))
            gang = group.create_task(self._gang(replicas))
            operator = group.create_task(self._operator())
        about, read = events.result(), logs.result()
        queues = await self._queues(gang.result())
        return Case(
            job=job,
            now=self._now,
            replicas=tuple(self._told(read.get(one.name, one), about, usage.result()) for one in replicas),
            events=tuple(
                _ordered(event for uid in (job.uid, *self._between) for event in about.get(uid, ()))
            ),
            claims={
                name: msgspec.structs.replace(one, events=tuple(about.get(f"claim/{name}", ())))
                for name, one in claims.result().items()
            },
            nodes=nodes.result(),
            taken=taken.result(),
            gang=gang.result(),
            queues=queues,
            operator=operator.result(),
            blind=self._blind,
            unread=tuple(dict.fromkeys(self._unread)),
            patience=self._patience,
        )

    def _told(self, one: Replica, about: Mapping[str, list[Told]], usage: Mapping[str, Any]) -> Replica:
        cpu, memory = usage.get(one.pod.metadata.name, (None, None))
        events = tuple(_ordered(about.get(one.pod.metadata.uid, ())))
        return msgspec.structs.replace(one, events=events, cpu=cpu, memory=memory)

    # Reading

    async def _list(
        self, kind: Kind[T], what: str, where: Selector, *, needed: bool = True
    ) -> list[T] | None:
        """All of it; None, and a note, where it cannot be read. A kind that the server does not have is empty."""
        try:
            return [one async for one in self._client.each(kind, where)]
        except NotFound:
            return []
        except KubeError as error:
            if needed:
                self._unread.append(f"{what}: {_short(error)}")
            return None

    async def _walk(self) -> None:
        """What stands between the job and its pods."""
        owners = {self._job.uid}
        for kind in self._owner.between:
            for body in await self._list(kind, kind.name, Selector(namespace=self._job.namespace)) or ():
                if any(ref.get("uid") in owners for ref in value(body, "metadata", "ownerReferences") or ()):
                    owners.add(value(body, "metadata", "uid") or "")
        self._between = owners - {self._job.uid}

    async def _pods(self) -> list[Replica]:
        owners = {self._job.uid, *self._between}
        found: dict[str, JSON] = {}
        for label in self._owner.labels:
            where = Selector(namespace=self._job.namespace, labels=f"{label}={self._job.name}")
            bodies = await self._list(PODS, "pods", where)
            self._blind = bodies is None
            for body in bodies or ():
                references = value(body, "metadata", "ownerReferences") or ()
                if not references or any(ref.get("uid") in owners for ref in references):
                    found[value(body, "metadata", "name") or ""] = body
        made = (decode.replica(self._owner, self._job.name, found[name]) for name in sorted(found))
        return [one for one in made if one is not None]

    async def _events(self) -> dict[str, list[Told]]:
        """Of the whole namespace, by the uid of whom they are about; claims by name."""
        about: dict[str, list[Told]] = {}
        for body in await self._list(EVENTS, "events", Selector(namespace=self._job.namespace)) or ():
            regarding = body.get("regarding") or {}
            event = decode.told(body)
            about.setdefault(regarding.get("uid") or "", []).append(event)
            if regarding.get("kind") == "PersistentVolumeClaim":
                about.setdefault(f"claim/{regarding.get('name')}", []).append(event)
        return about

    async def _claims(self, replicas: Iterable[Replica]) -> dict[str, Claim]:
        """Only of pods that have not started: for the others they were good enough."""
        waiting = [one for one in replicas if one.pod.status.phase in ("", "Pending")]
        wanted = {volume.claim for one in waiting for volume in one.volumes if volume.claim}
        found: dict[str, Claim] = {}
        for name in sorted(wanted):
            try:
                body: JSON = await self._client.get(CLAIMS, Key(self._job.namespace, name))
                found[name] = decode.claim(name, body)
            except NotFound:
                found[name] = decode.claim(name, None)
            except KubeError as error:
                self._unread.append(f"claim {name}: {_short(error)}")
        return found

    async def _nodes(self, replicas: Iterable[Replica]) -> tuple[Node, ...] | None:
        """Those on which its pods are; all of them, when one has no node yet."""
        names = {one.pod.spec.node_name for one in replicas}
        if "" in names or len(names) > MOST_NODES:
            found = await self._list(Node, "nodes", Selector())
            return None if found is None else tuple(found)
        nodes: list[Node] = []
        for name in sorted(names):
            try:
                nodes.append(await self._client.get(Node, Key("", name)))
            except NotFound:
                continue
            except KubeError as error:
                self._unread.append(f"nodes: {_short(error)}")
                return None
        return tuple(nodes)

    async def _taken(self, replicas: Iterable[Replica]) -> Mapping[str, Mapping[str, Quantity]] | None:
        """What pods of all namespaces have taken of the nodes: asked only when somebody lacks room or memory."""
        if not any(_lacks_room(one) for one in replicas):
            return None
        where = Selector(fields="status.phase!=Succeeded,status.phase!=Failed")
        pods = await self._list(Pod, "pods of all namespaces", where)
        if pods is None:
            return None
        taken: dict[str, dict[str, Quantity]] = {}
        for pod in pods:
            if pod.spec.node_name:
                total = add(taken.get(pod.spec.node_name, {}), ONE_POD)
                for one in pod.spec.containers:
                    total = add(total, parse_resources(one.resources.requests))
                taken[pod.spec.node_name] = total
        return taken

    async def _gang(self, replicas: Iterable[Replica]) -> Gang | None:
        names = {self._job.name}
        complete = sum(bool(one.pod.spec.node_name) for one in replicas) >= max(self._job.asked, 1)
        if complete or self._job.finished:
            return None
        for one in replicas:
            metadata = one.pod.metadata
            names.add(metadata.annotations.get("scheduling.k8s.io/group-name", self._job.name))
            names.add(metadata.labels.get("scheduling.x-k8s.io/pod-group", self._job.name))
        for kind in POD_GROUPS:
            where = Selector(namespace=self._job.namespace)
            for body in await self._list(kind, kind.name, where, needed=False) or ():
                if value(body, "metadata", "name") in names:
                    return decode.gang(body)
        return None

    async def _queues(self, gang: Gang | None) -> tuple[str, ...] | None:
        """Those of our scheduler, by name: asked only for a group that names one that must exist."""
        if gang is None or not gang.ours or gang.queue in ("", DEFAULT_QUEUE):
            return None
        if self._job.recorded is not None:  # A record has no queues in it.
            return None
        found = await self._list(QUEUES, "queues", Selector())
        return None if found is None else tuple(sorted(value(one, "metadata", "name") or "" for one in found))

    async def _usage(self, replicas: Iterable[Replica]) -> dict[str, tuple[Quantity | None, Quantity | None]]:
        """CPU and memory, where the cluster measures them."""
        wanted = {one.pod.metadata.name for one in replicas if one.pod.status.phase == "Running"}
        label = f"{self._owner.labels[0]}={self._job.name}"
        where = Selector(namespace=self._job.namespace, labels=label)
        try:
            found = [one async for one in self._client.each(METRICS, where)] if wanted else []
        except KubeError:
            # Few clusters have it, and nothing but the search for hangs needs it.
            return {}
        return {value(one, "metadata", "name"): _measured(one) for one in found}

    # Operator

    async def _operator(self) -> Operator:
        if self._job.noticed or self._owner.facts is None:
            return Operator()
        before = len(self._unread)
        signs: list[str] = []
        for name in LEASES:
            for lease in await self._list(Lease, "leases", Selector(fields=f"metadata.name={name}")) or ():
                renewed = lease.spec.renew_time
                if (
                    lease.spec.holder_identity
                    and renewed is not None
                    and self._now - renewed < timedelta(minutes=1)
                ):
                    signs.append(f"{lease.spec.holder_identity} renews lease {lease.metadata.key}")
        ill, log = [], list[str]()
        for pod in await self._list(Pod, "operator pods", Selector(labels=OPERATORS)) or ():
            if pod.status.phase == "Running":
                signs.append(f"pod {pod.metadata.key} runs")
                log += [
                    line
                    for line in await self._tail(pod.metadata.key, "", tail=500)
                    if self._job.name in line
                ]
            else:
                ill.append(f"operator pod {pod.metadata.key} is {pod.status.phase}")
        return Operator(tuple(signs), tuple(ill), tuple(log[-20:]), searched=len(self._unread) == before)

    # Logs

    async def _logs(self, replicas: Iterable[Replica]) -> dict[str, Replica]:
        chosen = sorted(replicas, key=_interest)[:MOST_LOGS]
        read: dict[str, Replica] = {}

        async def one(replica: Replica) -> None:
            read[replica.name] = await self._read(replica)

        if self._job.state != "Succeeded":
            await run_all((one(replica) for replica in chosen), at_once=8)
        return read

    async def _read(self, replica: Replica) -> Replica:
        logs: dict[str, tuple[str, ...]] = {}
        earlier: dict[str, tuple[str, ...]] = {}
        last: datetime | None = None
        for status in replica.statuses:
            state = status.state
            if state.running is None and state.terminated is None and status.last_state.terminated is None:
                continue
            if state.terminated is not None and state.terminated.exit_code == 0:
                continue
            stamped = await self._tail(replica.pod.metadata.key, status.name, timestamps=True)
            moments = [at for at, _ in map(_split, stamped) if at is not None]
            last = max((*moments, *([last] if last else [])), default=None)
            logs[status.name] = tuple(text for _, text in map(_split, stamped))
            if state.running is not None and status.last_state.terminated is not None:
                earlier[status.name] = await self._tail(replica.pod.metadata.key, status.name, previous=True)
        return decode.with_logs(replica, logs, earlier, last)

    async def _tail(
        self,
        pod: Key,
        container: str,
        *,
        previous: bool = False,
        timestamps: bool = False,
        tail: int = LOG_LINES,
    ) -> tuple[str, ...]:
        reading = Pods(self._client).logs(
            pod, container=container, tail=tail, previous=previous, timestamps=timestamps
        )
        try:
            async with aclosing(reading) as lines:
                return tuple([line.decode(errors="replace") async for line in lines])
        except (NotFound, BadRequest):
            return ()
        except KubeError as error:
            self._unread.append(f"log of {pod.name}: {_short(error)}")
            return ()


def _lacks_room(one: Replica) -> bool:
    states = [state for status in one.statuses for state in (status.state, status.last_state)]
    killed = any(state.terminated is not None and state.terminated.reason == "OOMKilled" for state in states)
    return killed or not one.pod.spec.node_name


def _interest(one: Replica) -> tuple[int, float]:
    """Failed ones first, the earliest of them first."""
    ends = [
        state.finished_at.timestamp()
        for status in one.statuses
        for state in (status.state.terminated, status.last_state.terminated)
        if state is not None and state.exit_code and state.finished_at is not None
    ]
    return (0, min(ends)) if ends else (1, 0.0)


def _measured(body: JSON) -> tuple[Quantity | None, Quantity | None]:
    totals: dict[str, Quantity] = {}
    for one in body.get("containers") or ():
        try:
            totals = add(totals, parse_resources(one.get("usage") or {}))
        except QuantityError:
            return None, None
    return totals.get("cpu"), totals.get("memory")


def _split(line: str) -> tuple[datetime | None, str]:
    stamp, _, text = line.partition(" ")
    at = decode.moment(stamp) if stamp[:2].isdigit() else None
    return (at, text) if at is not None else (None, line)


def _ordered(events: Iterable[Told]) -> list[Told]:
    return sorted(events, key=lambda one: one.at.timestamp() if one.at is not None else 0.0)


def _short(error: KubeError) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
