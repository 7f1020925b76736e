"""The interface of a gang scheduler, and what all PodGroups have in common."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from gangline.api.kubeflow.training import ReplicaSpec, SchedulingPolicy, TrainingJob
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, add_resources, parse_resources
from gangline.api.scheduling import PodGroupState
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.pods.replicas import Member

NO_EVICTION_ANNOTATIONS: Mapping[str, str] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations of a pod that keep Cluster Autoscaler and Karpenter from removing its node: if one pod of a gang is moved,
all replicas restart."""


class GangSpec(msgspec.Struct, frozen=True):
    """All replicas of a job, as a gang scheduler sees them."""

    job: TrainingJob
    # In the order in which their pods are created.
    replicas: Mapping[str, ReplicaSpec]
    policy: SchedulingPolicy = SchedulingPolicy()
    # The least number of replicas with which the job can train; None: its size is fixed.
    min_members: int | None = None
    # Replicas that have succeeded while others wait for placement. Some schedulers no longer count them.
    succeeded: int = 0

    @property
    def size(self) -> int:
        return sum(spec.replicas or 0 for spec in self.replicas.values())

    def rank(self, member: Member) -> int:
        """The index of a replica in that order."""
        before = 0
        for kind, spec in self.replicas.items():
            if kind == member.type:
                break
            before += spec.replicas or 0
        return before + member.index


class GangPodEdits(msgspec.Struct, frozen=True):
    """What a gang scheduler adds to the pods of a gang."""

    # Empty: the scheduler of the template, or the default one.
    scheduler_name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # Annotations that the template may override.
    default_annotations: Mapping[str, str] = {}
    # Fields that are set in the pod's spec.
    spec_fields: Mapping[str, Any] = {}
    # Scheduling gates in addition to those of the template.
    scheduling_gates: tuple[str, ...] = ()


NO_GANG_EDITS = GangPodEdits()


class GangScheduler(Protocol):
    """A scheduler that places all pods of a job or none."""

    @property
    def name(self) -> str:
        """The name by which jobs and the operator's flag request it."""
        ...

    @property
    def kinds(self) -> tuple[Resource[Any], ...]:
        """The resources that it reads, its PodGroups last. The server must serve them."""
        ...

    def group_companions(self, gang: GangSpec, pod_group: JSON | None) -> tuple[Companion, ...]:
        """The objects of a gang, given its PodGroup if that exists: the PodGroup last, after its prerequisites."""
        ...

    def pod_edits(self, gang: GangSpec, member: Member, pod_group: JSON | None) -> GangPodEdits:
        """What to add to the pod of a replica, given the PodGroup if it exists."""
        ...

    def admits(self, pod_group: JSON | None) -> bool:
        """Whether pods may be created, given the PodGroup if it exists."""
        ...


def pod_group_resource(scheduler: GangScheduler) -> str:
    """The resource of the scheduler's PodGroups, as in kubectl."""
    return scheduler.kinds[-1].name


@runtime_checkable
class ReportsGangState(Protocol):
    """A gang scheduler that reports the state of a gang as `scheduling.gangline.dev` defines it."""

    def gang_state(self, pod_group: JSON) -> PodGroupState: ...


def min_available(gang: GangSpec) -> int:
    """How many pods must fit at once: as the policy says, else all."""
    return gang.size if gang.policy.min_available is None else gang.policy.min_available


def min_resources(gang: GangSpec, count: int | None = None) -> dict[str, str]:
    """The resources of `count` pods: as the policy says, else what the first of them request, in order of creation.

    v1 sums them in random order, so that with fewer than all pods its sum changes at every reconcile.
    """
    if gang.policy.min_resources is not None:
        return dict(gang.policy.min_resources)
    total: dict[str, Quantity] = {}
    remaining = min_available(gang) if count is None else count
    for spec in gang.replicas.values():
        replicas = min(remaining, spec.replicas or 0)
        remaining -= replicas
        requests = _template_requests(spec.template)
        total = add_resources(total, {name: amount * replicas for name, amount in requests.items()})
    return {name: str(amount) for name, amount in sorted(total.items()) if amount}


def _template_requests(template: JSON) -> dict[str, Quantity]:
    """The requests of all containers; the limits of a container that requests nothing."""
    total: dict[str, Quantity] = {}
    for container in (template.get("spec") or {}).get("containers") or []:
        resources: Mapping[str, Any] = container.get("resources") or {}
        total = add_resources(total, parse_resources(resources.get("requests") or resources.get("limits") or {}))
    return total


def pod_group_companion(resource: str, job: TrainingJob, spec: JSON) -> Companion:
    """A PodGroup named like its job, with the job's annotations."""
    metadata: JSON = {"name": job.metadata.name}
    if job.metadata.annotations:
        metadata["annotations"] = dict(job.metadata.annotations)
    return Companion(resource, {"metadata": metadata, "spec": spec}, ("spec",), only_active=True)
