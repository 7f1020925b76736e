"""What was written becomes what is meant: defaults, and whether it can run at all. The same everywhere."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.training import (
    OUR_MANAGER,
    CleanPodPolicy,
    JobKind,
    ReplicaSpec,
    RestartPolicy,
    RunPolicy,
)
from gangline.api.meta import JSON
from gangline.api.names import MAX_DNS_LABEL_LENGTH
from gangline.api.scheduling import (
    COMMIT_ANNOTATION,
    COMMIT_BIND,
    COMMIT_PIN,
    GANG_SCHEDULER_ANNOTATION,
    ON_TIMEOUT_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from gangline.api.scheduling import GROUP as SCHEDULING
from gangline.jobs.framework import Framework, IgnoresFields, J, Problem
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.pods.replicas import Member, member_name


def with_defaults(job: J, facts: JobKind) -> J:
    """The job with replica types in their usual spelling, and replicas and policies filled in."""
    spec: Any = job.spec  # type: ignore[attr-defined]
    written: Mapping[str, ReplicaSpec] = getattr(spec, facts.attribute)
    policy: RunPolicy = spec.run_policy
    if not policy.clean_pod_policy:
        policy = msgspec.structs.replace(policy, clean_pod_policy=CleanPodPolicy.NONE.value)
    changed = {facts.attribute: _replicas_with_defaults(written, facts), "run_policy": policy}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(spec, **changed))


def _replicas_with_defaults(written: Mapping[str, ReplicaSpec], facts: JobKind) -> dict[str, ReplicaSpec]:
    """In the kind's own order; types it does not know come last, as they are."""
    spelled = {kind.lower(): kind for kind in facts.types}
    folded = {spelled.get(kind.lower(), kind): spec for kind, spec in written.items()}
    order = [*(kind for kind in facts.types if kind in folded), *(k for k in folded if k not in facts.types)]
    return {kind: _replica_with_defaults(folded[kind], facts, kind) for kind in order}


def _replica_with_defaults(spec: ReplicaSpec, facts: JobKind, kind: str) -> ReplicaSpec:
    replicas = facts.default_replicas.get(kind, 1) if spec.replicas is None else spec.replicas
    policy = spec.restart_policy or facts.restart_policy.value
    return msgspec.structs.replace(spec, replicas=replicas, restart_policy=policy)


def is_managed_here(policy: RunPolicy) -> bool:
    """Whether the job is this operator's to run."""
    return policy.managed_by in (None, "", OUR_MANAGER)


def problems(framework: Framework[J], job: J) -> tuple[Problem, ...]:
    """Why a (defaulted) job cannot run, whoever let it in; empty if it can."""
    facts = framework.facts
    replicas = framework.replicas(job)
    path = f"spec.{facts.replicas}"
    if not replicas:
        return (Problem(path, f"is empty; write at least one of {', '.join(facts.types)}"),)
    found: list[Problem] = []
    for kind, spec in replicas.items():
        found.extend(_replica_problems(facts, f"{path}.{kind}", kind, spec))
    if facts.port is not None:
        found.extend(_name_problems(job.metadata.name, replicas))
    found.extend(framework.validate(job))
    return tuple(found)


def ignored_field_events(framework: Framework[J], job: J) -> Iterator[JobEvent]:
    """What was written and has no effect: told once, as a warning."""
    path = f"spec.{framework.facts.replicas}"
    for kind, spec in framework.replicas(job).items():
        metadata = spec.template.get("metadata") or {}
        for name in ("name", "namespace"):
            if metadata.get(name):
                told = f"{path}.{kind}.template.metadata.{name}: has no effect; pods are named after the job"
                yield JobEvent("FieldIgnored", told, warning=True)
    yield from _annotation_events(job.metadata.annotations)
    if isinstance(framework, IgnoresFields):
        for problem in framework.ignored_fields(job):
            yield JobEvent("FieldIgnored", str(problem), warning=True)


# What a job may say of scheduling; with the values, where they are few.
_SCHEDULING_ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    COMMIT_ANNOTATION: (COMMIT_BIND, COMMIT_PIN),
    ON_TIMEOUT_ANNOTATION: ("Fail", "Wait"),
    GANG_SCHEDULER_ANNOTATION: (),
    PREFERRED_TOPOLOGY_ANNOTATION: (),
    REQUIRED_TOPOLOGY_ANNOTATION: (),
}


def _annotation_events(annotations: Mapping[str, str]) -> Iterator[JobEvent]:
    for name, value in annotations.items():
        if not name.startswith(f"{SCHEDULING}/"):
            continue
        known = _SCHEDULING_ANNOTATIONS.get(name)
        if known is None:
            told = f"has no effect; write one of {', '.join(_SCHEDULING_ANNOTATIONS)}"
        elif known and value.lower() not in [each.lower() for each in known]:
            told = f'is "{value}", which has no effect; write one of {", ".join(known)}'
        else:
            continue
        yield JobEvent("FieldIgnored", f"metadata.annotations[{name}]: {told}", warning=True)


def _replica_problems(facts: JobKind, path: str, kind: str, spec: ReplicaSpec) -> Iterator[Problem]:
    if kind not in facts.types:
        yield Problem(path, f"is no replica type of a {facts.kind}; write one of {', '.join(facts.types)}")
    if (spec.replicas or 0) < 0:
        yield Problem(f"{path}.replicas", f"is {spec.replicas}; write 0 or more")
    if spec.restart_policy not in list(RestartPolicy):
        known = ", ".join(RestartPolicy)
        yield Problem(f"{path}.restartPolicy", f'is "{spec.restart_policy}"; write one of {known}')
    yield from _container_problems(facts, f"{path}.template.spec.containers", spec.template)


def _container_problems(facts: JobKind, path: str, template: JSON) -> Iterator[Problem]:
    containers = (template.get("spec") or {}).get("containers") or []
    if not containers:
        yield Problem(path, "is empty; write at least one container")
        return
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield Problem(f"{path}[{index}].image", "is missing")
    # An MPIJob trains in its first container, whatever that is called.
    if facts.port is not None and all(found.get("name") != facts.container for found in containers):
        yield Problem(path, f'has no container named "{facts.container}"; that is the one that trains')


def _name_problems(name: str, replicas: Mapping[str, ReplicaSpec]) -> Iterable[Problem]:
    longest = max(
        (member_name(name, Member(kind, max((spec.replicas or 0) - 1, 0))) for kind, spec in replicas.items()),
        key=len,
    )
    if len(longest) > MAX_DNS_LABEL_LENGTH:
        over = len(longest) - MAX_DNS_LABEL_LENGTH
        yield Problem(
            "metadata.name",
            f'its replica "{longest}" would be {over} too long; write a name shorter by {over}',
        )
