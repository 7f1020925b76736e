"""Memory limits that were raised after a container was out of memory."""

from collections.abc import Mapping

import msgspec

from gangline.api.kubeflow.training import JobKind, RecoveryStatus, ReplicaSpec
from gangline.api.meta import JSON
from gangline.jobs.plan.render import training_container


def with_raised_memory(
    replicas: Mapping[str, ReplicaSpec], status: RecoveryStatus | None, job_kind: JobKind
) -> Mapping[str, ReplicaSpec]:
    """The replica specs with the memory limits that the status has; the same object if it has none."""
    if status is None or not status.memory:
        return replicas
    return {
        kind: _with_memory(spec, status.memory[kind], job_kind) if kind in status.memory else spec
        for kind, spec in replicas.items()
    }


def _with_memory(spec: ReplicaSpec, memory: str, job_kind: JobKind) -> ReplicaSpec:
    template = spec.template
    pod = template.get("spec") or {}
    trains = training_container(template, job_kind)
    containers = [_raised(one, memory) if one is trains else one for one in pod.get("containers") or []]
    return msgspec.structs.replace(spec, template={**template, "spec": {**pod, "containers": containers}})


def _raised(container: JSON, memory: str) -> JSON:
    """The container with a limit. A request that was equal to the limit stays so, and the pod in its quality class."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if "memory" in requests and requests["memory"] == limits.get("memory"):
        requests = {**requests, "memory": memory}
    raised = {**resources, "limits": {**limits, "memory": memory}, **({"requests": requests} if requests else {})}
    return {**container, "resources": raised}
