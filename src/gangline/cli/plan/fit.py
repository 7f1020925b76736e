"""`gangline plan --fit`: whether a job fits now, decided by the scheduler's own engine; and if not, what is missing."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document
from gangline.api.core import PriorityClass
from gangline.api.kubeflow.training import REPLICA_TYPE
from gangline.api.meta import JSON, Key, Selector
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import PLACEMENT_SCHEME, Pod
from gangline.api.scheduling import DEFAULT_QUEUE, PODGROUPS, QUEUES, PodGroupSpec
from gangline.api.scheme import CORE_SCHEME, Resource
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking_at
from gangline.cli.connect.server import NoServer, ServerOptions, ServerTarget, find_server
from gangline.cli.exit_codes import FAILED, NOT_FOUND
from gangline.cli.manifests.files import STDIN, read_files
from gangline.cli.output import formats, tables
from gangline.cli.plan.objects import JobDocument, PlanTarget, job_documents, observed_job, planned_objects
from gangline.cli.resources.lookup import find_job
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, NotFound
from gangline.local.paths import home_folder
from gangline.node.node_status import node_body, node_status
from gangline.node.options import node_settings
from gangline.node.resources import machine_capacity
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.pods.decode import ShapeCache
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import Bind, Decision, GangRequest, Pending, PodSet, Preempt, SchedulerPolicy
from gangline.scheduler.types.gang_requests import member_count, minimal_request, requested_amounts
from gangline.scheduler.types.resources import as_quantity

EXIT_FITS = 0
DEFAULT_TARGET = PlanTarget()
FINISHED_PHASES = ("Succeeded", "Failed")


class FitResult(msgspec.Struct, frozen=True, rename="camel"):
    """Whether one job fits."""

    job: str
    namespace: str
    fits: bool
    members: int
    # How many members must be placed at once, without those that have a node already.
    least: int
    # How many members of the job have a node.
    placed: int
    message: str
    # Node -> role -> how many members would be placed there.
    nodes: dict[str, dict[str, int]] = {}
    # Why the job would wait, and the number of nodes for each reason.
    cause: str = ""
    reasons: Mapping[str, int] = {}
    # Resource -> the amounts that are needed at least, free, and missing.
    missing: dict[str, dict[str, str]] = {}


def print_fit(names: Sequence[str], server: ServerOptions, *, recursive: bool, form: str) -> int:
    """Print whether each job, in a file or on the server, would fit; returns the exit code."""
    if form not in ("tree", "json"):
        raise InputError(f"-o {form}: --fit prints text or JSON; write -o json, or leave -o out")
    if not names:
        raise InputError("name a file, a folder, - for standard input, or a job on the server")
    files = [(name, _jobs_in_file(name, recursive=recursive)) for name in names]

    async def work(client: Client, server: ServerTarget) -> int:
        jobs: list[JobDocument] = []
        for name, jobs_in_file in files:
            jobs += jobs_in_file or await _jobs_on_server(client, server, name)
        is_local = server.plane_folder is not None or server.run_folder is not None
        target = PlanTarget(server.flag_namespace, server.object_namespace, bare=is_local)
        return _print_results(await check_fit(client, jobs, target), form)

    with suppress(NoServer):
        target = find_server(server)
        if target.archive is None:
            return run_blocking_at(target, server, work, missing=NOT_FOUND)
    missing = [name for name, jobs_in_file in files if jobs_in_file is None]
    if missing:
        raise InputError(f"{missing[0]}: no such file, and no server is running that could have a job of that name")
    print("no server is running; the jobs are fitted to this machine", file=sys.stderr)
    local = PlanTarget(server.namespace or "", server.namespace or "default", bare=True)
    jobs = [job for _, jobs_in_file in files for job in jobs_in_file or ()]
    return _print_results(fit_to(machine_cluster(), jobs, local), form)


def _print_results(results: Sequence[FitResult], form: str) -> int:
    if form == "json":
        tables.write_stdout(formats.as_json(msgspec.to_builtins(results if len(results) > 1 else results[0])))
    else:
        tables.write_stdout("\n".join(map(fit_text, results)))
    return EXIT_FITS if all(result.fits for result in results) else FAILED


async def check_fit(
    client: Client, jobs: Sequence[JobDocument], target: PlanTarget = DEFAULT_TARGET
) -> list[FitResult]:
    """Whether these jobs would fit, all together."""
    cluster, notes = await read_cluster(client)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return fit_to(cluster, jobs, target)


def fit_to(cluster: "ClusterState", jobs: Sequence[JobDocument], target: PlanTarget) -> list[FitResult]:
    """Whether these jobs would fit on a cluster, all together."""
    requests = [_job_request(cluster, job, target) for job in jobs]
    return fit_results(cluster.cache, requests, SystemClock().now())


def _jobs_in_file(name: str, *, recursive: bool) -> list[JobDocument] | None:
    """The jobs in a file or folder; None if there is no such file, so that it is the name of a job."""
    if name != STDIN and not Path(name).exists() and not name.endswith((".yaml", ".yml", ".json")):
        return None
    return job_documents(read_files([name], recursive=recursive), name)


async def _jobs_on_server(client: Client, server: ServerTarget, name: str) -> list[JobDocument]:
    job = await find_job(client, server.object_namespace, name)
    return job_documents([Document(body=job.body, lines={}, file=name)], name)


# The cluster


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as the scheduler would see it."""

    cache: SchedulerCache
    # The pods that have a node.
    placed_pods: frozenset[Key]
    priority_classes: Mapping[str, PriorityClass]


def machine_cluster() -> ClusterState:
    """This machine as a cluster of one node, empty, as `gangline run` would start it."""
    settings = node_settings()
    capacity = machine_capacity(settings.capacity, home_folder(None), settings.gpus)
    status = node_status(capacity, (), SystemClock().now())
    body = {"apiVersion": "v1", "kind": "Node", **node_body(settings.name), "status": status}
    cache = SchedulerCache(SchedulerSettings())
    cache.on_node(Delta(None, decode_document(Document(body, {}), PLACEMENT_SCHEME.find("nodes").model)))
    return ClusterState(cache, frozenset(), {})


async def read_cluster(client: Client) -> tuple[ClusterState, list[str]]:
    """Read nodes, pods and everything else that the scheduler looks at, once; and what of it may not be read.

    Raises `KubeError` if nodes or pods may not be read.
    """
    notes: list[str] = []
    cache = SchedulerCache(SchedulerSettings())
    classes = await _list_optional(client, CORE_SCHEME.find("priorityclasses"), notes)
    for priority_class in classes:
        cache.on_priority_class(Delta(None, priority_class))
    names = ("namespaces", "storageclasses", "persistentvolumes", "persistentvolumeclaims", "csinodes")
    for kind in (QUEUES, *map(PLACEMENT_SCHEME.find, names), PODGROUPS):
        for item in await _list_optional(client, kind, notes):
            cache.handle(Delta(None, item))
    for node in (await client.list(PLACEMENT_SCHEME.find("nodes"))).items:
        cache.on_node(Delta(None, node))
    pods = [
        pod
        for pod in (await client.list(PLACEMENT_SCHEME.find("pods"))).items
        if pod.status.phase not in FINISHED_PHASES
    ]
    for pod in pods:
        cache.on_pod(Delta(None, pod))
    placed = frozenset(pod.metadata.key for pod in pods if pod.spec.node_name)
    return ClusterState(cache, placed, {found.metadata.name: found for found in classes}), notes


async def _list_optional(client: Client, kind: Resource[Any], notes: list[str]) -> tuple[Any, ...]:
    """The objects of a kind; none if the server does not have the kind. Adds a note if they may not be read."""
    try:
        return (await client.list(kind, Selector())).items
    except NotFound:
        return ()
    except Forbidden as error:
        notes.append(f"{kind.plural} are not looked at: {error}")
        return ()


def _job_request(cluster: ClusterState, job: JobDocument, target: PlanTarget) -> tuple[GangRequest, int]:
    """The request of the job's gang, and how many of its members have a node already."""
    _, observed = observed_job(job, target._replace(bare=False))
    body, bodies = planned_objects(job, target)
    key = Key(body["metadata"]["namespace"], body["metadata"]["name"])
    group = GanglineScheduler().group_companions(observed.gang_spec, None)[-1]
    spec = msgspec.convert(group.body["spec"], PodGroupSpec)
    pods = [decode_document(Document(with_default_requests(pod), {}), Pod) for pod in _pod_bodies(bodies)]
    unplaced = [pod for pod in pods if pod.metadata.key not in cluster.placed_pods]
    placed = Counter(_role(pod) for pod in pods if pod.metadata.key in cluster.placed_pods)
    return _gang_request(cluster, key, spec, unplaced, placed), sum(placed.values())


def _pod_bodies(bodies: Iterable[JSON]) -> Iterator[JSON]:
    """The pods among these objects, and the pod of a launcher's Job."""
    for body in bodies:
        if body["kind"] == "Pod":
            yield body
        elif body["kind"] == "Job":
            metadata, template = body["metadata"], body["spec"]["template"]
            named = {**template["metadata"], "name": metadata["name"], "namespace": metadata["namespace"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


def with_default_requests(pod: JSON) -> JSON:
    """The pod with the defaults that a server sets: a limit without a request is also the request."""
    spec = dict(pod["spec"])
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_with_requests(container) for container in spec[name]]
    return {**pod, "spec": _with_requests(spec)}


def _with_requests(spec: JSON) -> JSON:
    """The spec of a pod or a container with its limits as default requests."""
    resources = spec.get("resources") or {}
    if not resources.get("limits"):
        return spec
    return {
        **spec,
        "resources": {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}},
    }


def _role(pod: Pod) -> str:
    return pod.metadata.labels.get(REPLICA_TYPE, "")


def _gang_request(
    cluster: ClusterState, key: Key, spec: PodGroupSpec, pods: Sequence[Pod], placed: Mapping[str, int]
) -> GangRequest:
    shapes, now = ShapeCache(), SystemClock().now()
    try:
        counts = Counter((_role(pod), shapes.shape_for(pod, cluster.cache.nodes.selected_labels)) for pod in pods)
    except QuantityError as error:
        raise InputError(f"{key}: {error}") from error
    priority_class = _priority_class(cluster.priority_classes, spec.priority_class_name, pods)
    return GangRequest(
        key=key,
        uid=f"plan {key}",
        queue=spec.queue or DEFAULT_QUEUE,
        priority=priority_class.value,
        created=now,
        waiting_since=now,
        recovering=False,
        pod_sets=tuple(PodSet(role, shape, count) for (role, shape), count in counts.items()),
        min_members=max(0, spec.min_member - sum(placed.values())),
        min_by_role={role: max(0, least - placed.get(role, 0)) for role, least in spec.min_task_member.items()},
        topology=spec.topology,
        can_preempt=priority_class.preemption_policy != "Never",
    )


def _priority_class(classes: Mapping[str, PriorityClass], name: str, pods: Sequence[Pod]) -> PriorityClass:
    """The class of the gang, else the highest one of its pods; a pod without a class has the global default."""
    if name:
        return _required_class(classes, name, "priorityClass")
    default = next((each for each in classes.values() if each.global_default), PriorityClass())
    pod_classes = [
        _required_class(classes, pod.spec.priority_class_name, "priorityClassName")
        if pod.spec.priority_class_name
        else default
        for pod in pods
    ]
    return max(pod_classes, key=lambda pod_class: pod_class.value, default=default)


def _required_class(classes: Mapping[str, PriorityClass], name: str, field: str) -> PriorityClass:
    if name not in classes:
        names = ", ".join(sorted(classes)) or "none"
        raise InputError(f"{field} {name}: there is no such PriorityClass on the server; there are: {names}")
    return classes[name]


# The answer


def fit_results(cache: SchedulerCache, requests: Sequence[tuple[GangRequest, int]], now: datetime) -> list[FitResult]:
    """Whether the requests fit, all together: ordered by priority, queue, and their position in the sequence.

    Each request comes with the number of members that have a node already.
    """
    free = cache.nodes.what_if().free()
    cycle = schedule(
        cache.nodes.what_if(),
        [request for request, _ in requests if request.pod_sets],
        cache.gangs.allocations(),
        cache.queues,
        SchedulerPolicy(starvation_timeout=None),
        now,
    )
    by_uid = {decision.request.uid: decision for decision in cycle.decisions}
    # What one of the requests gets is not free for the others.
    bound = Counter[str]()
    for decision in cycle.decisions:
        if isinstance(decision, Bind):
            pairs = zip(decision.request.pod_sets, decision.nodes, strict=True)
            pod_sets = [msgspec.structs.replace(pod_set, count=len(nodes)) for pod_set, nodes in pairs]
            bound.update(requested_amounts(pod_sets))
    remaining = {name: amount - bound[name] for name, amount in free.items()}
    return [_fit_result(request, placed, by_uid.get(request.uid), remaining) for request, placed in requests]


def _fit_result(request: GangRequest, placed: int, decision: Decision | None, free: Mapping[str, int]) -> FitResult:
    fields: dict[str, Any] = {
        "job": request.key.name,
        "namespace": request.key.namespace,
        "members": member_count(request) + placed,
        "least": request.min_members,
        "placed": placed,
    }
    match decision:
        case None:
            return FitResult(fits=True, message="all its members have a node", **fields)
        case Bind(nodes=nodes):
            count = sum(map(len, nodes))
            placement = _placement(request, nodes)
            node_count = f"{len(placement)} {'node' if len(placement) == 1 else 'nodes'}"
            message = f"{count} of {member_count(request)} members have room, on {node_count}"
            return FitResult(fits=True, message=message, nodes=placement, **fields)
        case Preempt(victims=victims, victim_gangs=gangs):
            names = ", ".join(map(str, gangs))
            pods = f"{len(victims)} {'pod' if len(victims) == 1 else 'pods'}"
            message = f"not now; {pods} of {names} would have to leave, less important or beyond its share"
            return FitResult(
                fits=False, message=message, cause="Victims", nodes=_placement(request, decision.nodes), **fields
            )
        case Pending(reason=cause, message=message, nodes_by_reason=reasons):
            missing = _missing_resources(request, free)
            return FitResult(fits=False, message=message, cause=cause, reasons=reasons, missing=missing, **fields)


def _placement(request: GangRequest, nodes: Sequence[Sequence[str]]) -> dict[str, dict[str, int]]:
    """Node -> role -> the number of members placed there, sorted."""
    counts: dict[str, Counter[str]] = {}
    for pod_set, names in zip(request.pod_sets, nodes, strict=True):
        for name in names:
            counts.setdefault(name, Counter())[pod_set.role or "member"] += 1
    return {name: dict(sorted(roles.items())) for name, roles in sorted(counts.items())}


def _missing_resources(request: GangRequest, free: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """The resources that are short in total. Empty: the total suffices, but not on nodes where the members can go."""
    needed = requested_amounts(minimal_request(request).pod_sets)
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
    """The result as text and tables."""
    verdict = "fits" if fit.fits else "does not fit"
    lines = [f"{fit.namespace}/{fit.job} {verdict}: {fit.message}\n"]
    if fit.placed and fit.members > fit.placed:
        lines.append(f"{fit.placed} of its {fit.members} members have a node already\n")
    if fit.nodes:
        roles = sorted({role for counts in fit.nodes.values() for role in counts})
        rows = [(node, *(str(counts.get(role, "-")) for role in roles)) for node, counts in fit.nodes.items()]
        lines.append(tables.render(("NODE", *(role.upper() for role in roles)), rows))
    if fit.missing:
        rows = [(name, gap["needed"], gap["free"], gap["missing"]) for name, gap in fit.missing.items()]
        lines.append(tables.render(("RESOURCE", "NEEDED", "FREE", "MISSING"), rows))
    elif fit.cause == "Resources":
        lines.append("there is enough in all, but not on nodes where its members can go\n")
    return "".join(lines)
