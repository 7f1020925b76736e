"""Kubernetes' own gang scheduling (1.36 and later): a Workload, a PodGroup made from it, and pods that name the group."""

from typing import Any

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.api.training import TrainingJob
from gangline.jobs.framework import Companion
from gangline.jobs.gang import Member
from gangline.jobs.gangs.autoscalers import STAYS
from gangline.jobs.gangs.podgroup import Marks, Team, members

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
        least = max(members(team), 1)
        policy: JSON = {"schedulingPolicy": {"gang": {"minCount": least}}}
        if least >= team.size:
            # Nobody can be spared: whoever needs room takes all of it, or none.
            policy["disruptionMode"] = "PodGroup" if self._first else {"all": {}}
        if team.policy.priority_class:
            policy["priorityClassName"] = team.policy.priority_class
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

    def marks(self, team: Team, member: Member) -> Marks:
        needed = team.rank(member) < members(team)
        return Marks(
            defaults=STAYS if self._protect and needed else {},
            spec={"schedulingGroup": {"podGroupName": team.job.metadata.name}},
        )

    def admits(self, found: JSON | None) -> bool:
        return found is None or not found["metadata"].get("deletionTimestamp")


def _reference(job: TrainingJob) -> JSON:
    group, _, _ = job.API_VERSION.rpartition("/")
    return {"apiGroup": group, "kind": job.KIND, "name": job.metadata.name}
