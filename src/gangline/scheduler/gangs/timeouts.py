"""Which gangs have waited too long: those left half bound, and those that never got a place. Decisions only.

A start may be left half bound: some members have their nodes, and the others cannot get theirs any more because calls
failed or somebody else was faster. As we made that state, we undo it when the group's time is over.

A gang that has started may be left with a member that was pinned to a node where somebody else was faster. A pin cannot
be taken back, so that member alone is asked to leave: its owner makes another, which is placed anew.
"""

from datetime import datetime, timedelta

from gangline.api.scheduling import PodGroupPhase
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import GangMember
from gangline.scheduler.gangs.phase import FAILED_PHASES

MISSING_GROUP_DELAY = timedelta(seconds=10)
"""After so long, pods that name a group which does not exist are told so."""
PIN_REJECTED_TIMEOUT = timedelta(seconds=10)
"""For so long a scheduler may say that there is no room where we told a pod to go. It may be behind what we know, and
tries again within that time."""


def start_timeout(gang: GangInfo, default: timedelta) -> timedelta:
    """How long its start may take."""
    seconds = gang.spec.timeout_seconds
    return default if seconds is None else timedelta(seconds=seconds)


def is_half_bound(gang: GangInfo) -> bool:
    """Whether its start has begun and is not complete: places are taken, and fewer members have theirs than it needs.

    With a member lost it is another matter: the owner is to replace it.
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
    """When places are to be given up that are not reached by then; None: there is nothing to undo.

    Counted from the last step ahead: the last binding, the last decision, or the making of a member that still waits.
    So a replacement has its time, and a start that another scheduler began before us, however long the others have been
    there; and a large gang has time as long as it gets on.
    """
    if not is_half_bound(gang):
        return _pin_rollback_at(gang, default)
    progress_times = [
        member.status.scheduled_at for member in gang.members.by_uid.values() if member.status.scheduled_at
    ]
    if progress_times:
        progress_times += [
            created
            for member in gang.members.unplaced()
            if (created := member.pod.metadata.creation_timestamp) is not None
        ]
    if gang.progress.placed_at is not None:
        progress_times.append(gang.progress.placed_at)
    if gang.progress.rolled_back_at is not None:
        # Somebody refused to leave: not again before as much time has passed.
        progress_times.append(gang.progress.rolled_back_at)
    return max(progress_times) + start_timeout(gang, default) if progress_times else None


def unbound_pins(gang: GangInfo) -> list[GangMember]:
    """Members of a gang that has started which were pinned and are not bound."""
    if gang.is_single_pod or gang.pod_group is None or gang.state.phase in ("", PodGroupPhase.PENDING):
        return []
    return [member for member in gang.members.by_uid.values() if member.is_pinned]


def _pin_rollback_at(gang: GangInfo, default: timedelta) -> datetime | None:
    """Soon if a scheduler says that there is no room, else when the group's time is over.

    When a pin of somebody before us was made is not known. If its scheduler is silent too, it has its time.
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
        # Somebody did not leave: not again before as much time has passed.
        since = max(since, gang.progress.rolled_back_at)
    return since + (min(limit, PIN_REJECTED_TIMEOUT) if rejected else limit)


def members_to_evict(gang: GangInfo, scheduler: str) -> list[GangMember]:
    """Who is to give up its place.

    Of a start, whom we placed: all that have a place and are ours, or were pinned by us. Of a gang that has started,
    those whose own scheduler says that there is no room for them; if it says nothing, all that it did not bind.
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
    """What its owner is told when so many members are asked to leave. To be asked for before they are."""
    if is_half_bound(gang):
        # Who was only told where to go has no place.
        count -= sum(member.is_pinned for member in gang.members.by_uid.values())
        return (
            f"only {max(count, 0)} of {gang.spec.min_members} members could be placed in {limit.total_seconds():g} s;"
            " they are asked to leave, so that others can start"
        )
    members = "1 member was" if count == 1 else f"{count} members were"
    return (
        f"{members} not bound to the node that was chosen: somebody else was faster; asked to leave, to be made"
        " again and placed anew"
    )


def timeout_warning_at(gang: GangInfo, default: timedelta) -> datetime | None:
    """When its owner is to be told that it still waits; None: it does not wait."""
    if gang.pod_group is None and not gang.is_single_pod:
        return gang.created + MISSING_GROUP_DELAY if any(member.mode for member in gang.members.unplaced()) else None
    if gang.pod_group is None or gang.state.phase not in ("", PodGroupPhase.PENDING):
        return None
    if gang.progress.pending is None and len(gang.members.placed_roles()) >= gang.spec.min_members:
        # All have their places: it only starts.
        return None
    since = max(gang.created, gang.state.last_transition_time or gang.created)
    return since + start_timeout(gang, default)
