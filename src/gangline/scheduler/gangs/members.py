"""Members of a gang: pods, their assumed nodes, and lost ones that have not been replaced. No I/O, no clock."""

from collections import Counter
from datetime import UTC, datetime

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.api.meta import OwnerReference
from gangline.api.scheduler_views import POD_SCHEDULED, Pod, PodCondition
from gangline.api.scheduling import GANG_GATE
from gangline.scheduler.gangs.phase import LostMember, MemberStatus
from gangline.scheduler.pods.decode import TERMINAL_PHASES, identity_labels_of
from gangline.scheduler.types.cycle import BoundPod
from gangline.scheduler.types.shape import PodShape

BIND, PIN = "bind", "pin"
"""How a member is placed: we bind it; or we pin it to a node, and its own scheduler binds it."""
# As text: access to enum members is slow, and there may be thousands of pods.
SUCCEEDED, FAILED = PodPhase.SUCCEEDED.value, PodPhase.FAILED.value
UNSCHEDULABLE_REASON = "Unschedulable"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_REMEMBERED = 16
"""Lost members are pruned only beyond twice this number: only a gang that loses many pays for it."""
Seat = tuple[str, int | str]
"""Role and index, by which a replacement is recognized; without an index, role and name."""


class GangMember:
    """A pod of a gang, and the node where it is or is about to be."""

    __slots__ = ("assumed_node", "bind_refused", "evicting", "key", "mode", "owner", "pod", "shape", "status", "uid")

    def __init__(self, pod: Pod, shape: PodShape, mode: str) -> None:
        self.pod, self.shape, self.mode = pod, shape, mode
        # Constant, and read all the time.
        self.uid, self.key, self.owner = pod.metadata.uid, pod.metadata.key, pod.metadata.controller
        # The node chosen by us, from the decision until the pod is seen there or placing it has failed.
        self.assumed_node = ""
        # The server refused to place the pod as we know it: it has changed, and the watch will show how.
        self.bind_refused = False
        # We have requested its eviction, and it was not refused.
        self.evicting = False
        self.status = member_status(pod)

    @property
    def node(self) -> str:
        """The node where the pod is or is about to be; empty if none."""
        return self.status.node or self.assumed_node

    @property
    def is_waiting(self) -> bool:
        """Whether the pod needs a node, and may be given one."""
        return bool(self.mode) and not self.bind_refused and self.is_unplaced

    @property
    def is_placed(self) -> bool:
        """Whether the pod has a node, and is to stay there."""
        status = self.status
        has_node = bool(status.node or self.assumed_node)
        return has_node and not status.deleting and not self.evicting and status.phase not in TERMINAL_PHASES

    @property
    def is_unplaced(self) -> bool:
        """Whether the pod has no node, for whatever reason."""
        status = self.status
        return not (status.node or self.assumed_node or status.deleting or status.phase in TERMINAL_PHASES)

    def as_bound_pod(self) -> BoundPod:
        """The pod as a user of resources on its node."""
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
        return self.status.phase in TERMINAL_PHASES

    @property
    def is_pinned(self) -> bool:
        """Whether we pinned the pod, and its own scheduler has not bound it yet."""
        return bool(self.assumed_node) and not self.mode and not self.status.node and self.is_placed

    @property
    def pin_rejected(self) -> bool:
        """Whether its own scheduler reports that the pinned node has no room, and makes none."""
        if not self.is_pinned or self.pod.status.nominated_node_name:
            return False
        condition = scheduled_condition(self.pod)
        return condition is not None and (condition.status, condition.reason) == ("False", UNSCHEDULABLE_REASON)


class GangMembers:
    """The pods of a gang, and the lost ones that have not been replaced."""

    def __init__(self) -> None:
        # Changed by `add`, `update` and `remove` only.
        self.by_uid: dict[str, GangMember] = {}
        # How many members have each seat: one, or two while one replaces the other.
        self._seats: Counter[Seat] = Counter()
        self.lost: dict[Seat, LostMember] = {}
        # How many members had succeeded when the PodGroup was first seen, by its status, and when that was written.
        self.prior_succeeded: tuple[int, datetime | None] = (0, None)
        # The owner of the PodGroup, and its minimum of members. 0: there is no PodGroup, and losses are not recorded.
        self.owner: OwnerReference | None = None
        self.min_members = 0

    def add(self, member: GangMember) -> None:
        """Add a member. A lost member of the same seat is replaced by it."""
        self.by_uid[member.uid] = member
        self._occupy_seat(member.status)

    def update(self, before: MemberStatus, now: MemberStatus) -> None:
        """The status of a member changed, perhaps its seat."""
        if seat_of(before) != seat_of(now):
            self._leave_seat(before)
            self._occupy_seat(now)

    def remove(self, uid: str) -> None:
        """Remove a member. It counts as lost until another member has its seat."""
        member = self.by_uid.pop(uid)
        status = member.status
        if not self._leave_seat(status) and self.min_members and not self._belongs_to_namesake(member):
            succeeded = status.phase == SUCCEEDED
            if len(self.lost) > 2 * max(self.min_members, _MIN_REMEMBERED):
                self._forget_replaced()
            self.lost[seat_of(status)] = LostMember(status.name, status.role, status.index, succeeded=succeeded)

    def _forget_replaced(self) -> None:
        """Forget the oldest lost members without an index: their replacements cannot be recognized by seat."""
        without_index = [seat for seat, lost in self.lost.items() if lost.index is None and not lost.succeeded]
        for seat in without_index[: max(len(without_index) - self.min_members, 0)]:
            del self.lost[seat]

    def _occupy_seat(self, status: MemberStatus) -> None:
        seat = seat_of(status)
        self._seats[seat] += 1
        self.lost.pop(seat, None)

    def _leave_seat(self, status: MemberStatus) -> bool:
        """Take the seat from a member. Returns whether another member has it."""
        seat = seat_of(status)
        self._seats[seat] -= 1
        if self._seats[seat]:
            return True
        del self._seats[seat]
        return False

    def current(self) -> list[GangMember]:
        """Members without the pods of a deleted job of the same name: these hold resources but do not belong here."""
        if self.owner is None:
            return list(self.by_uid.values())
        return [member for member in self.by_uid.values() if not self._belongs_to_namesake(member)]

    def _belongs_to_namesake(self, member: GangMember) -> bool:
        """Whether the pod belongs to another object of the same kind and name as the owner of the PodGroup.

        Other differences mean nothing: the pods of a JobSet belong to its Jobs.
        """
        owner, other = self.owner, member.owner
        if owner is None or other is None or other.uid == owner.uid:
            return False
        return (other.kind, other.name) == (owner.kind, owner.name)

    def placed(self) -> list[GangMember]:
        """Members that have a node and stay."""
        return [member for member in self.by_uid.values() if member.is_placed]

    def unplaced(self) -> list[GangMember]:
        """Members that have no node, for whatever reason."""
        return [member for member in self.by_uid.values() if member.is_unplaced]

    def placed_roles(self) -> list[str]:
        """Roles of members that have a node or have succeeded, one entry for each."""
        return [member.status.role for member in self.current() if member.is_placed] + self.succeeded_roles()

    def succeeded_roles(self) -> list[str]:
        """Roles of members that have succeeded, including those that are gone."""
        succeeded = [member.status for member in self.current() if member.status.phase == SUCCEEDED]
        return [status.role for status in succeeded] + [lost.role for lost in self.lost.values() if lost.succeeded]

    def prior_members(self) -> tuple[LostMember, ...]:
        """Members that succeeded and were deleted before we were started, by the status; none once new ones come."""
        count, since = self.prior_succeeded
        if not count or since is None:
            return ()
        if any((member.pod.metadata.creation_timestamp or EPOCH) > since for member in self.by_uid.values()):
            return ()
        return (LostMember("", succeeded=True),) * max(count - len(self.succeeded_roles()), 0)


def placement_mode(pod: Pod, scheduler: str) -> str:
    """How we would place the pod: bind it, pin it, or (empty) not at all or not yet."""
    gates = pod.spec.scheduling_gates
    if pod.spec.scheduler_name == scheduler:
        return "" if gates else BIND
    return PIN if len(gates) == 1 and gates[0].name == GANG_GATE else ""


def member_status(pod: Pod) -> MemberStatus:
    """The status of a pod as input of the phase transitions."""
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


def seat_of(status: MemberStatus) -> Seat:
    return (status.role, status.name if status.index is None else status.index)


def scheduled_condition(pod: Pod) -> PodCondition | None:
    """The condition PodScheduled of a pod; None if it has none."""
    return next((condition for condition in pod.status.conditions if condition.type == POD_SCHEDULED), None)


def _exit_code(pod: Pod) -> int | None:
    for container in pod.status.container_statuses:
        terminated = container.state.terminated
        if terminated is not None and terminated.exit_code:
            return terminated.exit_code
    return None


def _scheduled_at(pod: Pod) -> datetime | None:
    condition = scheduled_condition(pod)
    return condition.last_transition_time if condition is not None and condition.status == "True" else None
