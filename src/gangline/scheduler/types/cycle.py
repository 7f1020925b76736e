"""Inputs and results of a scheduling cycle: gang requests, allocations, queues, policy and decisions. Values only.

The cycle sees a pod as a *shape*: all that decides where it may run. Members of a gang have one to three shapes, so
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
"""An amount per resource, or a number per node. Whole units, cpu in thousandths: exact, no slack."""


class PodSet(msgspec.Struct, frozen=True):
    """Unplaced members of a gang that have the same role and the same shape."""

    role: str
    shape: PodShape
    count: int


class GangRequest(msgspec.Struct, frozen=True):
    """A gang with members that wait for nodes, and what it needs."""

    key: Key
    uid: str
    queue: str
    priority: int
    created: datetime
    # When the wait began. The starvation timeout counts from here.
    waiting_since: datetime
    # The PodGroup is Recovering or Unschedulable: the request goes before others of its priority.
    recovering: bool
    pod_sets: tuple[PodSet, ...]
    # How many of the members in `pod_sets` must be placed together; the others may wait. 0: the gang has its minimum
    # already.
    min_members: int
    # How many of them must be of each role.
    min_by_role: Mapping[str, int] = {}
    topology: GangTopology | None = None
    # Nodes of members that are placed already. With a required topology the others must join their domain.
    current_nodes: tuple[str, ...] = ()
    # Whether the gang may preempt others; false for preemptionPolicy Never.
    can_preempt: bool = True


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that uses resources of a node, whichever scheduler placed it."""

    uid: str
    key: Key
    node: str
    shape: PodShape
    priority: int = 0
    # The pod is being deleted: its resources are used until it is gone.
    terminating: bool = False
    # kube-scheduler has nominated the pod to the node but not bound it: it counts against requests of equal or lower
    # priority.
    nominated: bool = False
    # Labels that only this pod has. They are left out of the shape, so that members share one.
    identity_labels: tuple[tuple[str, str], ...] = ()


class BudgetLimit(msgspec.Struct, frozen=True):
    """How many pods a PodDisruptionBudget still lets go, over all gangs, and which pods of this gang it covers."""

    budget: Key
    allowed: int
    covered: frozenset[str]


class GangAllocation(msgspec.Struct, frozen=True, dict=True):
    """The pods that a gang, or a single pod of ours, has on nodes. They count for its queue and may be preempted."""

    key: Key
    uid: str
    queue: str
    priority: int
    created: datetime
    # How many members must stay for the gang to go on. Members above that number can be evicted one by one.
    min_members: int
    pods: tuple[BoundPod, ...]
    min_by_role: Mapping[str, int] = {}
    # The role of each member by uid; empty where roles do not matter.
    role_by_uid: Mapping[str, str] = {}
    # Members that must not be evicted: system-critical pods, and pods whose disruption budget is exhausted.
    protected_uids: frozenset[str] = frozenset()
    # Disruption budgets that cover some of the pods. They may cover pods of other gangs too.
    budget_limits: tuple[BudgetLimit, ...] = ()

    @cached_property
    def used(self) -> Mapping[str, int]:
        """What all pods use together, by resource."""
        return total_amounts(self.pods)

    @cached_property
    def retained(self) -> Mapping[str, int]:
        """What the pods that are not terminating use together, by resource."""
        staying = [member for member in self.pods if not member.terminating]
        return self.used if len(staying) == len(self.pods) else total_amounts(staying)


def total_amounts(pods: Iterable[BoundPod]) -> dict[str, int]:
    """What these pods use together, by resource."""
    total: dict[str, int] = {}
    # Counted by shape first: there are few shapes, and tens of thousands of pods.
    for shape, count in Counter([pod.shape for pod in pods]).items():
        for name, amount in shape.requests:
            total[name] = total.get(name, 0) + amount * count
    return total


class QueueUsage(msgspec.Struct, frozen=True):
    """What each queue uses: queue -> resource -> amount."""

    # Including terminating pods.
    used: Mapping[str, Mapping[str, int]]
    # Without terminating pods.
    retained: Mapping[str, Mapping[str, int]]


class QueueQuota(msgspec.Struct, frozen=True):
    """The weight of a queue, and the most it may use."""

    name: str
    weight: int = 1
    # Resource -> amount, in the units of vectors. A resource that is not named has no cap.
    cap: Mapping[str, int] = {}
    reclaimable: bool = True


class SchedulerPolicy(msgspec.Struct, frozen=True):
    """The configurable rules of a scheduling cycle."""

    # After this long, free capacity is reserved for the gang that has waited longest. None: never.
    starvation_timeout: timedelta | None = timedelta(minutes=5)
    preemption: bool = True
    reclaim: bool = True


class PendingReason(StrEnum):
    """Why a gang is not placed."""

    RESOURCES = "Resources"
    """The cluster lacks resources: more nodes would help. Only this reason is reported to autoscalers."""
    QUEUE = "Queue"
    """The queue has reached its cap, or does not exist."""
    VICTIMS = "Victims"
    """Pods are terminating to make room for the gang."""
    TASKS = "Tasks"
    """Fewer members exist than the gang needs."""
    HELD = "Held"
    """Free capacity is reserved for a gang that has waited longer, or members of this gang were preempted."""
    REFUSED = "Refused"
    """A pod uses a field that we cannot honour, or a claim that cannot be used; the message names it."""


class Placement(msgspec.Struct, frozen=True):
    """The nodes of the placed members: for each pod set one node number per placed pod, at most its count."""

    nodes: tuple[Vector, ...]

    @property
    def pod_count(self) -> int:
        return sum(len(nodes) for nodes in self.nodes)


class Shortage(msgspec.Struct, frozen=True):
    """Why a gang request does not fit."""

    message: str
    # Reason -> number of nodes, for the pod set that lacks most.
    nodes_by_reason: Mapping[str, int] = {}
    # How many of `min_members` would fit.
    fitting_members: int = 0
    # The request cannot be placed on any cluster; the message names the field.
    unsupported: bool = False


class Bind(msgspec.Struct, frozen=True):
    """Bind these members, all of them."""

    request: GangRequest
    # Node names, for each pod set.
    nodes: tuple[tuple[str, ...], ...]


class Preempt(msgspec.Struct, frozen=True):
    """Evict the victims; once they are gone the gang fits on these nodes. Nothing is bound now."""

    request: GangRequest
    victims: tuple[BoundPod, ...]
    # Gangs that end by this, and gangs that only shrink.
    victim_gangs: tuple[Key, ...]
    nodes: tuple[tuple[str, ...], ...]


class Pending(msgspec.Struct, frozen=True):
    """The gang stays pending in this cycle."""

    request: GangRequest
    reason: PendingReason
    message: str
    nodes_by_reason: Mapping[str, int] = {}


Decision: TypeAlias = Bind | Preempt | Pending


class CycleResult(msgspec.Struct, frozen=True):
    """All decisions on one snapshot, in the order in which they were made, and the queues' amounts after them."""

    decisions: Sequence[Decision]
    # Queue -> resource -> amount.
    allocated: Mapping[str, Mapping[str, int]] = {}
    deserved: Mapping[str, Mapping[str, int]] = {}
    # When to run a cycle although nothing has changed: the starvation timeout of a gang ends.
    recheck_at: datetime | None = None
