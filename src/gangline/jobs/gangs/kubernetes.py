"""Kubernetes' own gang scheduling (1.36 and later): a Workload, a PodGroup made from it, and pods that name the group."""

from typing import Any

from gangline.api.kubeflow.training import ReplicaSpec, TrainingJob
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.autoscalers import NO_EVICTION_ANNOTATIONS
from gangline.jobs.gangs.podgroup import GangPodEdits, GangSpec, min_available
from gangline.jobs.pods.replicas import Member

API_GROUP = "scheduling.k8s.io"
KNOWN_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Those we can write, the newest first. Of one server at most one or two are served, and none unless asked for."""
_TEMPLATE_NAME = "team"


class KubernetesWorkloads:
    """`scheduling.k8s.io`, in the version that the server has.

    Both objects are copies of a policy that can hardly be changed: what can is the number of pods, from 1.37 on. A
    group that is on its way out is held until its last pod has ended; new pods wait for a new one.
    """

    name = "kubernetes"

    def __init__(self, version: str = KNOWN_VERSIONS[0], *, protect: bool = True) -> None:
        self._is_v1alpha2 = version == "v1alpha2"
        self._protect = protect
        workloads: Resource[Any] = Resource(API_GROUP, version, "Workload", "workloads", dict)
        groups: Resource[Any] = Resource(API_GROUP, version, "PodGroup", "podgroups", dict)
        self.kinds: tuple[Resource[Any], ...] = (workloads, groups)

    def with_version(self, version: str) -> "KubernetesWorkloads":
        """The same in another version."""
        return KubernetesWorkloads(version, protect=self._protect)

    def group_companions(self, team: GangSpec, found: JSON | None) -> tuple[Companion, ...]:
        job, name = team.job, team.job.metadata.name
        policy: JSON = {"schedulingPolicy": {"gang": {"minCount": _min_count(team)}}}
        if max(min_available(team), 1) >= team.size:
            # Nobody can be spared: whoever needs room takes all of it, or none.
            policy["disruptionMode"] = "PodGroup" if self._is_v1alpha2 else {"all": {}}
        if shared := _shared_priority_class(team):
            policy["priorityClassName"] = shared
        workload: JSON = {
            "metadata": {"name": name},
            "spec": {
                "controllerRef": _controller_reference(job),
                "podGroupTemplates": [{"name": _TEMPLATE_NAME, **policy}],
            },
        }
        spec: JSON = {**self._template_reference(name), **policy}
        if found is not None:
            # The server refuses every other change.
            spec = {**(found.get("spec") or {}), "schedulingPolicy": policy["schedulingPolicy"]}
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

    def pod_edits(self, team: GangSpec, member: Member, found: JSON | None) -> GangPodEdits:
        needed = team.rank(member) < min_available(team)
        spec: JSON = {"schedulingGroup": {"podGroupName": team.job.metadata.name}}
        if self._is_v1alpha2 and _is_too_large(team, found):
            # That group cannot be changed, and would wait for members that do not come.
            spec = {}
        shared = self._group_priority_class(team, found)
        if shared and not _template_priority_class(team.replicas[member.type]):
            spec["priorityClassName"] = shared
        return GangPodEdits(
            default_annotations=NO_EVICTION_ANNOTATIONS if self._protect and needed else {}, spec_fields=spec
        )

    def _group_priority_class(self, team: GangSpec, found: JSON | None) -> str:
        """From 1.37 on nobody is placed whose priority is not the group's, and that one stays what it was."""
        if found is None or self._is_v1alpha2:
            return _shared_priority_class(team)
        return (found.get("spec") or {}).get("priorityClassName") or ""

    def admits(self, found: JSON | None) -> bool:
        return found is None or not found["metadata"].get("deletionTimestamp")


def _min_count(team: GangSpec) -> int:
    """How many must fit at once. Those who have ended are not counted there, and are not waited for."""
    least = min_available(team)
    return max(min(least, team.size - team.succeeded) if team.succeeded else least, 1)


def _is_too_large(team: GangSpec, found: JSON | None) -> bool:
    """Whether the group that is there wants more members than the team has now, or asks for."""
    policy = ((found or {}).get("spec") or {}).get("schedulingPolicy") or {}
    wanted: int = (policy.get("gang") or {}).get("minCount", 0)
    return wanted > max(_min_count(team), team.size - team.succeeded)


def _shared_priority_class(team: GangSpec) -> str:
    """One for the group and all its pods: as asked for, else the one that all templates name."""
    named = {_template_priority_class(spec) for spec in team.replicas.values() if spec.replicas}
    return team.policy.priority_class or (named.pop() if len(named) == 1 else "")


def _template_priority_class(spec: ReplicaSpec) -> str:
    return (spec.template.get("spec") or {}).get("priorityClassName") or ""


def _controller_reference(job: TrainingJob) -> JSON:
    group, _, _ = job.API_VERSION.rpartition("/")
    return {"apiGroup": group, "kind": job.KIND, "name": job.metadata.name}
