"""A member of a gang: a pod, where it is or is about to be, and what the life cycle looks at. No I/O, no clock."""

from datetime import datetime

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.api.scheduler_views import POD_SCHEDULED, Pod
from gangline.api.scheduling import GANG_GATE
from gangline.scheduler.gangs.phase import MemberStatus
from gangline.scheduler.pods.decode import identity_labels_of
from gangline.scheduler.pods.shape import PodShape
from gangline.scheduler.types.cycle import BoundPod

BIND, PIN = "bind", "pin"
"""How a member gets its place: we bind it; or we say where, and its own scheduler does."""
# As text: members of an enum are slow to name, and there may be thousands of pods.
SUCCEEDED, FAILED = PodPhase.SUCCEEDED.value, PodPhase.FAILED.value
_TERMINAL_PHASES = (SUCCEEDED, FAILED)
Seat = tuple[str, int | str]
"""Role and index, by which a replacement is known; without an index, the name."""


class GangMember:
    """A pod of a gang, and where it is or is about to be."""

    __slots__ = (
        "assumed_node",
        "bind_refused",
        "evicting",
        "key",
        "mode",
        "owner",
        "pod",
        "shape",
        "status",
        "uid",
    )

    def __init__(self, pod: Pod, shape: PodShape, mode: str) -> None:
        self.pod, self.shape, self.mode = pod, shape, mode
        # These never change, and are asked for all the time.
        self.uid, self.key, self.owner = pod.metadata.uid, pod.metadata.key, pod.metadata.controller
        # Where we decided to put it, from the decision until it is seen there or the try has failed.
        self.assumed_node = ""
        # The server said that it cannot be placed as we know it: it is otherwise by now, and the watch will tell.
        self.bind_refused = False
        # We have asked it to leave, and nobody refused.
        self.evicting = False
        self.status = member_status(pod)

    @property
    def node(self) -> str:
        """Where it is, or will be; empty: nowhere."""
        return self.status.node or self.assumed_node

    @property
    def is_waiting(self) -> bool:
        """Whether it wants a place, and may have one."""
        return bool(self.mode) and not self.bind_refused and self.is_unplaced

    @property
    def is_placed(self) -> bool:
        """Whether it has a place, and is to stay."""
        facts = self.status
        there = bool(facts.node or self.assumed_node)
        return there and not facts.deleting and not self.evicting and facts.phase not in _TERMINAL_PHASES

    @property
    def is_unplaced(self) -> bool:
        """Whether it has no place, whatever keeps it from one."""
        facts = self.status
        return not (facts.node or self.assumed_node or facts.deleting or facts.phase in _TERMINAL_PHASES)

    def as_bound_pod(self) -> BoundPod:
        """As one that holds room where it is, or is about to be."""
        return BoundPod(
            self.uid,
            self.key,
            self.node,
            self.shape,
            priority=self.pod.spec.priority,
            terminating=self.evicting or self.status.deleting,
            identity_labels=identity_labels_of(self.pod.metadata.labels, self.shape),
        )

    @property
    def has_ended(self) -> bool:
        return self.status.phase in _TERMINAL_PHASES

    @property
    def is_pinned(self) -> bool:
        """Whether it was told where to go, by us, and its own scheduler has yet to bind it there."""
        return bool(self.assumed_node) and not self.mode and not self.status.node and self.is_placed

    @property
    def pin_rejected(self) -> bool:
        """Whether its own scheduler says that there is no room where it was told to go, and makes none."""
        return self.is_pinned and not self.pod.status.nominated_node_name and _is_unschedulable(self.pod)


def placement_mode(pod: Pod, scheduler: str) -> str:
    """How a pod would be placed by us: bound, pinned, or (empty) not at all, or not yet."""
    gates = pod.spec.scheduling_gates
    if pod.spec.scheduler_name == scheduler:
        return "" if gates else BIND
    return PIN if len(gates) == 1 and gates[0].name == GANG_GATE else ""


def member_status(pod: Pod) -> MemberStatus:
    """What the life cycle looks at."""
    metadata, status = pod.metadata, pod.status
    labels = metadata.labels
    index = labels.get(REPLICA_INDEX, "")
    return MemberStatus(
        uid=metadata.uid,
        name=metadata.name,
        role=labels.get(REPLICA_TYPE, ""),
        index=int(index) if index.isdecimal() else None,
        phase=status.phase or PodPhase.PENDING.value,
        deleting=metadata.deletion_timestamp is not None,
        node=pod.spec.node_name,
        reason=status.reason,
        exit_code=_exit_code(pod) if status.phase == FAILED else None,
        scheduled_at=_scheduled_at(pod),
    )


def seat_of(facts: MemberStatus) -> Seat:
    return (facts.role, facts.name if facts.index is None else facts.index)


def _is_unschedulable(pod: Pod) -> bool:
    return any(
        found.type == POD_SCHEDULED and found.status == "False" and found.reason == "Unschedulable"
        for found in pod.status.conditions
    )


def _exit_code(pod: Pod) -> int | None:
    for container in pod.status.container_statuses:
        ended = container.state.terminated
        if ended is not None and ended.exit_code:
            return ended.exit_code
    return None


def _scheduled_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
