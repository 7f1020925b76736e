"""The replicas of a job, and the pods that run them."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, Pod, PodPhase
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE, ROUND_ANNOTATION, ReplicaSpec
from gangline.api.meta import ObjectMeta

UNINDEXED_TYPE = "Launcher"
"""The one replica type with exactly one replica, whose pod has no index in its name."""


class Member(msgspec.Struct, frozen=True, order=True, gc=False):
    """One replica of a job: its type and its index."""

    type: str
    index: int

    def __str__(self) -> str:
        return self.type.lower() if self.type == UNINDEXED_TYPE else f"{self.type.lower()}-{self.index}"


def member_name(job: str, member: Member) -> str:
    """The name of the pod and the service of a replica. Always the same, so that a repeated create finds the first."""
    return f"{job}-{member}".replace("/", "-")


def job_members(replicas: Mapping[str, ReplicaSpec]) -> tuple[Member, ...]:
    """All replicas that a job asks for, in the order in which they are created."""
    return tuple(Member(kind, index) for kind, spec in replicas.items() for index in range(spec.replicas or 0))


class Counts(NamedTuple):
    """Replicas of one type, counted as in v1: a pod that is pending or terminating is in no counter."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Gang(msgspec.Struct, frozen=True):
    """All replicas of a job in order, the pods that run them, and the pods to delete."""

    seats: tuple[Member, ...]
    # The names of their pods.
    names: Mapping[Member, str]
    # Pods of the current round, by replica.
    pods: Mapping[Member, Pod]
    # Replicas for which a pod of that name exists, of whatever round.
    taken: Collection[Member]
    # Pods of an earlier round.
    stale: tuple[Pod, ...]
    # Pods beyond the number of replicas.
    extra: tuple[Pod, ...]
    counts: Mapping[str, Counts]

    @classmethod
    def of(cls, job: str, replicas: Mapping[str, ReplicaSpec], pods: Iterable[Pod], number: int = 0) -> "Gang":
        """Assign the pods that a job owns to its replicas. `number` is the job's current round."""
        members = job_members(replicas)
        names = {member: member_name(job, member) for member in members}
        by_name = {name: member for member, name in names.items()}
        current: dict[Member, Pod] = {}
        taken: set[Member] = set()
        stale: list[Pod] = []
        extra: list[Pod] = []
        for pod in pods:
            member = by_name.get(pod.metadata.name)
            if member is None:
                extra.append(pod)
                continue
            taken.add(member)
            if round_number(pod.metadata) < number:
                stale.append(pod)
            else:
                current[member] = pod
        ordered = {member: current[member] for member in members if member in current}
        return cls(members, names, ordered, taken, tuple(stale), tuple(extra), _counts_by_type(replicas, ordered))

    def missing(self) -> tuple[Member, ...]:
        """The replicas without a pod, of whatever round: their names are free."""
        return tuple(member for member in self.seats if member not in self.taken)

    def of_type(self, kind: str) -> Iterable[tuple[Member, Pod]]:
        """The replicas of one type that have a pod, with it."""
        return ((member, pod) for member, pod in self.pods.items() if member.type == kind)


def all_pods(gang: Gang) -> tuple[Pod, ...]:
    """The pods of all rounds, surplus pods included."""
    return (*gang.pods.values(), *gang.stale, *gang.extra)


def round_number(metadata: ObjectMeta) -> int:
    """The round of its gang in which a pod or service was created."""
    annotation = metadata.annotations.get(ROUND_ANNOTATION)
    return int(annotation) if annotation is not None and annotation.isdigit() else 0


def _counts_by_type(replicas: Mapping[str, ReplicaSpec], pods: Mapping[Member, Pod]) -> dict[str, Counts]:
    tally = {kind: [0, 0, 0] for kind in replicas}
    for member, pod in pods.items():
        if is_active(pod):
            tally[member.type][0] += 1
        elif pod.status.phase == PodPhase.SUCCEEDED:
            tally[member.type][1] += 1
        elif pod.status.phase == PodPhase.FAILED:
            tally[member.type][2] += 1
    return {kind: Counts(*numbers) for kind, numbers in tally.items()}


def is_active(pod: Pod) -> bool:
    """Whether a pod runs and is not terminating."""
    return pod.status.phase == PodPhase.RUNNING and pod.metadata.deletion_timestamp is None


def leading_order(pod: Pod) -> tuple[int, int, str]:
    """The order of a team's pods by rank: chief, master or launcher first, then workers by index, then all others."""
    kind, index = pod.metadata.labels.get(REPLICA_TYPE, ""), pod.metadata.labels.get(REPLICA_INDEX, "")
    place = 0 if kind in ("chief", "master", "launcher") else 1 if kind == "worker" else 2
    return place, int(index) if index.isdecimal() else 0, pod.metadata.name


def training_container_name(pod: Pod, container: str) -> str:
    """The name of the container that trains: `container`, else the first. An MPIJob may name it freely."""
    names = [spec.name for spec in pod.spec.containers]
    return names[0] if names and container not in names else container


def training_status(pod: Pod, container: str) -> ContainerStatus:
    """The status of the training container; empty if there is none yet."""
    name = training_container_name(pod, container)
    return next((status for status in pod.status.container_statuses if status.name == name), ContainerStatus())


def terminated_state(pod: Pod, container: str) -> ContainerStateTerminated | None:
    """How the training container ended, if it has; `container` is its usual name in that kind of job."""
    return training_status(pod, container).state.terminated
