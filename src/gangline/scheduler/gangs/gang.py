"""One gang: its PodGroup and members, what it requests and what it has.

A pod is a member of the PodGroup its annotation names; one of ours without such an annotation is a gang of one. A pod
is ours to place if it names our scheduler and carries no gate, or if it names another scheduler and carries our gate
and no other: then it is not bound but pinned. No I/O, no clock.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from gangline.api.meta import Key
from gangline.api.scheduling import (
    DEFAULT_QUEUE,
    GANG_GATE,
    GangTopology,
    PodGroup,
    PodGroupPhase,
    PodGroupSpec,
    PodGroupState,
)
from gangline.scheduler.gangs.members import EPOCH, GangMember, GangMembers, Seat, seat_of
from gangline.scheduler.gangs.phase import GangObservation, PlacementAttempt, meets_roles
from gangline.scheduler.types.cycle import BudgetLimit, GangAllocation, GangRequest, Pending, PodSet
from gangline.scheduler.types.shape import shape_excluding

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""Pods of this priority or more run the cluster itself."""
NEVER_PREEMPT = "Never"
_DEGRADED_PHASES = (PodGroupPhase.RECOVERING.value, PodGroupPhase.UNSCHEDULABLE.value)
_NO_NODES: frozenset[str] = frozenset()


class SchedulingSpec(msgspec.Struct, frozen=True):
    """The scheduling fields of a PodGroup with their defaults; the defaults alone for a single pod."""

    min_members: int = 1
    min_by_role: Mapping[str, int] = {}
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""
    topology: GangTopology | None = None
    timeout_seconds: int | None = None

    @classmethod
    def from_podgroup(cls, spec: PodGroupSpec) -> "SchedulingSpec":
        return cls(
            min_members=max(spec.min_member, sum(spec.min_task_member.values()), 1),
            min_by_role=spec.min_task_member,
            queue=spec.queue or DEFAULT_QUEUE,
            priority_class=spec.priority_class_name,
            topology=spec.topology,
            timeout_seconds=spec.schedule_timeout_seconds,
        )

    def missing_counts(self, placed_roles: list[str]) -> tuple[int, dict[str, int]]:
        """How many more members are required, in all and by role, when these roles are placed."""
        roles = {
            role: minimum - count
            for role, minimum in self.min_by_role.items()
            if (count := placed_roles.count(role)) < minimum
        }
        return max(self.min_members - len(placed_roles), sum(roles.values()), 0), roles


class GangPriority(msgspec.Struct, frozen=True):
    """The priority of a gang, and whether it may preempt others."""

    value: int = 0
    can_preempt: bool = True


PriorityLookup = Callable[[str], GangPriority | None]
"""The priority of a PriorityClass by its name; None if it does not exist."""


class GangProgress:
    """What the scheduler last did about a gang. Requests and allocations do not depend on it."""

    def __init__(self) -> None:
        # The last pending decision.
        self.pending: Pending | None = None
        self.last_attempt: PlacementAttempt | None = None
        # When members were last placed.
        self.placed_at: datetime | None = None
        # When the start was last rolled back.
        self.rolled_back_at: datetime | None = None
        self.warned_timeout = False
        # The missing PriorityClass that a warning Event has named.
        self.warned_priority_class = ""
        # Members being bound, and the nodes of those bound since the last Event about it.
        self.binding_uids: set[str] = set()
        self.newly_bound_nodes: list[str] = []
        # Whether its pods carry the condition that the cluster lacks resources.
        self.marked_unschedulable = False


class GangInfo:
    """A PodGroup with its members, or a single pod. Request and allocation are computed once per change."""

    def __init__(self, key: Key, *, single_pod: bool) -> None:
        self.key, self.is_single_pod = key, single_pod
        # None for a single pod, and for a PodGroup that pods name and that does not exist yet.
        self.pod_group: PodGroup | None = None
        self.spec = SchedulingSpec()
        self.members = GangMembers()
        self.progress = GangProgress()
        # Members that must not be evicted: their disruption budget is exhausted.
        self.protected_uids: frozenset[str] = frozenset()
        self.budget_limits: tuple[BudgetLimit, ...] = ()
        # Nodes that rejected a pinned pod, by the pod's seat: other nodes are tried first.
        self.excluded_nodes: dict[Seat, frozenset[str]] = {}
        # Computed when needed; valid until the gang changes.
        self._request: GangRequest | None = None
        self._allocation: GangAllocation | None = None
        self._request_is_valid = self._allocation_is_valid = False
        self._waiting_members: list[list[GangMember]] = []

    @property
    def uid(self) -> str:
        return self.pod_group.metadata.uid if self.pod_group is not None else next(iter(self.members.by_uid), "")

    @property
    def state(self) -> PodGroupState:
        return self.pod_group.status.state if self.pod_group is not None else PodGroupState()

    @property
    def created(self) -> datetime:
        created = self.pod_group.metadata.creation_timestamp if self.pod_group is not None else None
        if created is None and self.members.by_uid:
            created = next(iter(self.members.by_uid.values())).pod.metadata.creation_timestamp
        return created or EPOCH

    @property
    def is_schedulable(self) -> bool:
        """Whether members may be placed: the PodGroup that they name exists and is not being deleted."""
        if self.is_single_pod:
            return True
        return self.pod_group is not None and self.pod_group.metadata.deletion_timestamp is None

    def set_pod_group(self, group: PodGroup | None, spec: SchedulingSpec) -> None:
        self.pod_group, self.spec = group, spec
        self.members.owner = group.metadata.controller if group is not None else None
        self.members.min_members = spec.min_members if group is not None else 0

    def exclude_node(self, member: GangMember) -> None:
        """Exclude the node that rejected this pinned member: the next pod in its seat gets another one if there is one."""
        seat = seat_of(member.status)
        self.excluded_nodes[seat] = self.excluded_nodes.get(seat, frozenset()) | {member.node}

    def observation(self, now: datetime) -> GangObservation:
        """The gang as input of the phase transitions."""
        return GangObservation(
            state=self.state,
            min_members=self.spec.min_members,
            min_by_role=self.spec.min_by_role,
            members=tuple([member.status for member in self.members.current()]),
            lost_members=(*self.members.lost.values(), *self.members.prior_members()),
            last_attempt=self._current_attempt(),
            recorded_count=self._recorded_count(),
            now=now,
        )

    def _current_attempt(self) -> PlacementAttempt | None:
        """The last placement attempt. A failure does not count if other members were missing then than now."""
        if self.progress.last_attempt is None and self.pod_group is not None:
            message = self._gate_message()
            return PlacementAttempt(failed=False, message=message) if message else None
        if self.progress.last_attempt is None or not self.progress.last_attempt.failed or self.progress.pending is None:
            return self.progress.last_attempt
        is_current = (
            self.progress.pending.request.min_members == self.spec.missing_counts(self.members.placed_roles())[0]
        )
        return (
            self.progress.last_attempt
            if is_current
            else PlacementAttempt(failed=False, message=self.progress.last_attempt.message)
        )

    def _gate_message(self) -> str:
        """Which scheduling gates hold back required members; empty if none do."""
        unplaced = self.members.unplaced()
        gated = [member for member in unplaced if not member.mode and member.pod.spec.scheduling_gates]
        if (
            not gated
            or sum(bool(member.mode) for member in unplaced) >= self.spec.missing_counts(self.members.placed_roles())[0]
        ):
            return ""
        gates = {gate.name for member in gated for gate in member.pod.spec.scheduling_gates}
        return f"{len(gated)} held back by scheduling gates ({', '.join(sorted(gates - {GANG_GATE}) or sorted(gates))})"

    def _recorded_count(self) -> int:
        """Running and succeeded members by the PodGroup's status, perhaps written before we were started."""
        status = self.pod_group.status if self.pod_group is not None else None
        return status.running + status.succeeded if status is not None else 0

    def invalidate(self) -> None:
        """Something about the gang changed: compute request and allocation again when needed."""
        self._request_is_valid = self._allocation_is_valid = False

    def request(self, priority_of: PriorityLookup) -> GangRequest | None:
        """The request of the gang; None if no member waits or too few exist. The same object until the gang changes."""
        if not self._request_is_valid:
            self._request, self._request_is_valid = self._build_request(priority_of), True
        return self._request

    def allocation(self, priority_of: PriorityLookup) -> GangAllocation | None:
        """The pods that the gang has on nodes; None if there are none. The same object until the gang changes."""
        if not self._allocation_is_valid:
            self._allocation, self._allocation_is_valid = self._build_allocation(priority_of), True
        return self._allocation

    def assignments(self, nodes: Sequence[Iterable[str]]) -> Iterator[tuple[GangMember, str]]:
        """Pairs of member and node, for the nodes that the last request was given for its pod sets."""
        for members, names in zip(self._waiting_members, nodes, strict=True):
            yield from zip(members, names, strict=False)

    def _build_request(self, priority_of: PriorityLookup) -> GangRequest | None:
        self._waiting_members = []
        if len(self.members.by_uid) + len(self.members.lost) < self.spec.min_members or not self.is_schedulable:
            return None
        waiting = [member for member in self.members.current() if member.is_waiting]
        if not waiting:
            return None
        placed = self.members.placed_roles()
        minimum, roles = self.spec.missing_counts(placed)
        if len(waiting) < minimum or not meets_roles(Counter(member.status.role for member in waiting), roles):
            return None
        priority = self._priority(priority_of)
        return GangRequest(
            key=self.key,
            uid=self.uid,
            queue=self.spec.queue,
            priority=priority.value,
            created=self.created,
            waiting_since=max([member.pod.metadata.creation_timestamp or EPOCH for member in waiting]),
            recovering=self.state.phase in _DEGRADED_PHASES or 0 < len(placed) < self.spec.min_members,
            pod_sets=self._pod_sets(waiting),
            min_members=minimum,
            min_by_role=roles,
            topology=self.spec.topology,
            current_nodes=tuple(sorted({member.node for member in self.members.placed()})),
            can_preempt=priority.can_preempt,
        )

    def _pod_sets(self, waiting: list[GangMember]) -> tuple[PodSet, ...]:
        # Grouped by identity: equal shapes are one object, and comparing a thousand of them costs time.
        groups: dict[tuple[str, int, frozenset[str]], list[GangMember]] = {}
        for member in sorted(waiting, key=_member_order):
            excluded = self.excluded_nodes.get(seat_of(member.status), _NO_NODES) if self.excluded_nodes else _NO_NODES
            groups.setdefault((member.status.role, id(member.shape), excluded), []).append(member)
        self._waiting_members = list(groups.values())
        return tuple(
            PodSet(role, shape_excluding(members[0].shape, excluded), len(members))
            for (role, _, excluded), members in groups.items()
        )

    def _build_allocation(self, priority_of: PriorityLookup) -> GangAllocation | None:
        # Terminating pods count for their queue until they are gone.
        members_with_node = [member for member in self.members.by_uid.values() if member.node and not member.has_ended]
        if not members_with_node:
            return None
        priority, placed = self._priority(priority_of), self.members.placed()
        succeeded_roles = self.members.succeeded_roles()
        _, roles = self.spec.missing_counts(succeeded_roles)
        return GangAllocation(
            key=self.key,
            uid=self.uid,
            queue=self.spec.queue,
            priority=priority.value,
            created=self.created,
            min_members=max(self.spec.min_members - len(succeeded_roles), 0),
            pods=tuple([member.as_bound_pod() for member in members_with_node]),
            min_by_role=roles,
            role_by_uid={member.uid: member.status.role for member in placed} if roles else {},
            protected_uids=self._protected_members(placed),
            budget_limits=self.budget_limits,
        )

    def _protected_members(self, placed: list[GangMember]) -> frozenset[str]:
        critical = {member.uid for member in placed if member.pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY}
        if self.key.namespace == "kube-system":
            critical.update(member.uid for member in placed)
        return self.protected_uids | critical if critical else self.protected_uids

    def _priority(self, priority_of: PriorityLookup) -> GangPriority:
        """The priority of the PodGroup's class; without one the highest priority of its pods, which should agree."""
        named = priority_of(self.spec.priority_class) if self.spec.priority_class else None
        if named is not None:
            return named
        specs = [member.pod.spec for member in self.members.by_uid.values()]
        priority = max([spec.priority for spec in specs], default=0)
        return GangPriority(priority, can_preempt=NEVER_PREEMPT not in [spec.preemption_policy for spec in specs])


def _member_order(member: GangMember) -> tuple[str, int, str]:
    status = member.status
    return status.role, -1 if status.index is None else status.index, status.name
