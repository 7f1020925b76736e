"""PodGroups of the coscheduling plugin of kubernetes-sigs/scheduler-plugins."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import GangPodEdits, GangSpec, min_available, min_resources, pod_group_companion
from gangline.jobs.pods.replicas import Member

PODGROUPS: Resource[Any] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", dict)


class SchedulerPlugins:
    """`scheduling.x-k8s.io/v1alpha1`. `scheduler` is the name under which the scheduler with the plugin runs."""

    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def __init__(self, scheduler: str) -> None:
        self.name = scheduler

    def group_companions(self, gang: GangSpec, pod_group: JSON | None) -> tuple[Companion, ...]:
        spec: JSON = {"minMember": min_available(gang)}
        needed = min_resources(gang)
        if needed:
            spec["minResources"] = needed
        if gang.policy.schedule_timeout_seconds is not None:
            spec["scheduleTimeoutSeconds"] = gang.policy.schedule_timeout_seconds
        return (pod_group_companion(PODGROUPS.name, gang.job, spec),)

    def pod_edits(self, gang: GangSpec, member: Member, pod_group: JSON | None) -> GangPodEdits:
        return GangPodEdits(self.name, labels={"scheduling.x-k8s.io/pod-group": gang.job.metadata.name})

    def admits(self, pod_group: JSON | None) -> bool:
        # Pods wait in the scheduler itself.
        return True
