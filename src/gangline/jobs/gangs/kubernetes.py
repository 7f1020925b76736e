"""Kubernetes' own gang scheduling (1.36 and later): a Workload, a PodGroup made from it, and pods that name the group."""

from typing import Any

from gangline.api.kubeflow.training import ReplicaSpec, TrainingJob
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.gangs.autoscalers import STAYS
from gangline.jobs.gangs.podgroup import Marks, Team, members
from gangline.jobs.pods.replicas import Member

GROUP = "scheduling.k8s.io"
VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Those we can write, the newest first. Of one server at most one or two are served, and none unless asked for."""
_TEMPLATE = "team"


class Kubernetes:
    """`scheduling.k8s.io`, in the version that the server has.

    Both objects are copies of a policy that can hardly be changed: what can is the number of pods, from 1.37 on. A
    group that is on its way out is held until its last pod has ended; new pods wait for a new one.
    """

    name = "kubernetes"

    def __init__(self, version: str = VERSIONS[0], *, protect: bool = True) -> None:
        self._first = version == "v1alpha2"
        self._protect = protect
        workloads: Resource[Any] = Resource(GROUP, version, "Workload", "workloads", dict)
        groups: Resource[Any] = Resource(GROUP, version, "PodGroup", "podgroups", dict)
        self.kinds: tuple[Resource[Any], ...] = (workloads, groups)

    def speaking(self, version: str) -> "Kubernetes":
        """The same in another version."""
        return Kubernetes(version, protect=self._protect)

    def groups(self, team: Team, found: JSON | None) -> tuple[Companion, ...]:
        job, name = team.job, team.job.metadata.name
        policy: JSON = {"schedulingPolicy": {"gang": {"minCount": _least(team)}}}
        if max(members(team), 1) >= team.size:
            # Nobody can be spared: whoever needs room takes all of it, or none.
            policy["disruptionMode"] = "PodGroup" if self._first else {"all": {}}
        if shared := _priority_class(team):
            policy["priorityClassName"] = shared
        workload: JSON = {
            "metadata": {"name": name},
            "spec": {"controllerRef": _reference(job), "podGroupTemplates": [{"name": _TEMPLATE, **policy}]},
        }
        spec: JSON = {**self._origin(name), **policy}
        if found is not None:
            # The server refuses every other change.
            spec = {**(found.get("spec") or {}), "schedulingPolicy": policy["schedulingPolicy"]}
        group: JSON = {"metadata": {"name": name}, "spec": spec}
        workloads, groups = self.kinds
        return (
            Companion(workloads.name, workload, only_active=True, first=True),
            Companion(groups.name, group, () if self._first else ("spec",), only_active=True),
        )

    def _origin(self, name: str) -> JSON:
        if self._first:
            return {
                "podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": _TEMPLATE}}
            }
        return {"workloadRef": {"workloadName": name, "templateName": _TEMPLATE}}

    def marks(self, team: Team, member: Member, found: JSON | None) -> Marks:
        needed = team.rank(member) < members(team)
        spec: JSON = {"schedulingGroup": {"podGroupName": team.job.metadata.name}}
        if self._first and _too_large(team, found):
            # That group cannot be changed, and would wait for members that do not come.
            spec = {}
        shared = self._settled_class(team, found)
        if shared and not _own_class(team.replicas[member.type]):
            spec["priorityClassName"] = shared
        return Marks(defaults=STAYS if self._protect and needed else {}, spec=spec)

    def _settled_class(self, team: Team, found: JSON | None) -> str:
        """From 1.37 on nobody is placed whose priority is not the group's, and that one stays what it was."""
        if found is None or self._first:
            return _priority_class(team)
        return (found.get("spec") or {}).get("priorityClassName") or ""

    def admits(self, found: JSON | None) -> bool:
        return found is None or not found["metadata"].get("deletionTimestamp")


def _least(team: Team) -> int:
    """How many must fit at once. Those who have ended are not counted there, and are not waited for."""
    least = members(team)
    return max(min(least, team.size - team.ended) if team.ended else least, 1)


def _too_large(team: Team, found: JSON | None) -> bool:
    """Whether the group that is there wants more members than the team has now, or asks for."""
    policy = ((found or {}).get("spec") or {}).get("schedulingPolicy") or {}
    wanted: int = (policy.get("gang") or {}).get("minCount", 0)
    return wanted > max(_least(team), team.size - team.ended)


def _priority_class(team: Team) -> str:
    """One for the group and all its pods: as asked for, else the one that all templates name."""
    named = {_own_class(spec) for spec in team.replicas.values() if spec.replicas}
    return team.policy.priority_class or (named.pop() if len(named) == 1 else "")


def _own_class(spec: ReplicaSpec) -> str:
    return (spec.template.get("spec") or {}).get("priorityClassName") or ""


def _reference(job: TrainingJob) -> JSON:
    group, _, _ = job.API_VERSION.rpartition("/")
    return {"apiGroup": group, "kind": job.KIND, "name": job.metadata.name}
