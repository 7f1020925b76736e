"""The co-scheduling plugin of kubernetes-sigs/scheduler-plugins, under whatever name its scheduler runs."""

from typing import Any

from gangline.api.meta import JSON
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

PODGROUPS: Resource[Any] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", dict)


class SchedulerPlugins:
    """`scheduling.x-k8s.io/v1alpha1`."""

    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, scheduler: str) -> None:
        self.name = scheduler

    def group_companions(self, team: GangSpec, found: JSON | None) -> tuple[Companion, ...]:
        spec: JSON = {"minMember": min_available(team)}
        needed = min_resources(team)
        if needed:
            spec["minResources"] = needed
        if team.policy.schedule_timeout_seconds is not None:
            spec["scheduleTimeoutSeconds"] = team.policy.schedule_timeout_seconds
        return (pod_group_companion(PODGROUPS.name, team.job, spec),)

    def pod_edits(self, team: GangSpec, member: Member, found: JSON | None) -> GangPodEdits:
        return GangPodEdits(self.name, labels={"scheduling.x-k8s.io/pod-group": team.job.metadata.name})

    def admits(self, found: JSON | None) -> bool:
        # Pods wait in the scheduler itself.
        return True
