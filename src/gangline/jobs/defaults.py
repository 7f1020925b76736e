"""Defaults and validation of jobs: the same in the operator, the command line and the admission of the local server."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.training import (
    ALL_REPLICAS,
    MPI_OPERATOR_MANAGER,
    OUR_MANAGER,
    RESTART_SCOPE_ANNOTATION,
    SUCCESS_POLICY_ANNOTATION,
    CleanPodPolicy,
    JobKind,
    ReplicaSpec,
    RestartPolicy,
    RestartScope,
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
from gangline.jobs.framework import Framework, IgnoresFields, J, PlansByLauncherJob, Problem
from gangline.jobs.plan.recovery.policy import RECOVERY_PATH, parse_recovery
from gangline.jobs.pods.replicas import Member, member_name


def with_defaults(job: J, job_kind: JobKind) -> J:
    """The job with replica types in canonical spelling, and replicas and policies filled in."""
    spec: Any = job.spec  # type: ignore[attr-defined]
    replicas: Mapping[str, ReplicaSpec] = getattr(spec, job_kind.attribute)
    policy: RunPolicy = spec.run_policy
    if not policy.clean_pod_policy:
        policy = msgspec.structs.replace(policy, clean_pod_policy=CleanPodPolicy.NONE.value)
    changes = {job_kind.attribute: _replicas_with_defaults(replicas, job_kind), "run_policy": policy}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(spec, **changes))


def _replicas_with_defaults(replicas: Mapping[str, ReplicaSpec], job_kind: JobKind) -> dict[str, ReplicaSpec]:
    """The replica specs in the order of the kind; unknown types come last, with their spelling unchanged."""
    spelling = {kind.lower(): kind for kind in job_kind.types}
    specs = {spelling.get(kind.lower(), kind): spec for kind, spec in replicas.items()}
    order = [
        *(kind for kind in job_kind.types if kind in specs),
        *(kind for kind in specs if kind not in job_kind.types),
    ]
    return {kind: _replica_with_defaults(specs[kind], job_kind, kind) for kind in order}


def _replica_with_defaults(spec: ReplicaSpec, job_kind: JobKind, kind: str) -> ReplicaSpec:
    replicas = job_kind.default_replicas.get(kind, 1) if spec.replicas is None else spec.replicas
    policy = spec.restart_policy or job_kind.restart_policy.value
    return msgspec.structs.replace(spec, replicas=replicas, restart_policy=policy)


def is_managed_here(policy: RunPolicy) -> bool:
    """Whether this operator runs the job: `managedBy` names no other controller."""
    return policy.managed_by in (None, "", OUR_MANAGER, MPI_OPERATOR_MANAGER)


def problems(framework: Framework[J], job: J) -> tuple[Problem, ...]:
    """Why a job with its defaults cannot run; empty if it can. Also checks what admission should have rejected."""
    job_kind = framework.facts
    replicas = framework.replicas(job)
    path = f"spec.{job_kind.replicas}"
    if not replicas:
        return (Problem(path, f"is empty; write at least one of {', '.join(job_kind.types)}"),)
    invalid: list[Problem] = []
    for kind, spec in replicas.items():
        invalid.extend(_replica_problems(job_kind, f"{path}.{kind}", kind, spec))
    if job_kind.port is not None:
        invalid.extend(_name_problems(job.metadata.name, replicas))
    invalid.extend(framework.validate(job))
    recovery = framework.run_policy(job).recovery
    if recovery is not None:
        invalid.extend(parse_recovery(recovery)[1])
    return tuple(invalid)


def ignored_fields(framework: Framework[J], job: J) -> Iterator[Problem]:
    """The fields and annotations of a job that have no effect."""
    path = f"spec.{framework.facts.replicas}"
    for kind, spec in framework.replicas(job).items():
        metadata = spec.template.get("metadata") or {}
        for name in ("name", "namespace"):
            if metadata.get(name):
                yield Problem(f"{path}.{kind}.template.metadata.{name}", "has no effect; pods are named after the job")
    yield from _ignored_restart_scope(framework, job)
    if isinstance(framework, PlansByLauncherJob) and framework.run_policy(job).recovery is not None:
        yield Problem(RECOVERY_PATH, "has no effect: the Job of Kubernetes that is the launcher decides about restarts")
    yield from _ignored_success_policy(job.metadata.annotations)
    yield from _ignored_annotations(job.metadata.annotations)
    if isinstance(framework, IgnoresFields):
        yield from framework.ignored_fields(job)


def _ignored_restart_scope(framework: Framework[J], job: J) -> Iterator[Problem]:
    """Scope Job says what restarts after a failure. Under restartPolicy Never a failure ends the job instead."""
    policy = framework.run_policy(job)
    annotation = job.metadata.annotations.get(RESTART_SCOPE_ANNOTATION, "")
    path = (
        "spec.runPolicy.restartScope" if policy.restart_scope else f"metadata.annotations[{RESTART_SCOPE_ANNOTATION}]"
    )
    scope = policy.restart_scope or annotation
    if scope and scope not in list(RestartScope):
        yield Problem(path, f'is "{scope}", which has no effect; write one of {", ".join(RestartScope)}')
    if scope != RestartScope.JOB:
        return
    policies = {kind: spec.restart_policy for kind, spec in framework.replicas(job).items() if spec.replicas}
    final = [kind for kind, restart in policies.items() if restart == RestartPolicy.NEVER]
    if not final:
        return
    whose = "every replica" if len(final) == len(policies) else f"{' and '.join(final)} replicas"
    yield Problem(
        path,
        f"has no effect on failures of {whose}: their restartPolicy is Never, so they are final;"
        " write ExitCode or OnFailure to have all replicas restarted",
    )


def _ignored_success_policy(annotations: Mapping[str, str]) -> Iterator[Problem]:
    policy = annotations.get(SUCCESS_POLICY_ANNOTATION, ALL_REPLICAS)
    if policy != ALL_REPLICAS:
        path = f"metadata.annotations[{SUCCESS_POLICY_ANNOTATION}]"
        yield Problem(path, f'is "{policy}", which has no effect; write {ALL_REPLICAS}, or leave it out')


# The scheduling annotations of a job, with their values where there are only a few.
_SCHEDULING_ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    COMMIT_ANNOTATION: (COMMIT_BIND, COMMIT_PIN),
    ON_TIMEOUT_ANNOTATION: ("Fail", "Wait"),
    GANG_SCHEDULER_ANNOTATION: (),
    PREFERRED_TOPOLOGY_ANNOTATION: (),
    REQUIRED_TOPOLOGY_ANNOTATION: (),
}


def _ignored_annotations(annotations: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in annotations.items():
        if not name.startswith(f"{SCHEDULING}/"):
            continue
        values = _SCHEDULING_ANNOTATIONS.get(name)
        if values is None:
            message = f"has no effect; write one of {', '.join(_SCHEDULING_ANNOTATIONS)}"
        elif values and value.lower() not in [allowed.lower() for allowed in values]:
            message = f'is "{value}", which has no effect; write one of {", ".join(values)}'
        else:
            continue
        yield Problem(f"metadata.annotations[{name}]", message)


def _replica_problems(job_kind: JobKind, path: str, kind: str, spec: ReplicaSpec) -> Iterator[Problem]:
    if kind not in job_kind.types:
        yield Problem(path, f"is no replica type of a {job_kind.kind}; write one of {', '.join(job_kind.types)}")
    if (spec.replicas or 0) < 0:
        yield Problem(f"{path}.replicas", f"is {spec.replicas}; write 0 or more")
    if spec.restart_policy not in list(RestartPolicy):
        policies = ", ".join(RestartPolicy)
        yield Problem(f"{path}.restartPolicy", f'is "{spec.restart_policy}"; write one of {policies}')
    yield from _container_problems(job_kind, f"{path}.template.spec.containers", spec.template)


def _container_problems(job_kind: JobKind, path: str, template: JSON) -> Iterator[Problem]:
    containers = (template.get("spec") or {}).get("containers") or []
    if not containers:
        yield Problem(path, "is empty; write at least one container")
        return
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield Problem(f"{path}[{index}].image", "is missing")
    # An MPIJob trains in its first container, whatever its name.
    if job_kind.port is not None and all(container.get("name") != job_kind.container for container in containers):
        yield Problem(path, f'has no container named "{job_kind.container}"; that is the one that trains')


def _name_problems(name: str, replicas: Mapping[str, ReplicaSpec]) -> Iterable[Problem]:
    longest = max(
        (member_name(name, Member(kind, max((spec.replicas or 0) - 1, 0))) for kind, spec in replicas.items()), key=len
    )
    if len(longest) > MAX_DNS_LABEL_LENGTH:
        excess = len(longest) - MAX_DNS_LABEL_LENGTH
        yield Problem(
            "metadata.name", f'its replica "{longest}" would be {excess} too long; write a name shorter by {excess}'
        )
