"""What an API server would refuse of a job's pods, though it takes the job: told before anything is sent.

A definition of ours holds templates to their types only; the rest is checked when a pod is created, which nobody
watches. So the pods are made here as the operator makes them, and judged by the rules of the embedded server, which
are Kubernetes' own. What differs between versions of Kubernetes is left to the server.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, NamedTuple

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document
from gangline.api.codec.errors import FieldPath as Steps
from gangline.api.kubeflow.training import TrainingJob
from gangline.api.meta import JSON
from gangline.api.quantity import QuantityError
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.pod.strategy import PodStrategy
from gangline.base.clock import SystemClock
from gangline.cli.manifests.files import path_steps, value_at
from gangline.jobs.framework import Framework
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.render import pod_body
from gangline.jobs.pods.replicas import Member
from gangline.schema.problems import FieldProblem, ProblemKind

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_CONTAINER_RESTART_FIELD = re.compile(r"spec\.(?:initC|c)ontainers\[\d+\]\.restartPolicy")
_VERSION_DEPENDENT = re.compile(
    r"resizePolicy|restartPolicyRules|stopSignal|hostUsers|hostnameOverride|^spec\.resources\b|fileKeyRef"
    # A cluster names the account before it looks.
    r"|serviceAccountToken$"
    r"|^spec\.volumes\[\d+\]\.image\b"
)
_ABOVE_LIMIT = re.compile(r"^must be less than or equal to (\S+) limit of (\S+)$")
_QUOTED = re.compile(r'"([^"]*)"')


class PodProblem(NamedTuple):
    """One value that a server would not take: where in the job, why, and what to write."""

    path: Steps
    message: str
    write: str = ""


def pod_problems(framework: Framework[Any], body: JSON, *, sound: bool) -> Iterator[PodProblem]:
    """What would be refused of the pods of a job, each type once.

    `sound`: nothing else is wrong with it. Of any other job the operator makes no pods, and its templates are judged
    as they are: what they lack may be something that it would have added.
    """
    facts = framework.facts
    written: JSON = body["spec"][facts.replicas]
    made = _operator_pod_specs(framework, body) if sound else {}
    for kind, entry in written.items():
        template: JSON = entry.get("template") or {}
        spec = made.get(kind.lower()) or {**deepcopy(template["spec"]), "restartPolicy": "Never"}
        for problem in _spec_problems(spec, template):
            if sound or problem.kind is not ProblemKind.NOT_FOUND:
                yield _pod_problem(problem, spec, ("spec", facts.replicas, kind, "template"))


def _operator_pod_specs(framework: Framework[Any], body: JSON) -> dict[str, JSON]:
    """The spec of a pod of each type, as the operator makes it."""
    job: TrainingJob = decode_document(Document(body, {}), framework.facts.model)
    seen = ObservedJob.of(framework, job, SystemClock().now())
    made: dict[str, JSON] = {}
    for kind, spec in framework.replicas(seen.job).items():
        seat = Member(kind, 0)
        edits = framework.wiring(seen.job, seat, seen.addresses)
        pod = pod_body(seen.job, seat, spec, edits, seen.addresses, framework.facts, seen.site)
        # Parts of it are the framework's own, for all pods.
        made[kind.lower()] = deepcopy(pod["spec"])
    return made


def _spec_problems(spec: JSON, template: JSON) -> Iterator[FieldProblem]:
    """Of a pod, without what its operator writes into its metadata."""
    kind, metadata = PodStrategy(), template.get("metadata") or {}
    own = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    pod: JSON = {"metadata": {"name": "x", "namespace": "x", **own}, "spec": spec}
    try:
        kind.normalize(pod)
    except QuantityError:
        # Told by the schema.
        return
    for problem in kind.validate(pod):
        if _CONTAINER_RESTART_FIELD.fullmatch(problem.field):
            yield from _restart_problems(problem, pod)
        elif not _VERSION_DEPENDENT.search(problem.field) and not _is_consequence(problem, spec, template):
            yield problem


def _is_consequence(problem: FieldProblem, spec: JSON, template: JSON) -> bool:
    """Whether it is said of something else as well: limits that became requests; a volume that is there, and wrong."""
    path = path_steps(problem.field)
    if problem.kind is ProblemKind.NOT_FOUND:
        return any(one.get("name") == problem.value for one in spec.get("volumes") or ())
    return path[-2:-1] == ("requests",) and value_at(template, path) is None


def _restart_problems(problem: FieldProblem, pod: JSON) -> Iterator[FieldProblem]:
    """Which containers may have which policy depends on the version; what is no policy is wrong in all."""
    policy = value_at(pod, path_steps(problem.field))
    if policy not in _RESTART_POLICIES:
        told = ", ".join(f'"{one}"' for one in _RESTART_POLICIES)
        yield FieldProblem(ProblemKind.NOT_SUPPORTED, problem.field, policy, f"supported values: {told}")


def _pod_problem(problem: FieldProblem, spec: JSON, template: Steps) -> PodProblem:
    path = _element_path({"spec": spec}, path_steps(problem.field), problem.value)
    if above := _ABOVE_LIMIT.search(problem.detail):
        return PodProblem((*template, *path, above[1]), problem.message, f"{above[1]}: {above[2]}")
    return PodProblem((*template, *path), _problem_message(problem, path, spec), _remedy(problem, path, spec))


def _problem_message(problem: FieldProblem, path: Steps, spec: JSON) -> str:
    if problem.kind is ProblemKind.REQUIRED and not problem.detail:
        return "required field is missing"
    if problem.kind is ProblemKind.NOT_FOUND and path[-3:-2] == ("volumeMounts",):
        return f'there is no volume "{problem.value}"; {_volume_hint(spec)}'
    # Kubernetes shows no value where it means the field as a whole.
    return problem.detail if problem.kind is ProblemKind.INVALID and problem.value == "" else problem.message


def _volume_hint(spec: JSON) -> str:
    known = ", ".join(one.get("name", "") for one in spec.get("volumes") or ())
    return f"name one of {known}, or add it to volumes" if known else "add it to volumes"


def _element_path(body: Any, path: Steps, value: Any) -> Steps:
    """Of some lists Kubernetes names only the field: the element is the one that has that value."""
    for number, step in enumerate(path):
        listed = value_at(body, path[:number])
        if isinstance(listed, list) and not isinstance(step, int):
            has = (index for index, one in enumerate(listed) if value_at(one, path[number:]) == value)
            index = next(has, None)
            return path if index is None else (*path[:number], index, *path[number:])
    return path


def _remedy(problem: FieldProblem, path: Steps, spec: JSON) -> str:
    field, value = path[-1], problem.value
    if problem.kind is ProblemKind.REQUIRED and field == "limits":
        return _limits_remedy(value_at({"spec": spec}, path[:-1]) or {})
    if not isinstance(field, str) or not isinstance(value, str):
        return ""
    if problem.kind is ProblemKind.NOT_SUPPORTED:
        return _close_match(field, value, _QUOTED.findall(problem.detail))
    if problem.kind is ProblemKind.NOT_FOUND:
        return _close_match(field, value, [one.get("name", "") for one in spec.get("volumes") or ()])
    if problem.kind is ProblemKind.INVALID and field == "name":
        return _valid_name(value, of_port="ports" in path)
    return ""


def _limits_remedy(resources: JSON) -> str:
    """What cannot be shared is asked for by its limit."""
    limits = resources.get("limits") or {}
    wanted = [
        f"{name}: {amount}"
        for name, amount in (resources.get("requests") or {}).items()
        if "/" in name and name not in limits
    ]
    return f"limits: {{{', '.join(wanted)}}}" if wanted else ""


def _close_match(field: str, value: str, known: list[str]) -> str:
    folded = {one.lower(): one for one in known}
    close = get_close_matches(value.lower(), folded, 1, 0.6)
    return f"{field}: {folded[close[0]]}" if close else ""


def _valid_name(value: str, *, of_port: bool) -> str:
    """The nearest name that may be: `My_Container` is `my-container`."""
    check, most = (formats.port_name_errors, 15) if of_port else (formats.dns_label_errors, 63)
    name = re.sub(r"[^a-z0-9]+", "-", value.lower())[:most].strip("-")
    return f"name: {name}" if name and not check(name) else ""
