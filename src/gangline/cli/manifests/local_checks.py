"""Checks of a job before a run on this machine: all that the server would refuse, and what could never start here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangline.api.codec.documents import Document
from gangline.api.codec.errors import FieldPath
from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.kubeflow.training import OUR_MANAGER, JobKind
from gangline.api.meta import JSON
from gangline.api.quantity import ZERO, Quantity, QuantityError
from gangline.api.scheduling import SCHEDULER_NAME
from gangline.api.selectors import NODE_OPERATORS, Requirement
from gangline.base.errors import InputError
from gangline.cli.manifests.lint import LintError, check_job, framework_of
from gangline.cli.manifests.lint_pods import hidden_variables
from gangline.cli.manifests.references import QUEUE, Reference, RunObjects, pod_references
from gangline.why.diagnosis.wording import quantity_text

TF_HELPERS = ("PS", "Evaluator")
"""The replica types of a TFJob that serve the others until these have ended."""
LOCAL_VOLUMES = (
    "emptyDir",
    "hostPath",
    "configMap",
    "secret",
    "projected",
    "downwardAPI",
    "persistentVolumeClaim",
)
"""The types of volumes that a node of ours has."""
SCHEDULERS = ("", "default-scheduler", SCHEDULER_NAME)


class LocalPlane(NamedTuple):
    """What a run on this machine has: its node, and the objects in its files."""

    capacity: Mapping[str, Quantity]
    node_name: str = "local"
    node_labels: Mapping[str, str] = {}
    objects: RunObjects = RunObjects()
    # Whether every job is a gang; else only jobs with a schedulingPolicy are.
    gang: bool = False


class ReplicaTemplate(NamedTuple):
    """The pod template of the replicas of one type, which has some."""

    path: FieldPath
    spec: JSON
    replicas: int


def check_local_job(document: Document, kind: JobKind, plane: LocalPlane) -> None:
    """Raise `LintError` with all mistakes in a job, or `InputError` for the first reason why it would wait forever."""
    findings = check_job(document, kind)
    if findings:
        raise LintError(findings)
    templates = list(_templates(document, kind))
    if kind is TFJOB and all(template.path[2] in TF_HELPERS for template in templates):
        raise document.error("nobody here trains, so that the job never ends; add a Worker", templates[0].path[:2])
    _check_policy(document, sum(template.replicas for template in templates), plane)
    _check_requests(document, templates, plane.capacity)
    is_gang = _is_gang(document, plane)
    if is_gang:
        _check_gang(document, templates, plane.capacity)
    for path, message in (*_object_problems(templates, plane), *_node_problems(templates, plane, is_gang=is_gang)):
        raise document.error(message, path)


def local_warnings(document: Document, kind: JobKind, plane: LocalPlane) -> Iterator[str]:
    """What a correct job may not be meant to do on this machine, a line for each."""
    for path, message in hidden_variables(framework_of(kind.scheme), document.body):
        yield str(document.error(message, path))
    templates = list(_templates(document, kind))
    count = sum(template.replicas for template in templates)
    for name, amount in team_requests(templates, count).items():
        offered = plane.capacity.get(name, ZERO)
        if amount > offered and not _is_gang(document, plane):
            yield str(
                document.error(
                    f"{count} replicas need {name} {quantity_text(amount)}, and this machine has "
                    f"{quantity_text(offered)}: some of them wait until others have ended; change their number, or "
                    f"pretend that it has more: --capacity {name}={amount}",
                    templates[0].path[:2],
                )
            )


def _is_gang(document: Document, plane: LocalPlane) -> bool:
    return plane.gang or (document.body["spec"].get("runPolicy") or {}).get("schedulingPolicy") is not None


def _templates(document: Document, kind: JobKind) -> Iterator[ReplicaTemplate]:
    for replica_type, replica_spec in document.body["spec"][kind.replicas].items():
        replicas = replica_spec.get("replicas")
        count = kind.default_replicas.get(replica_type, 1) if replicas is None else replicas
        if count:
            path = ("spec", kind.replicas, replica_type, "template", "spec")
            yield ReplicaTemplate(path, replica_spec["template"]["spec"], count)


def _set_advice(paths: Iterable[FieldPath], value: str) -> str:
    return " ".join(f"--set {'.'.join(map(str, path))}={value}" for path in paths)


def _check_policy(document: Document, replicas: int, plane: LocalPlane) -> None:
    """Raise `InputError` for a run policy under which nothing ever starts here."""
    policy = document.body["spec"].get("runPolicy") or {}
    where: FieldPath = ("spec", "runPolicy")
    if policy.get("suspend"):
        path = (*where, "suspend")
        raise document.error(
            f"is true, so that the job waits to be resumed; leave it out, or add {_set_advice([path], 'false')}", path
        )
    if policy.get("managedBy") not in (None, "", OUR_MANAGER):
        path = (*where, "managedBy")
        raise document.error(
            f'is "{policy["managedBy"]}", a controller that does not run here; leave it out, or add '
            f"{_set_advice([path], OUR_MANAGER)}",
            path,
        )
    scheduling = policy.get("schedulingPolicy") or {}
    where = (*where, "schedulingPolicy")
    least = scheduling.get("minAvailable")
    if least is not None and least > replicas:
        path = (*where, "minAvailable")
        raise document.error(
            f"is {least}, but the job has {replicas} replicas, so that it never starts; write {replicas} or less, or add "
            f"{_set_advice([path], str(replicas))}",
            path,
        )
    queue = Reference((*where, "queue"), QUEUE, scheduling.get("queue") or "default")
    if problem := plane.objects.problem(queue):
        raise document.error(problem, queue.path)


# Resources


def _check_requests(document: Document, templates: Sequence[ReplicaTemplate], capacity: Mapping[str, Quantity]) -> None:
    """Raise `InputError` if a replica is larger than this machine, or if it has not enough room for so many."""
    count, pods = sum(template.replicas for template in templates), capacity.get("pods", ZERO)
    if pods > ZERO and Quantity.of(str(count)) > pods:
        advice = f"write {pods} or less, or pretend that there is room: --capacity pods={count}"
        if not document.file:
            raise InputError(f"--nproc {count}: this machine has room for {pods} processes of a job; {advice}")
        path = templates[0].path[:2]
        raise document.error(f"has {count} replicas, and this machine has room for {pods}; {advice}", path)
    for template in templates:
        for index, container in enumerate(template.spec.get("containers") or ()):
            for name, amount in _requests(container):
                offered = capacity.get(name, ZERO)
                if amount > offered:
                    where = (*template.path, "containers", index, "resources")
                    raise _capacity_error(document, where, name, amount, offered)


def _check_gang(document: Document, templates: Sequence[ReplicaTemplate], capacity: Mapping[str, Quantity]) -> None:
    """Raise `InputError` if the replicas that must start together are larger than this machine."""
    policy = (document.body["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
    total = sum(template.replicas for template in templates)
    least = total if policy.get("minAvailable") is None else policy["minAvailable"]
    needed, members = team_requests(templates, least), "all replicas" if least == total else f"{least} replicas"
    for name, amount in needed.items():
        offered = capacity.get(name, ZERO)
        if amount > offered:
            raise document.error(
                f"{members} start together and need {name} {quantity_text(amount)}, and this machine has "
                f"{quantity_text(offered)}; change it with --set, or pretend that it has more: "
                f"--capacity {name}={amount}",
                templates[0].path[:2],
            )


def team_requests(templates: Sequence[ReplicaTemplate], count: int) -> dict[str, Quantity]:
    """What the first `count` replicas of a job need together."""
    total: dict[str, Quantity] = {}
    for template in templates:
        replicas = min(count, template.replicas)
        count -= replicas
        for container in template.spec.get("containers") or ():
            for name, amount in _requests(container):
                total[name] = total.get(name, ZERO) + amount * replicas
    return total


def _requests(container: JSON) -> Iterator[tuple[str, Quantity]]:
    """What a container needs by name: its requests, else its limits."""
    resources = container.get("resources") or {}
    for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
        try:
            yield name, Quantity.of(str(amount))
        except QuantityError:
            continue


def _capacity_error(
    document: Document, where: tuple[str | int, ...], name: str, amount: Quantity, offered: Quantity
) -> InputError:
    has = f"this machine has {quantity_text(offered)}" if offered > ZERO else "this machine has none"
    pretend = f"pretend that it has some: --capacity {name}={amount}"
    if not document.file:
        return InputError(f"--limit {name}={amount}: {has}; leave it out, or {pretend}")
    return document.error(f"a replica needs {name} {amount}, and {has}; change it with --set, or {pretend}", where)


# Objects and the node


def _object_problems(templates: Sequence[ReplicaTemplate], plane: LocalPlane) -> Iterator[tuple[FieldPath, str]]:
    for template in templates:
        for reference in pod_references(template.spec):
            if problem := plane.objects.problem(reference):
                yield (*template.path, *reference.path), problem
        for index, volume in enumerate(template.spec.get("volumes") or ()):
            if problem := _volume_problem(volume):
                yield (*template.path, "volumes", index), problem


def _volume_problem(volume: JSON) -> str:
    kind = next((name for name, value in volume.items() if name != "name" and value is not None), "emptyDir")
    if kind not in LOCAL_VOLUMES:
        return (
            f"this machine has no volumes of type {kind}; write hostPath: {{path: FOLDER}} instead, or emptyDir: {{}}"
        )
    host_path = volume.get("hostPath") or {}
    path = Path(str(host_path.get("path", "/")))
    exists = {"Directory": path.is_dir, "File": path.is_file}.get(host_path.get("type") or "")
    if exists is None or exists():
        return ""
    return f"{path} is no {host_path['type'].lower()} on this machine; create it, or write type: {host_path['type']}OrCreate"


def _node_problems(
    templates: Sequence[ReplicaTemplate], plane: LocalPlane, *, is_gang: bool
) -> Iterator[tuple[FieldPath, str]]:
    """Fields by which no node of this run takes the pods, each with how to leave it out for all replicas."""
    problems: dict[str, list[FieldPath]] = {}
    for template in templates:
        for field, problem in _placement_problems(template.spec, plane, is_gang=is_gang):
            problems.setdefault(f"{problem}; leave {field} out for a run here: add", []).append((*template.path, field))
    for problem, paths in problems.items():
        yield paths[0], f"{problem} {_set_advice(paths, 'null')}"


def _placement_problems(spec: JSON, plane: LocalPlane, *, is_gang: bool) -> Iterator[tuple[str, str]]:
    wanted: Mapping[str, Any] = spec.get("nodeSelector") or {}
    for name, value in wanted.items():
        if plane.node_labels.get(name) != value:
            yield "nodeSelector", f'the node of this machine has no label "{name}: {value}"'
            break
    # What binds single pods here does not look at affinity.
    if is_gang and not _matches_affinity(spec, plane.node_labels):
        yield "affinity", "the labels of this machine's node do not match the required nodeAffinity"
    if spec.get("nodeName") not in (None, "", plane.node_name):
        yield "nodeName", f'is "{spec["nodeName"]}", but the only node of a run is "{plane.node_name}"'
    if (spec.get("schedulerName") or "") not in SCHEDULERS:
        yield "schedulerName", f'is "{spec["schedulerName"]}", which does not run here'
    if spec.get("schedulingGates"):
        yield "schedulingGates", "nobody here removes the gates, so that the pods are never scheduled"


def _matches_affinity(spec: JSON, labels: Mapping[str, str]) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    return terms is None or any(
        all(
            Requirement(rule["key"], NODE_OPERATORS[rule["operator"]], tuple(rule.get("values") or ())).matches(labels)
            for rule in term.get("matchExpressions") or ()
        )
        for term in terms
    )
