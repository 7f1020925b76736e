"""The engine's vocabulary: who asks for places, who holds them, and what is decided. Values only.

A pod is to the engine a *shape*: all that decides where it may run. Members of a gang have one to three shapes, so
everything is counted per shape over vectors of nodes, never per pod and node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.api.meta import Key
from gangline.api.scheduling import GangTopology
from gangline.scheduler.types.shape import PodShape

Vector: TypeAlias = NDArray[np.int64]
"""Amounts per resource, or a number per node. Whole units, cpu in thousandths: exact, no slack."""


class PodSet(msgspec.Struct, frozen=True):
    """Members of one role and one shape that wait for places, all alike."""

    role: str
    shape: PodShape
    count: int


class GangRequest(msgspec.Struct, frozen=True):
    """A gang with members that wait."""

    key: Key
    uid: str
    queue: str
    priority: int
    created: datetime
    # Since when it has been waiting; for the starvation guard.
    waiting_since: datetime
    # Recovering or Unschedulable: it goes before others of its priority.
    recovering: bool
    pod_sets: tuple[PodSet, ...]
    # How many of all these must be placed at once; the others are welcome, but may wait. 0: it is whole already.
    min_members: int
    # Of these, how many of each role at least.
    min_by_role: Mapping[str, int] = {}
    topology: GangTopology | None = None
    # Nodes on which members of it are already: with a topology the others must join them.
    current_nodes: tuple[str, ...] = ()
    # Whether it may ask others to leave (preemptionPolicy Never: no).
    can_preempt: bool = True


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that holds room on a node, whoever placed it."""

    uid: str
    key: Key
    node: str
    shape: PodShape
    priority: int = 0
    # On its way out: its room is free soon, and not yet.
    terminating: bool = False
    # Nominated by kube-scheduler, not bound: counts against whoever is not more important.
    nominated: bool = False
    # Labels of it alone, left out of its shape so that members share one.
    identity_labels: tuple[tuple[str, str], ...] = ()


class BudgetLimit(msgspec.Struct, frozen=True):
    """How many of those whom a disruption budget covers may leave, in all its gangs together; and whom in this gang."""

    budget: Key
    allowed: int
    covered: frozenset[str]


class GangAllocation(msgspec.Struct, frozen=True, dict=True):
    """A gang, or a pod alone, of ours that holds places: it counts for its queue, and may have to give way."""

    key: Key
    uid: str
    queue: str
    priority: int
    created: datetime
    # How many of its members must stay if it is to go on; all above may be asked to leave alone.
    min_members: int
    pods: tuple[BoundPod, ...]
    min_by_role: Mapping[str, int] = {}
    # Role of each member by uid, where roles count.
    role_by_uid: Mapping[str, str] = {}
    # Members that must not be evicted: system-critical, or their disruption budget is used up.
    protected_uids: frozenset[str] = frozenset()
    # Disruption budgets that cover some of it, and perhaps members of other gangs too.
    budget_limits: tuple[BudgetLimit, ...] = ()

    @cached_property
    def used(self) -> Mapping[str, int]:
        """What its members hold together, by resource."""
        return total_amounts(self.pods)

    @cached_property
    def retained(self) -> Mapping[str, int]:
        """The same without members on their way out."""
        staying = [member for member in self.pods if not member.terminating]
        return self.used if len(staying) == len(self.pods) else total_amounts(staying)


def total_amounts(pods: Iterable[BoundPod]) -> dict[str, int]:
    """What these hold together, by resource."""
    total: dict[str, int] = {}
    # By shape, of which there are few: a cluster has tens of thousands of residents.
    for shape, count in Counter([pod.shape for pod in pods]).items():
        for name, amount in shape.requests:
            total[name] = total.get(name, 0) + amount * count
    return total


class QueueUsage(msgspec.Struct, frozen=True):
    """What queues hold, from whoever keeps count of it: queue -> resource -> amount."""

    # Also of members on their way out.
    used: Mapping[str, Mapping[str, int]]
    # Without them.
    retained: Mapping[str, Mapping[str, int]]


class QueueQuota(msgspec.Struct, frozen=True):
    """What a queue may have."""

    name: str
    weight: int = 1
    # By resource, in the units of vectors.
    cap: Mapping[str, int] = {}
    reclaimable: bool = True


class SchedulerPolicy(msgspec.Struct, frozen=True):
    """What can be set about decisions."""

    # After so long, what frees up is held for the gang that has waited longest. None: never.
    starvation_timeout: timedelta | None = timedelta(minutes=5)
    preemption: bool = True
    reclaim: bool = True


class PendingReason(StrEnum):
    """Why a gang waits."""

    RESOURCES = "Resources"
    """Real shortage: more nodes would help. The only cause an autoscaler may hear of."""
    QUEUE = "Queue"
    """Its queue has what it may have."""
    VICTIMS = "Victims"
    """Room is being made for it."""
    TASKS = "Tasks"
    """Fewer members exist than it needs."""
    HELD = "Held"
    """What is free is held for one that has waited longer."""
    REFUSED = "Refused"
    """It uses something that this way of placing cannot do; the message names the field."""


class Placement(msgspec.Struct, frozen=True):
    """Where members go: for every need of an ask the numbers of nodes, one per member placed, at most its count."""

    nodes: tuple[Vector, ...]

    @property
    def pod_count(self) -> int:
        return sum(len(nodes) for nodes in self.nodes)


class Shortage(msgspec.Struct, frozen=True):
    """Why it does not fit."""

    message: str
    # Reason -> on how many nodes, for the need that fits least.
    nodes_by_reason: Mapping[str, int] = {}
    # How many of `least` would fit.
    fitting_members: int = 0
    # Not placeable whatever room there is: the message names the field.
    unsupported: bool = False


class Bind(msgspec.Struct, frozen=True):
    """Bind these members, all of them."""

    request: GangRequest
    # For every need, the names of nodes.
    nodes: tuple[tuple[str, ...], ...]


class Preempt(msgspec.Struct, frozen=True):
    """Ask these to leave: when they are gone, the gang fits where it is nominated. Nothing is bound now."""

    request: GangRequest
    victims: tuple[BoundPod, ...]
    # Whole gangs that end by this, and those that only shrink.
    victim_gangs: tuple[Key, ...]
    nodes: tuple[tuple[str, ...], ...]


class Pending(msgspec.Struct, frozen=True):
    """Nothing for it now."""

    request: GangRequest
    reason: PendingReason
    message: str
    nodes_by_reason: Mapping[str, int] = {}


Decision: TypeAlias = Bind | Preempt | Pending


class CycleResult(msgspec.Struct, frozen=True):
    """All decisions on one snapshot, in the order in which they were made, and what queues had by then."""

    decisions: Sequence[Decision]
    # Queue -> resource -> amount.
    allocated: Mapping[str, Mapping[str, int]] = {}
    deserved: Mapping[str, Mapping[str, int]] = {}
    # When to look again although nothing changes: a gang's patience ends.
    recheck_at: datetime | None = None
