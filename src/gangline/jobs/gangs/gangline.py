"""Our own scheduler: `gangline scheduler`, or the one in the local plane."""

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
from gangline.jobs.gangs.autoscalers import NO_EVICTION_ANNOTATIONS
from gangline.jobs.gangs.podgroup import GangPodEdits, GangSpec, min_available, min_resources
from gangline.jobs.pods.render import job_labels
from gangline.jobs.pods.replicas import Member

# Of these any few may do; of every other type all are needed, whoever else is there.
_OPTIONAL_TYPES = ("Worker", "Evaluator")


class GanglineScheduler:
    """`scheduling.gangline.dev/v1alpha1`. Pods are made at once and wait in the scheduler.

    `protect`: ask autoscalers to leave the members that the gang needs where they are.
    """

    name = SCHEDULER_NAME
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, *, protect: bool = True) -> None:
        self._protect = protect

    def group_companions(self, team: GangSpec, found: JSON | None) -> tuple[Companion, ...]:
        policy, least = team.policy, _min_member(team, found)
        spec: JSON = {"minMember": least}
        # Whoever moved the group to another queue meant it.
        if queue := ((found or {}).get("spec") or {}).get("queue") or policy.queue:
            spec["queue"] = queue
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        if needed := min_resources(team, least):
            spec["minResources"] = needed
        if policy.schedule_timeout_seconds:
            spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
        if roles := _min_task_member(team, least):
            spec["minTaskMember"] = roles
        if topology := _topology_spec(team.job.metadata.annotations):
            spec["topology"] = topology
        metadata: JSON = {"name": team.job.metadata.name, "labels": job_labels(team.job)}
        about = {key: value for key, value in team.job.metadata.annotations.items() if _is_scheduling_annotation(key)}
        if about:
            metadata["annotations"] = about
        body: JSON = {"metadata": metadata, "spec": spec}
        return (Companion(PODGROUPS.name, body, ("spec",), only_active=True),)

    def pod_edits(self, team: GangSpec, member: Member, found: JSON | None) -> GangPodEdits:
        pinned = team.job.metadata.annotations.get(COMMIT_ANNOTATION, "").lower() == COMMIT_PIN
        needed = team.rank(member) < _full_min_member(team)
        return GangPodEdits(
            scheduler_name="" if pinned else SCHEDULER_NAME,
            annotations={GROUP_NAME_ANNOTATION: team.job.metadata.name},
            default_annotations=NO_EVICTION_ANNOTATIONS if self._protect and needed else {},
            scheduling_gates=(GANG_GATE,) if pinned else (),
        )

    def admits(self, found: JSON | None) -> bool:
        return True

    def gang_state(self, found: JSON) -> PodGroupState:
        written = (found.get("status") or {}).get("state") or {}
        return msgspec.convert(written, PodGroupState)


def _is_scheduling_annotation(annotation: str) -> bool:
    return annotation.startswith(f"{GROUP}/")


def _full_min_member(team: GangSpec) -> int:
    """How many must fit at once: as asked for, else as few as can train."""
    if team.policy.min_available is None and team.min_members is not None:
        return max(min(team.min_members, team.size), 1)
    return max(min_available(team), 1)


def _min_member(team: GangSpec, found: JSON | None) -> int:
    """The same; of a team that may shrink and lost members for good, as many as are left.

    What was lowered is raised again when so many run. Raised before, the gang would at once be short of members.
    """
    wanted = _full_min_member(team)
    if team.min_members is None or found is None:
        return wanted
    status = found.get("status") or {}
    phase = (status.get("state") or {}).get("phase", "")
    left = status.get("running", 0) + status.get("succeeded", 0)
    now: int = (found.get("spec") or {}).get("minMember", wanted)
    if phase == PodGroupPhase.UNSCHEDULABLE and team.min_members <= left < now:
        return int(left)
    lowered = team.min_members <= now < wanted and left < wanted
    return now if lowered and phase != PodGroupPhase.PENDING else wanted


def _min_task_member(team: GangSpec, least: int) -> dict[str, int]:
    """Whom the team cannot do without, where fewer than all must fit: workers alone would wait for their master."""
    if least >= team.size:
        return {}
    needed = {kind.lower(): spec.replicas or 0 for kind, spec in team.replicas.items() if kind not in _OPTIONAL_TYPES}
    return {kind: count for kind, count in needed.items() if count} if sum(needed.values()) <= least else {}


def _topology_spec(annotations: Mapping[str, str]) -> JSON | None:
    if key := annotations.get(REQUIRED_TOPOLOGY_ANNOTATION):
        return {"key": key, "required": True}
    if key := annotations.get(PREFERRED_TOPOLOGY_ANNOTATION):
        return {"key": key}
    return None
