"""Timeouts of gangs: starts left half bound, and gangs that were never placed. Decisions only.

A start is left half bound when some members have nodes and the others cannot get theirs any more, because calls failed
or another scheduler took the room. As we caused that state, we roll it back when the PodGroup's timeout is over.

A gang that has started may be left with a member pinned to a node whose room another scheduler took. A pin cannot be
taken back, so that member alone is evicted: its owner creates another pod, which is placed again.
"""

from datetime import datetime, timedelta

from gangline.api.scheduling import PodGroupPhase
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import GangMember
from gangline.scheduler.gangs.phase import FAILED_PHASES

MISSING_GROUP_DELAY = timedelta(seconds=10)
"""After this long, pods that name a PodGroup which does not exist get a warning Event."""
PIN_REJECTED_TIMEOUT = timedelta(seconds=10)
"""For this long another scheduler may report that a pinned node has no room. Its view may be behind ours, and it
retries within that time."""


def start_timeout(gang: GangInfo, default: timedelta) -> timedelta:
    """How long the start of a gang may take."""
    seconds = gang.spec.timeout_seconds
    return default if seconds is None else timedelta(seconds=seconds)


def is_half_bound(gang: GangInfo) -> bool:
    """Whether the start has begun and is not complete: members are placed, but fewer than required are bound.

    False if a member was lost: its owner has to replace it first.
    """
    if gang.is_single_pod or gang.pod_group is None or gang.state.phase not in ("", PodGroupPhase.PENDING):
        return False
    if any(not lost.succeeded for lost in gang.members.lost.values()):
        return False
    bound_count = placed_count = 0
    for member in gang.members.by_uid.values():
        status = member.status
        if status.deleting or status.phase in FAILED_PHASES:
            return False
        bound_count += bool(status.node)
        placed_count += member.is_placed
    return placed_count > 0 and bound_count < gang.spec.min_members


def rollback_at(gang: GangInfo, default: timedelta) -> datetime | None:
    """When the start is rolled back if it is still incomplete; None if there is nothing to roll back.

    Counted from the last progress: the last binding, the last decision, or the creation of a member that still waits.
    So a replacement, or a start that another scheduler began before us, has its time however long the others have been
    there; and a large gang has time as long as it makes progress.
    """
    if not is_half_bound(gang):
        return _pin_rollback_at(gang, default)
    times = [member.status.scheduled_at for member in gang.members.by_uid.values() if member.status.scheduled_at]
    if times:
        created = (member.pod.metadata.creation_timestamp for member in gang.members.unplaced())
        times += [time for time in created if time is not None]
    if gang.progress.placed_at is not None:
        times.append(gang.progress.placed_at)
    if gang.progress.rolled_back_at is not None:
        # An eviction was refused: the next attempt is after another timeout.
        times.append(gang.progress.rolled_back_at)
    return max(times) + start_timeout(gang, default) if times else None


def unbound_pins(gang: GangInfo) -> list[GangMember]:
    """Pinned members that are not bound, of a gang that has started."""
    if gang.is_single_pod or gang.pod_group is None or gang.state.phase in ("", PodGroupPhase.PENDING):
        return []
    return [member for member in gang.members.by_uid.values() if member.is_pinned]


def _pin_rollback_at(gang: GangInfo, default: timedelta) -> datetime | None:
    """Soon if the other scheduler reports no room, else when the PodGroup's timeout is over.

    When an earlier instance of ours made a pin is unknown: without a report the pod keeps its time.
    """
    members = unbound_pins(gang)
    rejected = [member for member in members if member.pin_rejected]
    since = gang.progress.placed_at
    if since is None and rejected:
        since = max(member.pod.metadata.creation_timestamp or gang.created for member in rejected)
    if since is None or not members:
        return None
    limit = start_timeout(gang, default)
    if gang.progress.rolled_back_at is not None:
        # An eviction was refused: the next attempt is after another timeout.
        since = max(since, gang.progress.rolled_back_at)
    return since + (min(limit, PIN_REJECTED_TIMEOUT) if rejected else limit)


def members_to_evict(gang: GangInfo, scheduler: str) -> list[GangMember]:
    """The members that a rollback evicts.

    Of a half-bound start: all placed members that are ours to bind, or were pinned by us. Of a started gang: pinned
    members whose own scheduler reports no room; without such a report all that are not bound.
    """
    if not is_half_bound(gang):
        members = unbound_pins(gang)
        return [member for member in members if member.pin_rejected] or members
    return [
        member
        for member in gang.members.placed()
        if member.pod.spec.scheduler_name == scheduler or not member.status.node
    ]


def rollback_message(gang: GangInfo, count: int, limit: timedelta) -> str:
    """Event text for a rollback that evicts `count` members. Call before evicting: it reads the members' state."""
    if is_half_bound(gang):
        # A member that is only pinned has no node yet.
        count -= sum(member.is_pinned for member in gang.members.by_uid.values())
        return (
            f"only {max(count, 0)} of {gang.spec.min_members} members could be placed in {limit.total_seconds():g} s;"
            " they are evicted, so that others can start"
        )
    members = "1 member was" if count == 1 else f"{count} members were"
    return (
        f"{members} not bound to the chosen node, because another scheduler took its room; evicted, to be created"
        " again and placed anew"
    )


def timeout_warning_at(gang: GangInfo, default: timedelta) -> datetime | None:
    """When to warn that the gang still waits; None if it does not wait."""
    if gang.pod_group is None and not gang.is_single_pod:
        return gang.created + MISSING_GROUP_DELAY if any(member.mode for member in gang.members.unplaced()) else None
    if gang.pod_group is None or gang.state.phase not in ("", PodGroupPhase.PENDING):
        return None
    if gang.progress.pending is None and len(gang.members.placed_roles()) >= gang.spec.min_members:
        # All members have their nodes, and only have to start.
        return None
    since = max(gang.created, gang.state.last_transition_time or gang.created)
    return since + start_timeout(gang, default)
