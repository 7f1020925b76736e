"""Seats and the pods that fill them."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.api.core import Pod
from gangline.api.training import REPLICA_INDEX, REPLICA_TYPE, ReplicaSpec
from gangline.jobs.framework import Member


class Gang(msgspec.Struct, frozen=True):
    """The team: every seat in order, and who sits there."""

    seats: tuple[Member, ...]
    pods: Mapping[Member, Pod]

    @classmethod
    def of(cls, replicas: Mapping[str, ReplicaSpec], pods: Iterable[Pod]) -> "Gang":
        members = tuple(
            Member(kind, index) for kind, spec in replicas.items() for index in range(spec.replicas or 0)
        )
        spelled = {kind.lower(): kind for kind in replicas}
        seated: dict[Member, Pod] = {}
        for pod in pods:
            labels = pod.metadata.labels
            kind, index = spelled.get(labels.get(REPLICA_TYPE, "")), labels.get(REPLICA_INDEX, "")
            if kind is not None and index.isdigit():
                seated[Member(kind, int(index))] = pod
        return cls(members, seated)

    def missing(self) -> tuple[Member, ...]:
        return tuple(seat for seat in self.seats if seat not in self.pods)
