"""`gangline plan --fit`: whether there is room for a job now, by the scheduler's own engine; and if not, what is missing."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document
from gangline.api.core import PriorityClass
from gangline.api.kubeflow.training import REPLICA_TYPE, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import PLACEMENT_SCHEME, Pod
from gangline.api.scheduling import DEFAULT_QUEUE, PODGROUPS, QUEUES, PodGroupSpec
from gangline.api.scheme import CORE_SCHEME, Resource
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions
from gangline.cli.connect.server import ServerTarget as Server
from gangline.cli.exit_codes import FAILED, NOT_FOUND
from gangline.cli.manifests.files import NO_OBJECTS, STDIN, read_files
from gangline.cli.manifests.lint import Finding, kind_of
from gangline.cli.output import formats, tables
from gangline.cli.plan.command import observed_job, planned_objects
from gangline.cli.resources.lookup import find_job
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, NotFound
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.pods.decode import ShapeCache
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import (
    Bind,
    Decision,
    GangRequest,
    Pending,
    PodSet,
    Preempt,
    SchedulerPolicy,
)
from gangline.scheduler.types.requests import member_count, minimal_request, requested_amounts
from gangline.scheduler.types.resources import as_quantity

EXIT_FITS = 0
FINISHED_PHASES = ("Succeeded", "Failed")

JobDocument = tuple[Document, JobKind]


class FitResult(msgspec.Struct, frozen=True, rename="camel"):
    """The answer for one job."""

    job: str
    namespace: str
    fits: bool
    members: int
    # How many must be placed at once; less those that are there already.
    least: int
    # Of the job's members, those that have a node.
    placed: int
    message: str
    # Node -> role -> how many would go there.
    nodes: dict[str, dict[str, int]] = {}
    # Why it would wait, and for how many nodes what is in the way.
    cause: str = ""
    reasons: Mapping[str, int] = {}
    # Resource -> how much of it is needed at least, free, and missing.
    missing: dict[str, dict[str, str]] = {}


def print_fit(names: Sequence[str], server: ServerOptions, *, recursive: bool, form: str) -> int:
    """Print whether each job of the files, or on the server, would fit. Gives the exit code."""
    if form not in ("tree", "json"):
        raise InputError(f"-o {form}: --fit prints text, or json")
    if not names:
        raise InputError("name a file, a folder, - for standard input, or a job on the server")
    read = [(name, _jobs_in_file(name, recursive=recursive)) for name in names]

    async def work(client: Client, place: Server) -> int:
        jobs: list[JobDocument] = []
        for name, found_in_file in read:
            jobs += found_in_file or await _jobs_on_server(client, place, name)
        here = place.plane_folder is not None or place.run_folder is not None
        found = await check_fit(client, jobs, place.flag_namespace, place.object_namespace, here=here)
        if form == "json":
            tables.write_stdout(formats.as_json(msgspec.to_builtins(found if len(found) > 1 else found[0])))
        else:
            tables.write_stdout("\n".join(map(fit_text, found)))
        return EXIT_FITS if all(each.fits for each in found) else FAILED

    return run_blocking(server, work, missing=NOT_FOUND)


async def check_fit(
    client: Client, jobs: Sequence[JobDocument], asked: str = "", home: str = "default", *, here: bool = False
) -> list[FitResult]:
    """Whether these jobs would fit, all together. They are in the namespace asked for, else in their own, else at home.

    `here`: the server is a plane of this machine, whose operator adds no container to them.
    """
    look = await read_cluster(client)
    asks = [_job_request(look, job, asked, home, here=here) for job in jobs]
    return fit_results(look.cache, asks, SystemClock().now())


def _jobs_in_file(name: str, *, recursive: bool) -> list[JobDocument] | None:
    """The jobs in a file or folder; None: it is neither, so a job's name."""
    if name != STDIN and not Path(name).exists() and not name.endswith((".yaml", ".yml", ".json")):
        return None
    return _job_documents(read_files([name], recursive=recursive), name)


async def _jobs_on_server(client: Client, place: Server, name: str) -> list[JobDocument]:
    found = await find_job(client, place.object_namespace, name)
    return _job_documents([Document(body=found.body, lines={}, file=name)], name)


def _job_documents(documents: Sequence[Document], name: str) -> list[JobDocument]:
    jobs = []
    for document in documents:
        facts = kind_of(document)
        if isinstance(facts, Finding):
            raise InputError(str(facts))
        if isinstance(facts, JobKind):
            jobs.append((document, facts))
    if not jobs:
        raise InputError(f"{name}: {'holds no training job' if documents else NO_OBJECTS}; give a file with a job")
    return jobs


# What there is


class ClusterState(msgspec.Struct, frozen=True):
    """What is on the server, as the scheduler would see it."""

    cache: SchedulerCache
    # Pods that have a node.
    placed_pods: frozenset[Key]
    priority_classes: Mapping[str, PriorityClass]


async def read_cluster(client: Client) -> ClusterState:
    """Nodes, pods and what else decides, read once."""
    notes: list[str] = []
    world = SchedulerCache(SchedulerSettings(), changed=lambda: None)
    classes = await _list_optional(client, CORE_SCHEME.find("priorityclasses"), notes)
    for found in classes:
        world.on_priority_class(Delta(None, found))
    for kind, put in (
        (QUEUES, world.on_queue),
        (PLACEMENT_SCHEME.find("namespaces"), world.on_namespace),
        (PLACEMENT_SCHEME.find("storageclasses"), world.on_storage_class),
        (PLACEMENT_SCHEME.find("persistentvolumes"), world.on_volume),
        (PLACEMENT_SCHEME.find("persistentvolumeclaims"), world.on_claim),
        (PLACEMENT_SCHEME.find("csinodes"), world.on_attach_limits),
        (PODGROUPS, world.on_group),
    ):
        for found in await _list_optional(client, kind, notes):
            put(Delta(None, found))
    for node in (await client.list(PLACEMENT_SCHEME.find("nodes"))).items:
        world.on_node(Delta(None, node))
    pods = [
        pod
        for pod in (await client.list(PLACEMENT_SCHEME.find("pods"))).items
        if pod.status.phase not in FINISHED_PHASES
    ]
    # Not before: whoever may not read nodes or pods is told that, and nothing else.
    for note in notes:
        print(note, file=sys.stderr)
    for pod in pods:
        world.on_pod(Delta(None, pod))
    placed = frozenset(pod.metadata.key for pod in pods if pod.spec.node_name)
    return ClusterState(world, placed, {found.metadata.name: found for found in classes})


async def _list_optional(client: Client, kind: Resource[Any], notes: list[str]) -> tuple[Any, ...]:
    """Objects that a server may not know. Of what may not be read a note says so."""
    try:
        return (await client.list(kind, Selector())).items
    except NotFound:
        return ()
    except Forbidden as error:
        notes.append(f"note: {kind.plural} are not looked at: {error}")
        return ()


def _job_request(look: ClusterState, job: JobDocument, asked: str, home: str, *, here: bool) -> tuple[GangRequest, int]:
    """What the job asks for, as its gang, and how many of its members have a node already."""
    _, seen = observed_job(job, asked, home)
    head, bodies = planned_objects(job, asked, home, bare=here)
    key = Key(head["metadata"]["namespace"], head["metadata"]["name"])
    spec = msgspec.convert(GanglineScheduler().group_companions(seen.gang_spec, None)[-1].body["spec"], PodGroupSpec)
    pods = [decode_document(Document(with_default_requests(body), {}), Pod) for body in bodies if body["kind"] == "Pod"]
    wanting = [pod for pod in pods if pod.metadata.key not in look.placed_pods]
    placed = Counter(_role(pod) for pod in pods if pod.metadata.key in look.placed_pods)
    return _gang_request(look, key, spec, wanting, placed), sum(placed.values())


def with_default_requests(pod: JSON) -> JSON:
    """A pod with the requests that a server gives it: what is limited and not requested is requested as limited."""
    spec = dict(pod["spec"])
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_with_requests(container) for container in spec[name]]
    return {**pod, "spec": _with_requests(spec)}


def _with_requests(limited: JSON) -> JSON:
    resources = limited.get("resources") or {}
    if not resources.get("limits"):
        return limited
    return {
        **limited,
        "resources": {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}},
    }


def _role(pod: Pod) -> str:
    return pod.metadata.labels.get(REPLICA_TYPE, "")


def _gang_request(
    look: ClusterState, key: Key, spec: PodGroupSpec, pods: Sequence[Pod], placed: Mapping[str, int]
) -> GangRequest:
    shapes, now = ShapeCache(), SystemClock().now()
    try:
        kinds = Counter((_role(pod), shapes.shape_for(pod, look.cache.nodes.selected_labels)) for pod in pods)
    except QuantityError as error:
        raise InputError(f"{key}: {error}") from error
    standing = _priority_class(look.priority_classes, spec.priority_class_name, pods)
    return GangRequest(
        key=key,
        uid=f"plan {key}",
        queue=spec.queue or DEFAULT_QUEUE,
        priority=standing.value,
        created=now,
        waiting_since=now,
        recovering=False,
        pod_sets=tuple(PodSet(role, shape, count) for (role, shape), count in kinds.items()),
        min_members=max(0, spec.min_member - sum(placed.values())),
        min_by_role={role: max(0, least - placed.get(role, 0)) for role, least in spec.min_task_member.items()},
        topology=spec.topology,
        can_preempt=standing.preemption_policy != "Never",
    )


def _priority_class(classes: Mapping[str, PriorityClass], name: str, pods: Sequence[Pod]) -> PriorityClass:
    """The class of the gang; else that of its most important pod, which may be the one for all that name none."""
    if name:
        return _required_class(classes, name, "priorityClass")
    default = next((found for found in classes.values() if found.global_default), PriorityClass())
    named = [
        _required_class(classes, pod.spec.priority_class_name, "priorityClassName")
        if pod.spec.priority_class_name
        else default
        for pod in pods
    ]
    return max(named, key=lambda found: found.value, default=default)


def _required_class(classes: Mapping[str, PriorityClass], name: str, field: str) -> PriorityClass:
    if name not in classes:
        there = ", ".join(sorted(classes)) or "none"
        raise InputError(f"{field} {name}: there is no such PriorityClass on the server; there are: {there}")
    return classes[name]


# What comes out


def fit_results(world: SchedulerCache, asks: Sequence[tuple[GangRequest, int]], now: datetime) -> list[FitResult]:
    """Whether they fit, all of them together, in this order of right: importance, queue, and as they came."""
    free = world.nodes.what_if().free()
    wanting = [asking for asking, _ in asks if asking.pod_sets]
    found = schedule(
        world.nodes.what_if(),
        wanting,
        world.gangs.allocations(),
        world.queues,
        SchedulerPolicy(starvation_timeout=None),
        now,
    )
    by_uid = {decision.request.uid: decision for decision in found.decisions}
    # What one of them gets is not free for the others.
    given = Counter[str]()
    for decision in found.decisions:
        if isinstance(decision, Bind):
            taken = zip(decision.request.pod_sets, decision.nodes, strict=True)
            given.update(requested_amounts([msgspec.structs.replace(need, count=len(nodes)) for need, nodes in taken]))
    left = {name: amount - given[name] for name, amount in free.items()}
    return [_fit_result(asking, placed, by_uid.get(asking.uid), left) for asking, placed in asks]


def _fit_result(asking: GangRequest, placed: int, decision: Decision | None, free: Mapping[str, int]) -> FitResult:
    fields: dict[str, Any] = {
        "job": asking.key.name,
        "namespace": asking.key.namespace,
        "members": member_count(asking) + placed,
        "least": asking.min_members,
        "placed": placed,
    }
    match decision:
        case None:
            return FitResult(fits=True, message="all its members have a node", **fields)
        case Bind(nodes=nodes):
            count = sum(map(len, nodes))
            where = _placement(asking, nodes)
            message = f"{count} of {member_count(asking)} members have room, on {len(where)} {'node' if len(where) == 1 else 'nodes'}"
            return FitResult(fits=True, message=message, nodes=where, **fields)
        case Preempt(victims=victims, victim_gangs=gangs):
            names = ", ".join(map(str, gangs))
            leaving = f"{len(victims)} {'pod' if len(victims) == 1 else 'pods'}"
            message = f"not now; {leaving} of {names} would have to leave, less important or beyond its share"
            return FitResult(
                fits=False,
                message=message,
                cause="Victims",
                nodes=_placement(asking, decision.nodes),
                **fields,
            )
        case Pending(reason=cause, message=message, nodes_by_reason=reasons):
            gap = _missing_resources(asking, free)
            return FitResult(fits=False, message=message, cause=cause, reasons=reasons, missing=gap, **fields)


def _placement(asking: GangRequest, nodes: Sequence[Sequence[str]]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for need, names in zip(asking.pod_sets, nodes, strict=True):
        for name in names:
            found.setdefault(name, Counter())[need.role or "member"] += 1
    return {name: dict(sorted(roles.items())) for name, roles in sorted(found.items())}


def _missing_resources(asking: GangRequest, free: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """By sums over all nodes; only what is short. Empty: there is enough, but not where it is needed."""
    needed = requested_amounts(minimal_request(asking).pod_sets)
    return {
        name: {
            "needed": as_quantity(name, amount),
            "free": as_quantity(name, free.get(name, 0)),
            "missing": as_quantity(name, amount - free.get(name, 0)),
        }
        for name, amount in sorted(needed.items())
        if amount > free.get(name, 0)
    }


def fit_text(fit: FitResult) -> str:
    """The answer for people."""
    verdict = "fits" if fit.fits else "does not fit"
    lines = [f"{fit.namespace}/{fit.job} {verdict}: {fit.message}\n"]
    if fit.placed and fit.members > fit.placed:
        lines.append(f"{fit.placed} of its {fit.members} members have a node already\n")
    if fit.nodes:
        roles = sorted({role for found in fit.nodes.values() for role in found})
        rows = [(node, *(str(found.get(role, "-")) for role in roles)) for node, found in fit.nodes.items()]
        lines.append(tables.render(("NODE", *(role.upper() for role in roles)), rows))
    if fit.missing:
        rows = [(name, gap["needed"], gap["free"], gap["missing"]) for name, gap in fit.missing.items()]
        lines.append(tables.render(("RESOURCE", "NEEDED", "FREE", "MISSING"), rows))
    elif fit.cause == "Resources":
        lines.append("there is enough in all, but not on nodes where its members can go\n")
    return "".join(lines)
