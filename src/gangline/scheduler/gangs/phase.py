"""The life cycle of a gang: Pending, Running, Recovering, Unschedulable. One call makes at most one transition.

    (nothing)     -> Pending         T0  the PodGroup is first seen
    Pending       -> Running         T1  the required members run, or have succeeded
    Pending       -> Recovering      T2  some run, and one failed, was rejected by a kubelet, or was deleted
    Running       -> Recovering      T3  fewer run than required
    Recovering    -> Running         T4  the required members run again
    Recovering    -> Unschedulable   T5  the missing members exist again, some run or succeeded, and the rest does not fit
    Unschedulable -> Pending         T6  no pod that had a node when this phase began exists any more: the gang starts again
    Unschedulable -> Running         T7  the required members run again

There are no other transitions. A new gang that does not fit stays Pending; a gang becomes Unschedulable only while a
member runs or has succeeded. That the others do not fit is a failed `PlacementAttempt`, which `binding.dispatcher` records
after a cycle and `GangInfo._current_attempt` drops when other members are missing by then. Only `minMember` counts, and the minimum of each role where the PodGroup names one: members above it come and go without a
transition, a member that has succeeded is no loss, and a container restarted in place is not noticed.

A failed or terminating member is the reason of the phase until its replacement (same role and index) exists. Once it
is gone and not replaced, a gang in Recovering reports NotEnoughTasks: its owner has to act.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from gangline.api.core import PodPhase
from gangline.api.scheduling import PodGroupPhase, PodGroupReason, PodGroupState, PodGroupStatus

HEARTBEAT_INTERVAL = timedelta(seconds=30)
"""How often an unchanged state gets a new timestamp."""
_RESTART_MESSAGE = "all members deleted, group starts again"
_MAX_NAMED_MEMBERS = 3
"""How many lost members a message names; the others are counted."""

# As text: access to enum members is slow, and there may be thousands of pods.
_RUNNING, _SUCCEEDED = PodPhase.RUNNING.value, PodPhase.SUCCEEDED.value
_HEALTHY_PHASES = (_RUNNING, _SUCCEEDED)
FAILED_PHASES = (PodPhase.FAILED.value, PodPhase.UNKNOWN.value)
_REJECTION_REASONS = frozenset(
    {
        "AppArmor",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodFitsHostPorts",
        "PodLevelResourcesNotAdmittedReason",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SysctlForbidden",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
    }
)


class MemberStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a transition depends on of an existing pod."""

    uid: str
    name: str
    role: str = ""
    # None: the pod has no index; it counts as replaced once there are enough members.
    index: int | None = None
    phase: str = PodPhase.PENDING.value
    # The pod has a deletion timestamp.
    deleting: bool = False
    node: str = ""
    # `status.reason`, set by the kubelet or by an eviction.
    reason: str = ""
    exit_code: int | None = None
    # When the condition PodScheduled became True.
    scheduled_at: datetime | None = None


class LostMember(msgspec.Struct, frozen=True, gc=False):
    """A member that is gone and has not been replaced."""

    name: str
    role: str = ""
    index: int | None = None
    # It had succeeded before it was deleted, so it is no loss.
    succeeded: bool = False


L = TypeVar("L", MemberStatus, LostMember)


class PlacementAttempt(msgspec.Struct, frozen=True, gc=False):
    """The last attempt to place all missing members, on a fresh snapshot with terminating pods counted as gone.

    `failed`: the cluster lacks resources, or a pod asks for something that we do not support. A gang that waits for its
    queue, or for pods to terminate, has not failed.
    """

    failed: bool
    message: str = ""


class GangObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A gang at one moment."""

    state: PodGroupState
    # `spec.minMember` and `spec.minTaskMember`.
    min_members: int
    min_by_role: Mapping[str, int] = {}
    members: tuple[MemberStatus, ...] = ()
    lost_members: tuple[LostMember, ...] = ()
    last_attempt: PlacementAttempt | None = None
    # Running and succeeded members as last written: if there are fewer now, one was lost unseen.
    recorded_count: int = 0
    now: datetime


def next_state(observation: GangObservation) -> PodGroupState:
    """The next state; the very same object if nothing is to be written.

    Call again at once if the phase has changed: the next transition may be due.
    """
    before = observation.state
    tally = _MemberTally.from_observation(observation)
    probe_time = _probe_time(observation)
    phase, reason = _next_phase(observation, tally)
    restarts = (before.phase, phase) == (PodGroupPhase.UNSCHEDULABLE, PodGroupPhase.PENDING)
    message = _RESTART_MESSAGE if restarts else _message(observation, tally, reason)
    if phase != before.phase:
        return PodGroupState(
            phase=phase.value,
            last_probe_time=probe_time,
            last_transition_time=probe_time,
            reason=reason.value,
            message=message,
        )
    is_same = (before.reason, before.message) == (reason.value, message)
    last, since = before.last_probe_time, before.last_transition_time
    if is_same and last is not None and since is not None and probe_time - last < HEARTBEAT_INTERVAL:
        return before
    return msgspec.structs.replace(
        before,
        last_probe_time=probe_time,
        last_transition_time=since or probe_time,
        reason=reason.value,
        message=message,
    )


def podgroup_status(observation: GangObservation, state: PodGroupState) -> PodGroupStatus:
    """The whole status: the state, and the counters of members."""
    tally = _MemberTally.from_observation(observation)
    failed = sum(member.phase == PodPhase.FAILED for member in observation.members)
    return PodGroupStatus(state=state, running=tally.running, succeeded=tally.succeeded, failed=failed)


def _probe_time(observation: GangObservation) -> datetime:
    """Now in whole seconds; never before the recorded times, even if the clock was set back."""
    recorded = (observation.state.last_probe_time, observation.state.last_transition_time)
    return max(time for time in (observation.now.replace(microsecond=0), *recorded) if time is not None)


class _MemberTally(msgspec.Struct, frozen=True):
    """Counts of running, lost and existing members."""

    running: int
    succeeded: int
    # Live members: running, succeeded, or not started yet.
    existing: int
    # Of these, the ones without a node.
    unplaced: int
    # Losses that have not been replaced.
    failed: tuple[MemberStatus, ...]
    deleting: tuple[MemberStatus, ...]
    deleted: tuple[LostMember, ...]
    # Placed and existing members by role; and whether these are enough.
    placed_roles: Counter[str]
    existing_roles: Counter[str]
    is_healthy: bool
    is_complete: bool

    @classmethod
    def from_observation(cls, observation: GangObservation) -> "_MemberTally":
        live = [member for member in observation.members if not _is_lost(member)]
        done_members = [former for former in observation.lost_members if former.succeeded]
        running = [member for member in live if member.phase == _RUNNING]
        succeeded = [member for member in live if member.phase == _SUCCEEDED]
        waiting = [member for member in live if member.phase not in _HEALTHY_PHASES]
        existing_count = len(live) + len(done_members)
        seats = {(member.role, member.index) for member in live}

        # Without an index it is unknown who replaced whom: as many count as lost as are lacking, the last ones.
        lacking = max(observation.min_members - existing_count, 0)

        def unreplaced(members: list[L], lacking_count: int) -> list[L]:
            without_index = [member for member in members if member.index is None]
            counted = {id(member) for member in without_index[max(len(without_index) - lacking_count, 0) :]}
            return [
                member
                for member in members
                if (id(member) in counted if member.index is None else (member.role, member.index) not in seats)
            ]

        lost_members = unreplaced([member for member in observation.members if _is_lost(member)], lacking)
        lacking = max(lacking - sum(member.index is None for member in lost_members), 0)
        placed = Counter([member.role for member in (*running, *succeeded)] + [former.role for former in done_members])
        existing = placed + Counter(member.role for member in waiting)
        return cls(
            running=len(running),
            succeeded=len(succeeded) + len(done_members),
            existing=existing_count,
            unplaced=sum(not member.node for member in waiting),
            failed=tuple(member for member in lost_members if member.phase in FAILED_PHASES),
            deleting=tuple(member for member in lost_members if member.phase not in FAILED_PHASES),
            deleted=tuple(unreplaced([former for former in observation.lost_members if not former.succeeded], lacking)),
            placed_roles=placed,
            existing_roles=existing,
            is_healthy=placed.total() >= observation.min_members and meets_roles(placed, observation.min_by_role),
            is_complete=existing_count >= observation.min_members and meets_roles(existing, observation.min_by_role),
        )

    @property
    def healthy_count(self) -> int:
        return self.running + self.succeeded

    @property
    def loss_count(self) -> int:
        return len(self.failed) + len(self.deleting) + len(self.deleted)


def meets_roles(counts: Counter[str], roles: Mapping[str, int]) -> bool:
    return all(counts[role] >= minimum for role, minimum in roles.items())


def _is_lost(member: MemberStatus) -> bool:
    return member.phase in FAILED_PHASES or (member.deleting and member.phase != _SUCCEEDED)


def _next_phase(observation: GangObservation, tally: _MemberTally) -> tuple[PodGroupPhase, PodGroupReason]:
    """The next phase, and its reason."""
    reason = _reason(observation, tally)
    if tally.is_healthy and observation.state.phase in list(PodGroupPhase):
        return PodGroupPhase.RUNNING, PodGroupReason.NONE
    match observation.state.phase:
        case PodGroupPhase.PENDING:
            is_broken = tally.healthy_count > 0 and tally.loss_count
            return (PodGroupPhase.RECOVERING if is_broken else PodGroupPhase.PENDING), reason
        case PodGroupPhase.RUNNING:
            # Fewer than before, and no loss seen: it happened before we started, or the member was replaced before we
            # looked.
            lost_unseen = not tally.loss_count and tally.healthy_count < observation.recorded_count
            return PodGroupPhase.RECOVERING, (PodGroupReason.POD_DELETED if lost_unseen else reason)
        case PodGroupPhase.RECOVERING:
            if tally.is_complete and tally.unplaced and tally.healthy_count and _lacks_room(observation):
                return PodGroupPhase.UNSCHEDULABLE, PodGroupReason.NOT_ENOUGH_RESOURCES
            awaits_owner = not tally.is_complete and not tally.failed and not tally.deleting
            return PodGroupPhase.RECOVERING, (PodGroupReason.NOT_ENOUGH_TASKS if awaits_owner else reason)
        case PodGroupPhase.UNSCHEDULABLE:
            if any(_had_node_before(member, observation.state.last_transition_time) for member in observation.members):
                return PodGroupPhase.UNSCHEDULABLE, reason
            return PodGroupPhase.PENDING, PodGroupReason.POD_DELETED
        case _:
            return PodGroupPhase.PENDING, (
                PodGroupReason.NONE if tally.is_complete else PodGroupReason.NOT_ENOUGH_TASKS
            )


def _lacks_room(observation: GangObservation) -> bool:
    return observation.last_attempt is not None and observation.last_attempt.failed


def _had_node_before(member: MemberStatus, since: datetime | None) -> bool:
    """Whether the member had a node when the phase began; an unknown time counts as before."""
    return bool(member.node) and (member.scheduled_at is None or since is None or member.scheduled_at <= since)


def _reason(observation: GangObservation, tally: _MemberTally) -> PodGroupReason:
    """The first reason that holds."""
    if tally.failed:
        return PodGroupReason.POD_FAILED
    if tally.deleting or tally.deleted:
        return PodGroupReason.POD_DELETED
    if not tally.is_complete:
        return PodGroupReason.NOT_ENOUGH_TASKS
    if _lacks_room(observation):
        return PodGroupReason.NOT_ENOUGH_RESOURCES
    return PodGroupReason.NONE


def _message(observation: GangObservation, tally: _MemberTally, reason: PodGroupReason) -> str:
    """All counts, lost members, and why members are not placed."""
    parts = [f"{tally.running}/{observation.min_members} members running"]
    if tally.succeeded:
        parts.append(f"{tally.succeeded} succeeded")
    role_counts = tally.placed_roles if tally.is_complete else tally.existing_roles
    parts += [
        f"{role} {role_counts[role]}/{minimum}"
        for role, minimum in observation.min_by_role.items()
        if role_counts[role] < minimum
    ]
    losses = [_failure_message(member) for member in tally.failed]
    losses += [f"{_display_name(member)} deleted" for member in tally.deleting]
    losses += [f"{_display_name(former)} deleted" for former in tally.deleted]
    parts += losses[:_MAX_NAMED_MEMBERS]
    if len(losses) > _MAX_NAMED_MEMBERS:
        parts.append(f"{len(losses) - _MAX_NAMED_MEMBERS} more lost")
    if reason is PodGroupReason.NOT_ENOUGH_TASKS:
        parts.append(f"{tally.existing} of {observation.min_members} exist")
    text = ", ".join(parts)
    if tally.is_healthy or observation.last_attempt is None or not observation.last_attempt.message:
        return text
    return f"{text}; {observation.last_attempt.message}"


def _display_name(member: MemberStatus | LostMember) -> str:
    return f"{member.role}-{member.index}" if member.role and member.index is not None else member.name


def _failure_message(member: MemberStatus) -> str:
    location = f" on {member.node}" if member.node else ""
    if member.phase == PodPhase.UNKNOWN:
        return f"{member.name} lost{location}"
    if member.reason.startswith("OutOf") or member.reason in _REJECTION_REASONS:
        return f"{member.name} rejected{location} ({member.reason})"
    if member.exit_code is not None:
        return f"{_display_name(member)} failed (exit {member.exit_code})"
    if member.reason:
        return f"{_display_name(member)} failed{location} ({member.reason})"
    return f"{_display_name(member)} failed"
