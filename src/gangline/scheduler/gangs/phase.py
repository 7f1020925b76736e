"""The life cycle of a gang: Pending, Running, Recovering, Unschedulable. One probe makes at most one transition.

    (nothing)     -> Pending         T0  first look
    Pending       -> Running         T1  as many members run, or have succeeded, as it needs
    Pending       -> Recovering      T2  some run, and one failed, was turned away by a kubelet, or was deleted
    Running       -> Recovering      T3  fewer run than it needs
    Recovering    -> Running         T4  whole again
    Recovering    -> Unschedulable   T5  the missing ones exist again, some run, and there is no room for the rest
    Unschedulable -> Pending         T6  all that held a node when this phase began are gone: it starts again
    Unschedulable -> Running         T7  whole again

Nothing else ever happens. A gang of which nothing runs is Pending or Recovering, never Unschedulable. What counts is
`minMember`, and the minimum of each role where the group names one: members above it come and go without a transition,
a member that has succeeded is no loss, and a container restarted in place is not even seen.

A failed member, or one on its way out, counts as the reason until its replacement (same role and index) exists. Once
it is gone altogether and nobody replaced it, a gang in Recovering says NotEnoughTasks: the owner is to act.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from gangline.api.core import PodPhase
from gangline.api.scheduling import GroupPhase, GroupReason, PodGroupState, PodGroupStatus

HEARTBEAT = timedelta(seconds=30)
"""How often a state that does not change is stamped."""
_AGAIN = "all members deleted, group starts again"
_NAMED = 3
"""So many members are named in a message; the others are counted."""

# As text: members of an enum are slow to name, and there may be thousands of pods.
_RUNNING, _SUCCEEDED = PodPhase.RUNNING.value, PodPhase.SUCCEEDED.value
_IN_PLACE = (_RUNNING, _SUCCEEDED)
_BROKEN = (PodPhase.FAILED.value, PodPhase.UNKNOWN.value)
_REJECTIONS = frozenset(
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


class MemberFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a probe looks at of a pod that is there."""

    uid: str
    name: str
    role: str = ""
    # None: it has no number; then it is replaced once there are as many members as needed.
    index: int | None = None
    phase: str = PodPhase.PENDING.value
    # It has a deletion timestamp.
    deleting: bool = False
    node: str = ""
    # `status.reason`: the kubelet's word, or the evictor's.
    reason: str = ""
    exit_code: int | None = None
    # When the condition PodScheduled became True.
    scheduled_at: datetime | None = None


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """A member seen before that is gone, and not replaced."""

    name: str
    role: str = ""
    index: int | None = None
    # It was done when it went: still no loss.
    succeeded: bool = False


L = TypeVar("L", MemberFacts, Vanished)


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """The last try to place all missing members, on a fresh snapshot, the room of terminating pods counted as free.

    `failed`: there is no room. One that waits for its queue, or for others to leave, has not failed.
    """

    failed: bool
    message: str = ""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a gang."""

    state: PodGroupState
    # `spec.minMember` and `spec.minTaskMember`.
    least: int
    roles: Mapping[str, int] = {}
    members: tuple[MemberFacts, ...] = ()
    vanished: tuple[Vanished, ...] = ()
    attempt: Attempt | None = None
    # Running and succeeded members as last written: fewer now, and one is lost although nobody saw it go.
    was: int = 0
    now: datetime


def probe(seen: Probed) -> PodGroupState:
    """The state from now on; the very same value if nothing is to be written.

    Probe again at once if the phase has changed: the next transition may be due.
    """
    before = seen.state
    tally = _Tally.of(seen)
    stamp = _stamp(seen)
    phase, reason = _judge(seen, tally)
    again = (before.phase, phase) == (GroupPhase.UNSCHEDULABLE, GroupPhase.PENDING)
    message = _AGAIN if again else _message(seen, tally, reason)
    if phase != before.phase:
        return PodGroupState(
            phase=phase.value,
            last_probe_time=stamp,
            last_transition_time=stamp,
            reason=reason.value,
            message=message,
        )
    same = (before.reason, before.message) == (reason.value, message)
    last, since = before.last_probe_time, before.last_transition_time
    if same and last is not None and since is not None and stamp - last < HEARTBEAT:
        return before
    return msgspec.structs.replace(
        before,
        last_probe_time=stamp,
        last_transition_time=since or stamp,
        reason=reason.value,
        message=message,
    )


def counted(seen: Probed, state: PodGroupState) -> PodGroupStatus:
    """The whole status: the state with the older counters beside it."""
    tally = _Tally.of(seen)
    failed = sum(member.phase == PodPhase.FAILED for member in seen.members)
    return PodGroupStatus(state=state, running=tally.running, succeeded=tally.succeeded, failed=failed)


def _stamp(seen: Probed) -> datetime:
    """Now, in whole seconds; never before what is written already, even if the clock was set back."""
    written = (seen.state.last_probe_time, seen.state.last_transition_time)
    return max(time for time in (seen.now.replace(microsecond=0), *written) if time is not None)


class _Tally(msgspec.Struct, frozen=True):
    """Who runs, who is lost, who exists."""

    running: int
    succeeded: int
    # Live members: running, done, or still to start.
    exist: int
    # Of these, not on any node yet.
    homeless: int
    # Exceptions that nobody has replaced.
    failed: tuple[MemberFacts, ...]
    deleting: tuple[MemberFacts, ...]
    vanished: tuple[Vanished, ...]
    # In place and existing, by role; and whether these are enough.
    placed: Counter[str]
    there: Counter[str]
    healthy: bool
    complete: bool

    @classmethod
    def of(cls, seen: Probed) -> "_Tally":
        live = [member for member in seen.members if not _lost(member)]
        done = [gone for gone in seen.vanished if gone.succeeded]
        running = [member for member in live if member.phase == _RUNNING]
        succeeded = [member for member in live if member.phase == _SUCCEEDED]
        waiting = [member for member in live if member.phase not in _IN_PLACE]
        exist = len(live) + len(done)
        seats = {(member.role, member.index) for member in live}

        # Without an index nobody knows who replaced whom: as many are missed as are lacking, the last of them.
        lacking = max(seen.least - exist, 0)

        def missed(found: list[L], lacking: int) -> list[L]:
            nameless = [each for each in found if each.index is None]
            kept = {id(each) for each in nameless[max(len(nameless) - lacking, 0) :]}
            return [
                each
                for each in found
                if (id(each) in kept if each.index is None else (each.role, each.index) not in seats)
            ]

        lost = missed([member for member in seen.members if _lost(member)], lacking)
        lacking = max(lacking - sum(member.index is None for member in lost), 0)
        placed = Counter(member.role for member in (*running, *succeeded)) + Counter(
            gone.role for gone in done
        )
        there = placed + Counter(member.role for member in waiting)
        return cls(
            running=len(running),
            succeeded=len(succeeded) + len(done),
            exist=exist,
            homeless=sum(not member.node for member in waiting),
            failed=tuple(member for member in lost if member.phase in _BROKEN),
            deleting=tuple(member for member in lost if member.phase not in _BROKEN),
            vanished=tuple(missed([gone for gone in seen.vanished if not gone.succeeded], lacking)),
            placed=placed,
            there=there,
            healthy=placed.total() >= seen.least and _covers(placed, seen.roles),
            complete=exist >= seen.least and _covers(there, seen.roles),
        )

    @property
    def whole(self) -> int:
        return self.running + self.succeeded

    @property
    def losses(self) -> int:
        return len(self.failed) + len(self.deleting) + len(self.vanished)


def _covers(counts: Counter[str], roles: Mapping[str, int]) -> bool:
    return all(counts[role] >= least for role, least in roles.items())


def _lost(member: MemberFacts) -> bool:
    return member.phase in _BROKEN or (member.deleting and member.phase != _SUCCEEDED)


def _judge(seen: Probed, tally: _Tally) -> tuple[GroupPhase, GroupReason]:
    """The next phase, and its reason."""
    reason = _reason(seen, tally)
    if tally.healthy and seen.state.phase in list(GroupPhase):
        return GroupPhase.RUNNING, GroupReason.NONE
    match seen.state.phase:
        case GroupPhase.PENDING:
            breaks = tally.whole > 0 and tally.losses
            return (GroupPhase.RECOVERING if breaks else GroupPhase.PENDING), reason
        case GroupPhase.RUNNING:
            # Fewer than before, and nobody seen going: it went before we started, or was replaced before we looked.
            unseen = not tally.losses and tally.whole < seen.was
            return GroupPhase.RECOVERING, (GroupReason.POD_DELETED if unseen else reason)
        case GroupPhase.RECOVERING:
            if tally.complete and tally.homeless and tally.whole and _no_room(seen):
                return GroupPhase.UNSCHEDULABLE, GroupReason.NOT_ENOUGH_RESOURCES
            owed = not tally.complete and not tally.failed and not tally.deleting
            return GroupPhase.RECOVERING, (GroupReason.NOT_ENOUGH_TASKS if owed else reason)
        case GroupPhase.UNSCHEDULABLE:
            if any(_held(member, seen.state.last_transition_time) for member in seen.members):
                return GroupPhase.UNSCHEDULABLE, reason
            return GroupPhase.PENDING, GroupReason.POD_DELETED
        case _:
            return GroupPhase.PENDING, (GroupReason.NONE if tally.complete else GroupReason.NOT_ENOUGH_TASKS)


def _no_room(seen: Probed) -> bool:
    return seen.attempt is not None and seen.attempt.failed


def _held(member: MemberFacts, since: datetime | None) -> bool:
    """Whether it had a node when the phase began; if nobody knows when it got its node, it had."""
    return bool(member.node) and (
        member.scheduled_at is None or since is None or member.scheduled_at <= since
    )


def _reason(seen: Probed, tally: _Tally) -> GroupReason:
    """The first that holds."""
    if tally.failed:
        return GroupReason.POD_FAILED
    if tally.deleting or tally.vanished:
        return GroupReason.POD_DELETED
    if not tally.complete:
        return GroupReason.NOT_ENOUGH_TASKS
    if _no_room(seen):
        return GroupReason.NOT_ENOUGH_RESOURCES
    return GroupReason.NONE


def _message(seen: Probed, tally: _Tally, reason: GroupReason) -> str:
    """All counts, who is lost, and why there is no place."""
    parts = [f"{tally.running}/{seen.least} members running"]
    if tally.succeeded:
        parts.append(f"{tally.succeeded} succeeded")
    short = tally.placed if tally.complete else tally.there
    parts += [f"{role} {short[role]}/{least}" for role, least in seen.roles.items() if short[role] < least]
    lost = [_failure(member) for member in tally.failed]
    lost += [f"{_called(member)} deleted" for member in tally.deleting]
    lost += [f"{_called(gone)} deleted" for gone in tally.vanished]
    parts += lost[:_NAMED]
    if len(lost) > _NAMED:
        parts.append(f"{len(lost) - _NAMED} more lost")
    if reason is GroupReason.NOT_ENOUGH_TASKS:
        parts.append(f"{tally.exist} of {seen.least} exist")
    said = ", ".join(parts)
    if tally.healthy or seen.attempt is None or not seen.attempt.message:
        return said
    return f"{said}; {seen.attempt.message}"


def _called(member: MemberFacts | Vanished) -> str:
    return f"{member.role}-{member.index}" if member.role and member.index is not None else member.name


def _failure(member: MemberFacts) -> str:
    where = f" on {member.node}" if member.node else ""
    if member.phase == PodPhase.UNKNOWN:
        return f"{member.name} lost{where}"
    if member.reason.startswith("OutOf") or member.reason in _REJECTIONS:
        return f"{member.name} rejected{where} ({member.reason})"
    if member.exit_code is not None:
        return f"{_called(member)} failed (exit {member.exit_code})"
    if member.reason:
        return f"{_called(member)} failed{where} ({member.reason})"
    return f"{_called(member)} failed"
