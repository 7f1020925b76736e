"""Which gangs have waited too long: those left half bound, and those that never got a place. Decisions only.

A start may be left half bound: some members have their nodes, and the others cannot get theirs any more because calls
failed or somebody else was faster. As we made that state, we undo it when the group's time is over.

A gang that has started may be left with a member that was pinned to a node where somebody else was faster. A pin cannot
be taken back, so that member alone is asked to leave: its owner makes another, which is placed anew.
"""

from datetime import datetime, timedelta

from gangline.api.core import PodPhase
from gangline.api.scheduling import GroupPhase
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.member import Member

MISSING = timedelta(seconds=10)
"""After so long, pods that name a group which does not exist are told so."""
SPURNED = timedelta(seconds=10)
"""For so long a scheduler may say that there is no room where we told a pod to go. It may be behind what we know, and
tries again within that time."""

# As text: members of an enum are slow to name, and there may be thousands of pods.
_LOST = (PodPhase.FAILED.value, PodPhase.UNKNOWN.value)


def patience(gang: Gang, default: timedelta) -> timedelta:
    """How long its start may take."""
    seconds = gang.terms.timeout
    return default if seconds is None else timedelta(seconds=seconds)


def half_bound(gang: Gang) -> bool:
    """Whether its start has begun and is not complete: places are taken, and fewer members have theirs than it needs.

    With a member lost it is another matter: the owner is to replace it.
    """
    if gang.alone or gang.group is None or gang.state.phase not in ("", GroupPhase.PENDING):
        return False
    if any(not gone.succeeded for gone in gang.vanished.values()):
        return False
    there = holding = 0
    for member in gang.members.values():
        facts = member.facts
        if facts.deleting or facts.phase in _LOST:
            return False
        there += bool(facts.node)
        holding += member.holds
    return holding > 0 and there < gang.terms.least


def undo_at(gang: Gang, default: timedelta) -> datetime | None:
    """When places are to be given up that are not reached by then; None: there is nothing to undo.

    Counted from the last step ahead: the last binding, the last decision, or the making of a member that still waits.
    So a replacement has its time, and a start that another scheduler began before us, however long the others have been
    there; and a large gang has time as long as it gets on.
    """
    if not half_bound(gang):
        return _stranded_at(gang, default)
    steps = [member.facts.scheduled_at for member in gang.members.values() if member.facts.scheduled_at]
    if steps:
        steps += [
            made for member in gang.homeless() if (made := member.pod.metadata.creation_timestamp) is not None
        ]
    if gang.decided is not None:
        steps.append(gang.decided)
    if gang.undone_at is not None:
        # Somebody refused to leave: not again before as much time has passed.
        steps.append(gang.undone_at)
    return max(steps) + patience(gang, default) if steps else None


def stranded(gang: Gang) -> list[Member]:
    """Members of a gang that has started which were pinned and are not bound."""
    if gang.alone or gang.group is None or gang.state.phase in ("", GroupPhase.PENDING):
        return []
    return [member for member in gang.members.values() if member.pinned]


def _stranded_at(gang: Gang, default: timedelta) -> datetime | None:
    """Soon if a scheduler says that there is no room, else when the group's time is over.

    When a pin of somebody before us was made is not known. If its scheduler is silent too, it has its time.
    """
    members = stranded(gang)
    spurned = [member for member in members if member.spurned]
    began = gang.decided
    if began is None and spurned:
        began = max(member.pod.metadata.creation_timestamp or gang.created for member in spurned)
    if began is None or not members:
        return None
    limit = patience(gang, default)
    if gang.undone_at is not None:
        # Somebody did not leave: not again before as much time has passed.
        began = max(began, gang.undone_at)
    return began + (min(limit, SPURNED) if spurned else limit)


def undone(gang: Gang, scheduler: str) -> list[Member]:
    """Who is to give up its place.

    Of a start, whom we placed: all that have a place and are ours, or were pinned by us. Of a gang that has started,
    those whose own scheduler says that there is no room for them; if it says nothing, all that it did not bind.
    """
    if not half_bound(gang):
        members = stranded(gang)
        return [member for member in members if member.spurned] or members
    return [
        member
        for member in gang.holders()
        if member.pod.spec.scheduler_name == scheduler or not member.facts.node
    ]


def why_undone(gang: Gang, count: int, limit: timedelta) -> str:
    """What its owner is told when so many members are asked to leave. To be asked for before they are."""
    if half_bound(gang):
        # Who was only told where to go has no place.
        count -= sum(member.pinned for member in gang.members.values())
        return (
            f"only {max(count, 0)} of {gang.terms.least} members could be placed in {limit.total_seconds():g} s;"
            " they are asked to leave, so that others can start"
        )
    members = "1 member was" if count == 1 else f"{count} members were"
    return (
        f"{members} not bound to the node that was chosen: somebody else was faster; asked to leave, to be made"
        " again and placed anew"
    )


def late_at(gang: Gang, default: timedelta) -> datetime | None:
    """When its owner is to be told that it still waits; None: it does not wait."""
    if gang.group is None and not gang.alone:
        return gang.created + MISSING if any(member.mode for member in gang.homeless()) else None
    if gang.group is None or gang.state.phase not in ("", GroupPhase.PENDING):
        return None
    if gang.wait is None and len(gang.placed()) >= gang.terms.least:
        # All have their places: it only starts.
        return None
    began = max(gang.created, gang.state.last_transition_time or gang.created)
    return began + patience(gang, default)
