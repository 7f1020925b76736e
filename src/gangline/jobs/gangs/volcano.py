"""PodGroups of Volcano. Pods are created once Volcano has admitted their PodGroup."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheduling import GROUP_NAME_ANNOTATION
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import GangPodEdits, GangSpec, min_available, min_resources, pod_group_companion
from gangline.jobs.pods.replicas import Member

PODGROUPS: Resource[Any] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", dict)


class Volcano:
    """`scheduling.volcano.sh/v1beta1`."""

    name = "volcano"
    kinds: tuple[Resource[Any], ...] = (PODGROUPS,)

    def group_companions(self, gang: GangSpec, pod_group: JSON | None) -> tuple[Companion, ...]:
        policy = gang.policy
        # A queue set on the PodGroup by a user stays.
        queue = ((pod_group or {}).get("spec") or {}).get("queue") or policy.queue or "default"
        spec: JSON = {"minMember": min_available(gang), "queue": queue}
        needed = min_resources(gang)
        if needed:
            spec["minResources"] = needed
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return (pod_group_companion(PODGROUPS.name, gang.job, spec),)

    def pod_edits(self, gang: GangSpec, member: Member, pod_group: JSON | None) -> GangPodEdits:
        annotations = {GROUP_NAME_ANNOTATION: gang.job.metadata.name, "volcano.sh/task-spec": member.type.lower()}
        return GangPodEdits("volcano", annotations=annotations)

    def admits(self, pod_group: JSON | None) -> bool:
        return ((pod_group or {}).get("status") or {}).get("phase", "") not in ("", "Pending")
