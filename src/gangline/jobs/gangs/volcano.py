"""Volcano: PodGroups in queues; pods are made when theirs is let in."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheduling import GROUP_NAME_ANNOTATION
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import (
    GangPodEdits,
    GangSpec,
    min_available,
    min_resources,
    pod_group_companion,
)
from gangline.jobs.pods.replicas import Member

PODGROUPS: Resource[Any] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", dict)


class Volcano:
    """`scheduling.volcano.sh/v1beta1`."""

    name = "volcano"
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def group_companions(self, team: GangSpec, found: JSON | None) -> tuple[Companion, ...]:
        policy = team.policy
        # Whoever moved the group to another queue meant it.
        queue = ((found or {}).get("spec") or {}).get("queue") or policy.queue or "default"
        spec: JSON = {"minMember": min_available(team), "queue": queue}
        needed = min_resources(team)
        if needed:
            spec["minResources"] = needed
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return (pod_group_companion(PODGROUPS.name, team.job, spec),)

    def pod_edits(self, team: GangSpec, member: Member, found: JSON | None) -> GangPodEdits:
        name = {GROUP_NAME_ANNOTATION: team.job.metadata.name, "volcano.sh/task-spec": member.type.lower()}
        return GangPodEdits("volcano", annotations=name)

    def admits(self, found: JSON | None) -> bool:
        return ((found or {}).get("status") or {}).get("phase", "") not in ("", "Pending")
