"""Gang scheduling of Kubernetes 1.36 and later: a Workload, a PodGroup created from it, and pods that name the group."""

from typing import Any

from gangline.api.kubeflow.training import ReplicaSpec, TrainingJob
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.podgroup import NO_EVICTION_ANNOTATIONS, GangPodEdits, GangSpec, min_available
from gangline.jobs.pods.replicas import Member

API_GROUP = "scheduling.k8s.io"
KNOWN_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""The API versions that we can write, newest first. A server has one or two of them, if they are switched on."""
_TEMPLATE_NAME = "team"


class KubernetesWorkloads:
    """`scheduling.k8s.io`, in the version that the server has.

    Both objects contain the policy, of which only the number of pods can be changed, from 1.37 on. A PodGroup that is
    being deleted stays until its last pod has ended; new pods wait for a new PodGroup.
    """

    name = "kubernetes"

    def __init__(self, version: str = KNOWN_VERSIONS[0], *, protect: bool = True) -> None:
        self._is_v1alpha2 = version == "v1alpha2"
        self._protect = protect
        workloads: Resource[Any] = Resource(API_GROUP, version, "Workload", "workloads", dict)
        groups: Resource[Any] = Resource(API_GROUP, version, "PodGroup", "podgroups", dict)
        self.kinds: tuple[Resource[Any], ...] = (workloads, groups)

    def with_version(self, version: str) -> "KubernetesWorkloads":
        """The same scheduler with objects of another API version."""
        return KubernetesWorkloads(version, protect=self._protect)

    def group_companions(self, gang: GangSpec, pod_group: JSON | None) -> tuple[Companion, ...]:
        job, name = gang.job, gang.job.metadata.name
        policy: JSON = {"schedulingPolicy": {"gang": {"minCount": _min_count(gang)}}}
        if max(min_available(gang), 1) >= gang.size:
            # No pod can be spared: preemption takes all of them, or none.
            policy["disruptionMode"] = "PodGroup" if self._is_v1alpha2 else {"all": {}}
        if shared := _shared_priority_class(gang):
            policy["priorityClassName"] = shared
        workload: JSON = {
            "metadata": {"name": name},
            "spec": {
                "controllerRef": _controller_reference(job),
                "podGroupTemplates": [{"name": _TEMPLATE_NAME, **policy}],
            },
        }
        spec: JSON = {**self._template_reference(name), **policy}
        if pod_group is not None:
            # The server rejects every other change.
            spec = {**(pod_group.get("spec") or {}), "schedulingPolicy": policy["schedulingPolicy"]}
        group: JSON = {"metadata": {"name": name}, "spec": spec}
        workloads, groups = self.kinds
        return (
            Companion(workloads.name, workload, only_active=True, first=True),
            Companion(groups.name, group, () if self._is_v1alpha2 else ("spec",), only_active=True),
        )

    def _template_reference(self, name: str) -> JSON:
        if self._is_v1alpha2:
            return {"podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": _TEMPLATE_NAME}}}
        return {"workloadRef": {"workloadName": name, "templateName": _TEMPLATE_NAME}}

    def pod_edits(self, gang: GangSpec, member: Member, pod_group: JSON | None) -> GangPodEdits:
        needed = gang.rank(member) < min_available(gang)
        spec: JSON = {"schedulingGroup": {"podGroupName": gang.job.metadata.name}}
        if self._is_v1alpha2 and _is_too_large(gang, pod_group):
            # That PodGroup cannot be changed, and would wait for pods that are not created.
            spec = {}
        shared = self._group_priority_class(gang, pod_group)
        if shared and not _template_priority_class(gang.replicas[member.type]):
            spec["priorityClassName"] = shared
        return GangPodEdits(
            default_annotations=NO_EVICTION_ANNOTATIONS if self._protect and needed else {}, spec_fields=spec
        )

    def _group_priority_class(self, gang: GangSpec, pod_group: JSON | None) -> str:
        """The priority class that pods must have: from 1.37 on that of the PodGroup, which cannot be changed."""
        if pod_group is None or self._is_v1alpha2:
            return _shared_priority_class(gang)
        return (pod_group.get("spec") or {}).get("priorityClassName") or ""

    def admits(self, pod_group: JSON | None) -> bool:
        return pod_group is None or not pod_group["metadata"].get("deletionTimestamp")


def _min_count(gang: GangSpec) -> int:
    """How many pods must fit at once. The scheduler does not count pods that have ended, so they are left out."""
    count = min_available(gang)
    return max(min(count, gang.size - gang.succeeded) if gang.succeeded else count, 1)


def _is_too_large(gang: GangSpec, pod_group: JSON | None) -> bool:
    """Whether the existing PodGroup requires more pods than the gang has now."""
    policy = ((pod_group or {}).get("spec") or {}).get("schedulingPolicy") or {}
    min_count: int = (policy.get("gang") or {}).get("minCount", 0)
    return min_count > max(_min_count(gang), gang.size - gang.succeeded)


def _shared_priority_class(gang: GangSpec) -> str:
    """The priority class of the PodGroup and its pods: as the policy says, else the one that all templates name."""
    names = {_template_priority_class(spec) for spec in gang.replicas.values() if spec.replicas}
    return gang.policy.priority_class or (names.pop() if len(names) == 1 else "")


def _template_priority_class(spec: ReplicaSpec) -> str:
    return (spec.template.get("spec") or {}).get("priorityClassName") or ""


def _controller_reference(job: TrainingJob) -> JSON:
    group, _, _ = job.API_VERSION.rpartition("/")
    return {"apiGroup": group, "kind": job.KIND, "name": job.metadata.name}
