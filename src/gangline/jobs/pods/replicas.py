"""Seats and the pods that fill them."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStateTerminated, Pod, PodPhase
from gangline.api.kubeflow.training import ROUND_ANNOTATION, ReplicaSpec

UNINDEXED_TYPE = "Launcher"
"""The one replica type of which there is exactly one, whose pod has no number in its name."""


class Member(msgspec.Struct, frozen=True, order=True, gc=False):
    """One seat of the team: replica type and index."""

    type: str
    index: int

    def __str__(self) -> str:
        return self.type.lower() if self.type == UNINDEXED_TYPE else f"{self.type.lower()}-{self.index}"


def member_name(job: str, member: Member) -> str:
    """The name of a member's pod and service: the same every time, so that a second attempt meets the first."""
    return f"{job}-{member}".replace("/", "-")


class Counts(NamedTuple):
    """Replicas of one type, as v1 counts them: a pod that is pending or on its way out is in none."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Gang(msgspec.Struct, frozen=True):
    """The team: every seat in order, who sits there, and who should go."""

    seats: tuple[Member, ...]
    # Pods of the present round, by seat.
    pods: Mapping[Member, Pod]
    # Names of seats under which some pod still exists, whatever becomes of it.
    taken: Collection[Member]
    # Pods of an earlier round.
    stale: tuple[Pod, ...]
    # Pods beyond the replicas asked for.
    extra: tuple[Pod, ...]
    counts: Mapping[str, Counts]

    @classmethod
    def of(cls, job: str, replicas: Mapping[str, ReplicaSpec], pods: Iterable[Pod], number: int = 0) -> "Gang":
        """Seat the pods that a job owns, in its round `number`."""
        seats = tuple(Member(kind, index) for kind, spec in replicas.items() for index in range(spec.replicas or 0))
        named = {member_name(job, seat): seat for seat in seats}
        seated: dict[Member, Pod] = {}
        taken: set[Member] = set()
        stale: list[Pod] = []
        extra: list[Pod] = []
        for pod in pods:
            seat = named.get(pod.metadata.name)
            if seat is None:
                extra.append(pod)
                continue
            taken.add(seat)
            if restart_round(pod) < number:
                stale.append(pod)
            else:
                seated[seat] = pod
        ordered = {seat: seated[seat] for seat in seats if seat in seated}
        return cls(seats, ordered, taken, tuple(stale), tuple(extra), _counts_by_type(replicas, ordered))

    def missing(self) -> tuple[Member, ...]:
        """Seats whose name is free."""
        return tuple(seat for seat in self.seats if seat not in self.taken)

    def of_type(self, kind: str) -> Iterable[tuple[Member, Pod]]:
        return ((seat, pod) for seat, pod in self.pods.items() if seat.type == kind)


def restart_round(pod: Pod) -> int:
    """In which round of its team a pod was made."""
    written = pod.metadata.annotations.get(ROUND_ANNOTATION, "0")
    return int(written) if written.isdigit() else 0


def _counts_by_type(replicas: Mapping[str, ReplicaSpec], pods: Mapping[Member, Pod]) -> dict[str, Counts]:
    tally = {kind: [0, 0, 0] for kind in replicas}
    for seat, pod in pods.items():
        if is_active(pod):
            tally[seat.type][0] += 1
        elif pod.status.phase == PodPhase.SUCCEEDED:
            tally[seat.type][1] += 1
        elif pod.status.phase == PodPhase.FAILED:
            tally[seat.type][2] += 1
    return {kind: Counts(*numbers) for kind, numbers in tally.items()}


def is_active(pod: Pod) -> bool:
    """Running, and not on its way out."""
    return pod.status.phase == PodPhase.RUNNING and pod.metadata.deletion_timestamp is None


def training_container_name(pod: Pod, container: str) -> str:
    """The name of the container that trains: the one given, else the first. An MPIJob may call its own as it likes."""
    names = [found.name for found in pod.spec.containers]
    return names[0] if names and container not in names else container


def terminated_state(pod: Pod, container: str) -> ContainerStateTerminated | None:
    """How the container that trains ended, if it has; `container` is what its kind calls it."""
    name = training_container_name(pod, container)
    return next((found.state.terminated for found in pod.status.container_statuses if found.name == name), None)
