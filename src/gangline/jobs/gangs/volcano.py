"""Volcano: PodGroups in queues; pods are made when theirs is let in."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheduling import GROUP_NAME
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import Marks, Team, companion, members, resources
from gangline.jobs.pods.replicas import Member

PODGROUPS: Resource[Any] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", dict)


class Volcano:
    """`scheduling.volcano.sh/v1beta1`."""

    name = "volcano"
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def groups(self, team: Team, found: JSON | None) -> tuple[Companion, ...]:
        policy = team.policy
        # Whoever moved the group to another queue meant it.
        queue = ((found or {}).get("spec") or {}).get("queue") or policy.queue or "default"
        spec: JSON = {"minMember": members(team), "queue": queue}
        needed = resources(team)
        if needed:
            spec["minResources"] = needed
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return (companion(PODGROUPS.name, team.job, spec),)

    def marks(self, team: Team, member: Member, found: JSON | None) -> Marks:
        name = {GROUP_NAME: team.job.metadata.name, "volcano.sh/task-spec": member.type.lower()}
        return Marks("volcano", annotations=name)

    def admits(self, found: JSON | None) -> bool:
        return ((found or {}).get("status") or {}).get("phase", "") not in ("", "Pending")
