"""Find mistakes in a job's pod templates that an API server would only refuse when the operator creates the pods.

Our CRDs check only the types of templates; the server checks the rest when it creates a pod, and nobody sees that
error. So the pods are rendered here as the operator renders them, and validated by the rules of the embedded server,
which are Kubernetes' own. Rules that differ between versions of Kubernetes are left to the server.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, NamedTuple

from gangline.api.accelerators import DEFAULT_GPU_RESOURCE, SHORT_NAME
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
from gangline.jobs.framework import Framework, PlansByLauncherJob
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.render import pod_body
from gangline.jobs.pods.replicas import Member
from gangline.schema.problems import FieldProblem, ProblemKind

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_CONTAINER_RESTART_FIELD = re.compile(r"spec\.(?:initC|c)ontainers\[\d+\]\.restartPolicy")
_VERSION_DEPENDENT = re.compile(
    r"resizePolicy|restartPolicyRules|stopSignal|hostUsers|hostnameOverride|^spec\.resources\b|fileKeyRef"
    # A cluster sets the service account before it validates.
    r"|serviceAccountToken$"
    r"|^spec\.volumes\[\d+\]\.image\b"
)
_ABOVE_LIMIT = re.compile(r"^must be less than or equal to (\S+) limit of (\S+)$")
_QUOTED = re.compile(r'"([^"]*)"')


class PodProblem(NamedTuple):
    """A value that a server would refuse: its path in the job, why, and what to write."""

    path: Steps
    message: str
    write: str = ""


def pod_problems(framework: Framework[Any], body: JSON, *, sound: bool) -> Iterator[PodProblem]:
    """The problems of the pods of a job, once for each replica type.

    `sound`: the job has no other mistakes. For a job with mistakes the operator renders no pods, so the templates are
    validated as they are, and references to missing objects are ignored: the operator might have added these.
    """
    job_kind = framework.facts
    replica_specs: JSON = body["spec"][job_kind.replicas]
    operator_specs = _operator_pod_specs(framework, body) if sound else {}
    for replica_type, replica_spec in replica_specs.items():
        template: JSON = replica_spec.get("template") or {}
        spec = operator_specs.get(replica_type.lower()) or {**deepcopy(template["spec"]), "restartPolicy": "Never"}
        for problem in _spec_problems(spec, template):
            if sound or problem.kind is not ProblemKind.NOT_FOUND:
                yield _pod_problem(problem, spec, ("spec", job_kind.replicas, replica_type, "template"))


def hidden_variables(framework: Framework[Any], body: JSON) -> Iterator[tuple[Steps, str]]:
    """The variables of a correct job's templates that have no effect, since the operator sets them later in the list."""
    replica_specs: JSON = body["spec"][framework.facts.replicas]
    operator_specs = _operator_pod_specs(framework, body)
    for replica_type, replica_spec in replica_specs.items():
        pod = operator_specs[replica_type.lower()]
        for number, container in enumerate(replica_spec["template"]["spec"].get("containers") or ()):
            own = container.get("env") or []
            rendered = pod["containers"][number].get("env") or []
            added = {variable["name"]: variable.get("value") for variable in rendered[len(own) :]}
            for index, variable in enumerate(own):
                name, value = variable.get("name"), variable.get("value")
                if name in added and value != added[name]:
                    path = ("spec", framework.facts.replicas, replica_type, "template", "spec", "containers", number)
                    yield (
                        (*path, "env", index),
                        f'{name} "{value}" has no effect: each replica gets its own from the operator; leave it out',
                    )


def _operator_pod_specs(framework: Framework[Any], body: JSON) -> dict[str, JSON]:
    """The pod spec of each replica type as the operator renders it, by the lowercase type."""
    # Names of hosts have the namespace in them.
    named = {**body, "metadata": {"namespace": "default", **(body.get("metadata") or {})}}
    job: TrainingJob = decode_document(Document(named, {}), framework.facts.model)
    observed = ObservedJob.of(framework, job, SystemClock().now())
    specs: dict[str, JSON] = {}
    for replica_type, spec in framework.replicas(observed.job).items():
        if isinstance(framework, PlansByLauncherJob):
            specs[replica_type.lower()] = framework.pod_spec(observed.job, replica_type)
            continue
        member = Member(replica_type, 0)
        edits = framework.wiring(observed.job, member, observed.addresses)
        pod = pod_body(observed.job, member, spec, edits, observed.addresses, framework.facts, observed.site)
        # The framework shares parts of it between pods.
        specs[replica_type.lower()] = deepcopy(pod["spec"])
    return specs


def _spec_problems(spec: JSON, template: JSON) -> Iterator[FieldProblem]:
    """The problems of a pod spec, with the template's own labels and annotations and without the operator's."""
    strategy, metadata = PodStrategy(), template.get("metadata") or {}
    template_metadata = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    pod: JSON = {"metadata": {"name": "x", "namespace": "x", **template_metadata}, "spec": spec}
    try:
        strategy.normalize(pod)
    except QuantityError:
        # The schema reports it.
        return
    for problem in strategy.validate(pod):
        if _CONTAINER_RESTART_FIELD.fullmatch(problem.field):
            yield from _restart_problems(problem, pod)
        elif not _VERSION_DEPENDENT.search(problem.field) and not _is_consequence(problem, spec, template):
            yield problem


def _is_consequence(problem: FieldProblem, spec: JSON, template: JSON) -> bool:
    """Whether a problem only follows from another one that is reported as well.

    That is a request that was copied from a wrong limit, or a reference to a volume that exists but is wrong.
    """
    path = path_steps(problem.field)
    if problem.kind is ProblemKind.NOT_FOUND:
        return any(volume.get("name") == problem.value for volume in spec.get("volumes") or ())
    return path[-2:-1] == ("requests",) and value_at(template, path) is None


def _restart_problems(problem: FieldProblem, pod: JSON) -> Iterator[FieldProblem]:
    """The problem only if the value is no restart policy at all: which containers may set one depends on the version."""
    policy = value_at(pod, path_steps(problem.field))
    if policy not in _RESTART_POLICIES:
        supported = ", ".join(f'"{name}"' for name in _RESTART_POLICIES)
        yield FieldProblem(ProblemKind.NOT_SUPPORTED, problem.field, policy, f"supported values: {supported}")


def _pod_problem(problem: FieldProblem, spec: JSON, template: Steps) -> PodProblem:
    path = _element_path({"spec": spec}, path_steps(problem.field), problem.value)
    if path[-1:] == (SHORT_NAME,) and path[-2] in ("limits", "requests"):
        amount = value_at({"spec": spec}, path)
        return PodProblem(
            (*template, *path), f"write its full name, {DEFAULT_GPU_RESOURCE}", f"{DEFAULT_GPU_RESOURCE}: {amount}"
        )
    if above := _ABOVE_LIMIT.search(problem.detail):
        return PodProblem((*template, *path, above[1]), problem.message, f"{above[1]}: {above[2]}")
    return PodProblem((*template, *path), _problem_message(problem, path, spec), _remedy(problem, path, spec))


def _problem_message(problem: FieldProblem, path: Steps, spec: JSON) -> str:
    if problem.kind is ProblemKind.REQUIRED and not problem.detail:
        return "required field is missing"
    if problem.kind is ProblemKind.NOT_FOUND and path[-3:-2] == ("volumeMounts",):
        return f'there is no volume "{problem.value}"; {_volume_hint(spec)}'
    # Kubernetes gives an empty value when it means the field as a whole.
    return problem.detail if problem.kind is ProblemKind.INVALID and problem.value == "" else problem.message


def _volume_hint(spec: JSON) -> str:
    names = ", ".join(volume.get("name", "") for volume in spec.get("volumes") or ())
    return f"name one of {names}, or add it to volumes" if names else "add it to volumes"


def _element_path(body: Any, path: Steps, value: Any) -> Steps:
    """A path with the index of a list's item, which Kubernetes sometimes leaves out: of the item that has the value."""
    for number, step in enumerate(path):
        items = value_at(body, path[:number])
        if isinstance(items, list) and not isinstance(step, int):
            matching = (index for index, item in enumerate(items) if value_at(item, path[number:]) == value)
            index = next(matching, None)
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
        return _close_match(field, value, [volume.get("name", "") for volume in spec.get("volumes") or ()])
    if problem.kind is ProblemKind.INVALID and field == "name":
        return _valid_name(value, of_port="ports" in path)
    return ""


def _limits_remedy(resources: JSON) -> str:
    """The limits to write for extended resources, which must have a limit, that are only in the requests."""
    limits = resources.get("limits") or {}
    missing = [
        f"{name}: {amount}"
        for name, amount in (resources.get("requests") or {}).items()
        if "/" in name and name not in limits
    ]
    return f"limits: {{{', '.join(missing)}}}" if missing else ""


def _close_match(field: str, value: str, candidates: list[str]) -> str:
    by_lowercase = {name.lower(): name for name in candidates}
    similar = get_close_matches(value.lower(), by_lowercase, 1, 0.6)
    return f"{field}: {by_lowercase[similar[0]]}" if similar else ""


def _valid_name(value: str, *, of_port: bool) -> str:
    """The nearest valid name: `my-container` for `My_Container`; empty if that is invalid, too."""
    errors_of, max_length = (formats.port_name_errors, 15) if of_port else (formats.dns_label_errors, 63)
    name = re.sub(r"[^a-z0-9]+", "-", value.lower())[:max_length].strip("-")
    return f"name: {name}" if name and not errors_of(name) else ""
