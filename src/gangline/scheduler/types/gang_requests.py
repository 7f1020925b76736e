"""What an ask comes to in amounts, and how to ask for less of it."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.scheduler.types.cycle import GangRequest, PodSet
from gangline.scheduler.types.resources import Amounts


def requested_amounts(needs: Iterable[PodSet]) -> dict[str, int]:
    """What all these members need together, by resource."""
    total: dict[str, int] = {}
    for need in needs:
        for name, amount in need.shape.requests:
            total[name] = total.get(name, 0) + amount * need.count
    return total


def member_count(ask: GangRequest) -> int:
    return sum(need.count for need in ask.pod_sets)


def missing_members_message(ask: GangRequest) -> str:
    """Which members do not exist yet that the gang needs at least; empty if none."""
    count = member_count(ask)
    if count < ask.min_members:
        return f"{count} of {ask.min_members} members exist"
    for role, least in sorted(ask.min_by_role.items()):
        count = sum(need.count for need in ask.pod_sets if need.role == role)
        if count < least:
            return f"{count} of {least} members of role {role} exist"
    return ""


def resized_request(ask: GangRequest, counts: Iterable[int]) -> GangRequest:
    """The same ask for fewer members. Needs stay where they are, also when nothing of one is left."""
    needs = tuple(PodSet(need.role, need.shape, count) for need, count in zip(ask.pod_sets, counts, strict=True))
    return msgspec.structs.replace(ask, pod_sets=needs)


def minimal_request(ask: GangRequest) -> GangRequest:
    """The ask without members it can do without: what each role needs, then the others in their order."""
    if ask.min_members >= member_count(ask):
        return ask
    counts = [0] * len(ask.pod_sets)
    missing = ask.min_members
    for role, least in sorted(ask.min_by_role.items()):
        missing -= _raise_counts(ask, counts, least, role)
    _raise_counts(ask, counts, missing)
    return resized_request(ask, counts)


def request_within(ask: GangRequest, room: Mapping[str, int]) -> GangRequest | None:
    """As many of its members as these amounts allow; None: not even those it needs at least.

    `room` need not name every resource: what it does not name is without limit.
    """
    if not room or _fits_within(ask, room):
        return ask
    smallest = minimal_request(ask)
    if not _fits_within(smallest, room):
        return None
    counts = [need.count for need in smallest.pod_sets]
    left = {name: amount - requested_amounts(smallest.pod_sets).get(name, 0) for name, amount in room.items()}
    for number, need in enumerate(ask.pod_sets):
        more = min(need.count - counts[number], _max_multiples(need.shape.amounts, left))
        counts[number] += more
        left = {name: amount - more * need.shape.amounts.get(name, 0) for name, amount in left.items()}
    return resized_request(ask, counts)


def _fits_within(ask: GangRequest, room: Mapping[str, int]) -> bool:
    needed = requested_amounts(ask.pod_sets)
    return all(needed.get(name, 0) <= amount for name, amount in room.items())


def _max_multiples(amounts: Amounts, room: Mapping[str, int]) -> int:
    """How often these amounts go into the room. A number nobody reaches if the room does not limit them."""
    return min(
        (max(0, room[name]) // amount for name, amount in amounts.items() if amount and name in room),
        default=1 << 60,
    )


def _raise_counts(ask: GangRequest, counts: list[int], wanted: int, role: str | None = None) -> int:
    """Raise counts until so many more are asked for, of one role or of any; how many there were."""
    added = 0
    for number, need in enumerate(ask.pod_sets):
        if role is None or need.role == role:
            more = min(max(0, wanted - added), need.count - counts[number])
            counts[number] += more
            added += more
    return added
