"""The co-scheduling plugin of kubernetes-sigs/scheduler-plugins, under whatever name its scheduler runs."""

from collections.abc import Mapping

from gangline.api.meta import JSON
from gangline.api.training import ReplicaSpec, SchedulingPolicy, TrainingJob
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import Marks, companion, members, resources


class SchedulerPlugins:
    """`scheduling.x-k8s.io/v1alpha1`."""

    resource = "podgroups.scheduling.x-k8s.io"

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler

    def group(
        self,
        job: TrainingJob,
        replicas: Mapping[str, ReplicaSpec],
        policy: SchedulingPolicy,
        found: JSON | None,
    ) -> Companion:
        spec: JSON = {"minMember": members(replicas, policy)}
        needed = resources(replicas, policy)
        if needed:
            spec["minResources"] = needed
        if policy.schedule_timeout_seconds is not None:
            spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
        return companion(self.resource, job, spec)

    def marks(self, job: TrainingJob, kind: str) -> Marks:
        return Marks(self._scheduler, labels={"scheduling.x-k8s.io/pod-group": job.metadata.name})

    def admits(self, found: JSON | None) -> bool:
        # Pods wait in the scheduler itself.
        return True
