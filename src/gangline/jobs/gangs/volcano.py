"""Volcano: PodGroups in queues; pods are made when theirs is let in."""

from collections.abc import Mapping

from gangline.api.meta import JSON
from gangline.api.training import ReplicaSpec, SchedulingPolicy, TrainingJob
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import Marks, companion, members, resources


class Volcano:
    """`scheduling.volcano.sh/v1beta1`."""

    resource = "podgroups.scheduling.volcano.sh"

    def group(
        self,
        job: TrainingJob,
        replicas: Mapping[str, ReplicaSpec],
        policy: SchedulingPolicy,
        found: JSON | None,
    ) -> Companion:
        # Whoever moved the group to another queue meant it.
        queue = ((found or {}).get("spec") or {}).get("queue") or policy.queue or "default"
        spec: JSON = {"minMember": members(replicas, policy), "queue": queue}
        needed = resources(replicas, policy)
        if needed:
            spec["minResources"] = needed
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return companion(self.resource, job, spec)

    def marks(self, job: TrainingJob, kind: str) -> Marks:
        name = {"scheduling.k8s.io/group-name": job.metadata.name, "volcano.sh/task-spec": kind.lower()}
        return Marks("volcano", annotations=name)

    def admits(self, found: JSON | None) -> bool:
        return ((found or {}).get("status") or {}).get("phase", "") not in ("", "Pending")
