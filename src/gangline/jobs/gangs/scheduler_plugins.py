"""The co-scheduling plugin of kubernetes-sigs/scheduler-plugins, under whatever name its scheduler runs."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import Marks, Team, companion, members, resources
from gangline.jobs.pods.replicas import Member

PODGROUPS: Resource[Any] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", dict)


class SchedulerPlugins:
    """`scheduling.x-k8s.io/v1alpha1`."""

    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, scheduler: str) -> None:
        self.name = scheduler

    def groups(self, team: Team, found: JSON | None) -> tuple[Companion, ...]:
        spec: JSON = {"minMember": members(team)}
        needed = resources(team)
        if needed:
            spec["minResources"] = needed
        if team.policy.schedule_timeout_seconds is not None:
            spec["scheduleTimeoutSeconds"] = team.policy.schedule_timeout_seconds
        return (companion(PODGROUPS.name, team.job, spec),)

    def marks(self, team: Team, member: Member, found: JSON | None) -> Marks:
        return Marks(self.name, labels={"scheduling.x-k8s.io/pod-group": team.job.metadata.name})

    def admits(self, found: JSON | None) -> bool:
        # Pods wait in the scheduler itself.
        return True
