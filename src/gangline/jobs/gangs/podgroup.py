"""What the engine asks of a gang scheduler, and what a PodGroup holds whichever it is."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, add, parse_resources
from gangline.api.training import ReplicaSpec, SchedulingPolicy, TrainingJob
from gangline.jobs.framework import Companion


class Marks(msgspec.Struct, frozen=True):
    """How a scheduler knows a pod of a gang."""

    scheduler: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class GangScheduler(Protocol):
    """All or none of a job's pods, by somebody else's scheduler."""

    @property
    def resource(self) -> str:
        """Its PodGroups, as kubectl names them."""
        ...

    def group(
        self,
        job: TrainingJob,
        replicas: Mapping[str, ReplicaSpec],
        policy: SchedulingPolicy,
        found: JSON | None,
    ) -> Companion:
        """The PodGroup of a job, given the one there is."""
        ...

    def marks(self, job: TrainingJob, kind: str) -> Marks: ...
    def admits(self, found: JSON | None) -> bool:
        """Whether pods may be made, given the PodGroup there is."""
        ...


def members(replicas: Mapping[str, ReplicaSpec], policy: SchedulingPolicy) -> int:
    """How many pods must fit at once: as asked for, else all."""
    if policy.min_available is not None:
        return policy.min_available
    return sum(spec.replicas or 0 for spec in replicas.values())


def resources(replicas: Mapping[str, ReplicaSpec], policy: SchedulingPolicy) -> dict[str, str]:
    """What so many pods need: as asked for, else what the first of them request, in the order in which they are made.

    v1 takes them in random order, so that with fewer than all its sum changes from look to look.
    """
    if policy.min_resources is not None:
        return dict(policy.min_resources)
    total: dict[str, Quantity] = {}
    left = members(replicas, policy)
    for spec in replicas.values():
        count = min(left, spec.replicas or 0)
        left -= count
        each = _requests(spec.template)
        total = add(total, {name: amount * count for name, amount in each.items()})
    return {name: str(amount) for name, amount in sorted(total.items()) if amount}


def _requests(template: JSON) -> dict[str, Quantity]:
    """Of all containers; limits stand in where a container requests nothing."""
    total: dict[str, Quantity] = {}
    for container in (template.get("spec") or {}).get("containers") or []:
        written: Mapping[str, Any] = container.get("resources") or {}
        total = add(total, parse_resources(written.get("requests") or written.get("limits") or {}))
    return total


def companion(resource: str, job: TrainingJob, spec: JSON) -> Companion:
    """A PodGroup named like its job, with the job's annotations."""
    metadata: JSON = {"name": job.metadata.name}
    if job.metadata.annotations:
        metadata["annotations"] = dict(job.metadata.annotations)
    return Companion(resource, {"metadata": metadata, "spec": spec}, ("spec",), only_active=True)
