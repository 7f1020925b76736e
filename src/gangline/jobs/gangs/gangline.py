"""PodGroups of our own scheduler: `gangline scheduler`, or the one in the local plane."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.scheduling import (
    COMMIT_ANNOTATION,
    COMMIT_PIN,
    GANG_GATE,
    GROUP,
    GROUP_NAME_ANNOTATION,
    PODGROUPS,
    PREFERRED_TOPOLOGY_ANNOTATION,
    REQUIRED_TOPOLOGY_ANNOTATION,
    SCHEDULER_NAME,
    PodGroupPhase,
    PodGroupState,
)
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import NO_EVICTION_ANNOTATIONS, GangPodEdits, GangSpec, min_available, min_resources
from gangline.jobs.pods.labels import job_labels
from gangline.jobs.pods.replicas import Member

# An elastic job can train with some replicas of these types; it needs all replicas of every other type.
_OPTIONAL_TYPES = ("Worker", "Evaluator")


class GanglineScheduler:
    """`scheduling.gangline.dev/v1alpha1`. Pods are created at once and wait in the scheduler.

    `protect`: keep autoscalers from moving the pods that the gang needs.
    """

    name = SCHEDULER_NAME
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, *, protect: bool = True) -> None:
        self._protect = protect

    def group_companions(self, gang: GangSpec, pod_group: JSON | None) -> tuple[Companion, ...]:
        policy, min_member = gang.policy, _min_member(gang, pod_group)
        spec: JSON = {"minMember": min_member}
        # A queue set on the PodGroup by a user stays.
        if queue := ((pod_group or {}).get("spec") or {}).get("queue") or policy.queue:
            spec["queue"] = queue
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        if needed := min_resources(gang, min_member):
            spec["minResources"] = needed
        if policy.schedule_timeout_seconds:
            spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
        if roles := _min_task_member(gang, min_member):
            spec["minTaskMember"] = roles
        if topology := _topology_spec(gang.job.metadata.annotations):
            spec["topology"] = topology
        metadata: JSON = {"name": gang.job.metadata.name, "labels": job_labels(gang.job)}
        prefix = f"{GROUP}/"
        annotations = {key: value for key, value in gang.job.metadata.annotations.items() if key.startswith(prefix)}
        if annotations:
            metadata["annotations"] = annotations
        body: JSON = {"metadata": metadata, "spec": spec}
        return (Companion(PODGROUPS.name, body, ("spec",), only_active=True),)

    def pod_edits(self, gang: GangSpec, member: Member, pod_group: JSON | None) -> GangPodEdits:
        pinned = gang.job.metadata.annotations.get(COMMIT_ANNOTATION, "").lower() == COMMIT_PIN
        needed = gang.rank(member) < _full_min_member(gang)
        return GangPodEdits(
            scheduler_name="" if pinned else SCHEDULER_NAME,
            annotations={GROUP_NAME_ANNOTATION: gang.job.metadata.name},
            default_annotations=NO_EVICTION_ANNOTATIONS if self._protect and needed else {},
            scheduling_gates=(GANG_GATE,) if pinned else (),
        )

    def admits(self, pod_group: JSON | None) -> bool:
        return True

    def gang_state(self, pod_group: JSON) -> PodGroupState:
        state = (pod_group.get("status") or {}).get("state") or {}
        return msgspec.convert(state, PodGroupState)


def _full_min_member(gang: GangSpec) -> int:
    """How many pods must fit at once: as the policy says, else the least number that can train."""
    if gang.policy.min_available is None and gang.min_members is not None:
        return max(min(gang.min_members, gang.size), 1)
    return max(min_available(gang), 1)


def _min_member(gang: GangSpec, pod_group: JSON | None) -> int:
    """The minimum of the PodGroup; for an elastic gang that cannot get lost pods back, the number of those that remain.

    A lowered minimum is raised again only when enough pods run; else the gang would be short of pods at once.
    """
    full = _full_min_member(gang)
    if gang.min_members is None or pod_group is None:
        return full
    status = pod_group.get("status") or {}
    phase = (status.get("state") or {}).get("phase", "")
    remaining = status.get("running", 0) + status.get("succeeded", 0)
    current: int = (pod_group.get("spec") or {}).get("minMember", full)
    if phase == PodGroupPhase.UNSCHEDULABLE and gang.min_members <= remaining < current:
        return int(remaining)
    lowered = gang.min_members <= current < full and remaining < full
    return current if lowered and phase != PodGroupPhase.PENDING else full


def _min_task_member(gang: GangSpec, min_member: int) -> dict[str, int]:
    """The replica types that must be complete if fewer than all pods must fit: workers would wait for their master."""
    if min_member >= gang.size:
        return {}
    needed = {kind.lower(): spec.replicas or 0 for kind, spec in gang.replicas.items() if kind not in _OPTIONAL_TYPES}
    return {kind: count for kind, count in needed.items() if count} if sum(needed.values()) <= min_member else {}


def _topology_spec(annotations: Mapping[str, str]) -> JSON | None:
    if key := annotations.get(REQUIRED_TOPOLOGY_ANNOTATION):
        return {"key": key, "required": True}
    if key := annotations.get(PREFERRED_TOPOLOGY_ANNOTATION):
        return {"key": key}
    return None
