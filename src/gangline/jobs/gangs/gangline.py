"""Our own scheduler: `gangline scheduler`, or the one in the local plane."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.scheduling import (
    COMMIT,
    GATE,
    GROUP,
    GROUP_NAME,
    PIN,
    PODGROUPS,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SCHEDULER,
    GroupPhase,
    PodGroupState,
)
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.autoscalers import STAYS
from gangline.jobs.gangs.podgroup import Marks, Team, members, resources
from gangline.jobs.pods.render import job_labels
from gangline.jobs.pods.replicas import Member

# Of these any few may do; of every other type all are needed, whoever else is there.
_WORKERS = ("Worker", "Evaluator")


class Gangline:
    """`scheduling.gangline.dev/v1alpha1`. Pods are made at once and wait in the scheduler.

    `protect`: ask autoscalers to leave the members that the gang needs where they are.
    """

    name = SCHEDULER
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, *, protect: bool = True) -> None:
        self._protect = protect

    def groups(self, team: Team, found: JSON | None) -> tuple[Companion, ...]:
        policy, least = team.policy, _least(team, found)
        spec: JSON = {"minMember": least}
        # Whoever moved the group to another queue meant it.
        if queue := ((found or {}).get("spec") or {}).get("queue") or policy.queue:
            spec["queue"] = queue
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        if needed := resources(team, least):
            spec["minResources"] = needed
        if policy.schedule_timeout_seconds:
            spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
        if roles := _roles(team, least):
            spec["minTaskMember"] = roles
        if topology := _topology(team.job.metadata.annotations):
            spec["topology"] = topology
        metadata: JSON = {"name": team.job.metadata.name, "labels": job_labels(team.job)}
        about = {key: value for key, value in team.job.metadata.annotations.items() if _ours(key)}
        if about:
            metadata["annotations"] = about
        body: JSON = {"metadata": metadata, "spec": spec}
        return (Companion(PODGROUPS.name, body, ("spec",), only_active=True),)

    def marks(self, team: Team, member: Member, found: JSON | None) -> Marks:
        pinned = team.job.metadata.annotations.get(COMMIT, "").lower() == PIN
        needed = team.rank(member) < _wanted(team)
        return Marks(
            scheduler="" if pinned else SCHEDULER,
            annotations={GROUP_NAME: team.job.metadata.name},
            defaults=STAYS if self._protect and needed else {},
            gates=(GATE,) if pinned else (),
        )

    def admits(self, found: JSON | None) -> bool:
        return True

    def state(self, found: JSON) -> PodGroupState:
        written = (found.get("status") or {}).get("state") or {}
        return msgspec.convert(written, PodGroupState)


def _ours(annotation: str) -> bool:
    return annotation.startswith(f"{GROUP}/")


def _wanted(team: Team) -> int:
    """How many must fit at once: as asked for, else as few as can train."""
    if team.policy.min_available is None and team.fewest is not None:
        return max(min(team.fewest, team.size), 1)
    return max(members(team), 1)


def _least(team: Team, found: JSON | None) -> int:
    """The same; of a team that may shrink and lost members for good, as many as are left.

    What was lowered is raised again when so many run. Raised before, the gang would at once be short of members.
    """
    wanted = _wanted(team)
    if team.fewest is None or found is None:
        return wanted
    status = found.get("status") or {}
    phase = (status.get("state") or {}).get("phase", "")
    left = status.get("running", 0) + status.get("succeeded", 0)
    now: int = (found.get("spec") or {}).get("minMember", wanted)
    if phase == GroupPhase.UNSCHEDULABLE and team.fewest <= left < now:
        return int(left)
    lowered = team.fewest <= now < wanted and left < wanted
    return now if lowered and phase != GroupPhase.PENDING else wanted


def _roles(team: Team, least: int) -> dict[str, int]:
    """Whom the team cannot do without, where fewer than all must fit: workers alone would wait for their master."""
    if least >= team.size:
        return {}
    needed = {
        kind.lower(): spec.replicas or 0 for kind, spec in team.replicas.items() if kind not in _WORKERS
    }
    return {kind: count for kind, count in needed.items() if count} if sum(needed.values()) <= least else {}


def _topology(annotations: Mapping[str, str]) -> JSON | None:
    if key := annotations.get(REQUIRED_TOPOLOGY):
        return {"key": key, "required": True}
    if key := annotations.get(PREFERRED_TOPOLOGY):
        return {"key": key}
    return None
