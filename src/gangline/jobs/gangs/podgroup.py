"""What the engine asks of a gang scheduler, and what a PodGroup holds whichever it is."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from gangline.api.kubeflow.training import ReplicaSpec, SchedulingPolicy, TrainingJob
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, add_resources, parse_resources
from gangline.api.scheduling import PodGroupState
from gangline.api.scheme import Resource
from gangline.jobs.framework import Companion
from gangline.jobs.pods.replicas import Member


class GangSpec(msgspec.Struct, frozen=True):
    """All pods of a job, as a scheduler of gangs sees them."""

    job: TrainingJob
    # In the order in which they are made.
    replicas: Mapping[str, ReplicaSpec]
    policy: SchedulingPolicy = SchedulingPolicy()
    # With how many it can still train; None: its size is fixed.
    min_members: int | None = None
    # How many have succeeded while others wait for a place. Some schedulers no longer see those.
    succeeded: int = 0

    @property
    def size(self) -> int:
        return sum(spec.replicas or 0 for spec in self.replicas.values())

    def rank(self, member: Member) -> int:
        """A member's place in that order."""
        before = 0
        for kind, spec in self.replicas.items():
            if kind == member.type:
                break
            before += spec.replicas or 0
        return before + member.index


class GangPodEdits(msgspec.Struct, frozen=True):
    """How a scheduler knows a pod of a gang."""

    # Empty: whichever places pods otherwise.
    scheduler_name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # Annotations that give way to the template's own.
    default_annotations: Mapping[str, str] = {}
    # More fields of the pod's spec.
    spec_fields: Mapping[str, Any] = {}
    # Scheduling gates, beside the template's own.
    scheduling_gates: tuple[str, ...] = ()


NO_GANG_EDITS = GangPodEdits()


class GangScheduler(Protocol):
    """All or none of a job's pods, by somebody's scheduler."""

    @property
    def name(self) -> str:
        """By which it is asked for."""
        ...

    @property
    def kinds(self) -> tuple[Resource[Any], ...]:
        """What it reads, its PodGroups last. These must be served."""
        ...

    def group_companions(self, team: GangSpec, found: JSON | None) -> tuple[Companion, ...]:
        """The PodGroup of a team, given the one there is; last, after what must be there before it."""
        ...

    def pod_edits(self, team: GangSpec, member: Member, found: JSON | None) -> GangPodEdits:
        """What a new pod of the team carries, given the PodGroup there is."""
        ...

    def admits(self, found: JSON | None) -> bool:
        """Whether pods may be made, given the PodGroup there is."""
        ...


def pod_group_resource(gangs: GangScheduler) -> str:
    """Its PodGroups, as kubectl names them."""
    return gangs.kinds[-1].name


@runtime_checkable
class ReportsGangState(Protocol):
    """A gang scheduler that says how a gang is doing, in the words of `scheduling.gangline.dev`."""

    def gang_state(self, found: JSON) -> PodGroupState: ...


def min_available(team: GangSpec) -> int:
    """How many pods must fit at once: as asked for, else all."""
    return team.size if team.policy.min_available is None else team.policy.min_available


def min_resources(team: GangSpec, least: int | None = None) -> dict[str, str]:
    """What so many pods need: as asked for, else what the first of them request, in the order in which they are made.

    v1 takes them in random order, so that with fewer than all its sum changes from look to look.
    """
    if team.policy.min_resources is not None:
        return dict(team.policy.min_resources)
    total: dict[str, Quantity] = {}
    left = min_available(team) if least is None else least
    for spec in team.replicas.values():
        count = min(left, spec.replicas or 0)
        left -= count
        each = _template_requests(spec.template)
        total = add_resources(total, {name: amount * count for name, amount in each.items()})
    return {name: str(amount) for name, amount in sorted(total.items()) if amount}


def _template_requests(template: JSON) -> dict[str, Quantity]:
    """Of all containers; limits stand in where a container requests nothing."""
    total: dict[str, Quantity] = {}
    for container in (template.get("spec") or {}).get("containers") or []:
        written: Mapping[str, Any] = container.get("resources") or {}
        total = add_resources(total, parse_resources(written.get("requests") or written.get("limits") or {}))
    return total


def pod_group_companion(resource: str, job: TrainingJob, spec: JSON) -> Companion:
    """A PodGroup named like its job, with the job's annotations."""
    metadata: JSON = {"name": job.metadata.name}
    if job.metadata.annotations:
        metadata["annotations"] = dict(job.metadata.annotations)
    return Companion(resource, {"metadata": metadata, "spec": spec}, ("spec",), only_active=True)
