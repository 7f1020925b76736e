"""What an ask comes to in amounts, and how to ask for less of it."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.scheduler.types.cycle import GangRequest, PodSet
from gangline.scheduler.types.resources import Amounts


def requested_amounts(needs: Iterable[PodSet]) -> dict[str, int]:
    """What all these members need together, by resource."""
    total: dict[str, int] = {}
    for pod_set in needs:
        for name, amount in pod_set.shape.requests:
            total[name] = total.get(name, 0) + amount * pod_set.count
    return total


def member_count(request: GangRequest) -> int:
    return sum(pod_set.count for pod_set in request.pod_sets)


def missing_members_message(request: GangRequest) -> str:
    """Which members do not exist yet that the gang needs at least; empty if none."""
    count = member_count(request)
    if count < request.min_members:
        return f"{count} of {request.min_members} members exist"
    for role, minimum in sorted(request.min_by_role.items()):
        count = sum(pod_set.count for pod_set in request.pod_sets if pod_set.role == role)
        if count < minimum:
            return f"{count} of {minimum} members of role {role} exist"
    return ""


def resized_request(request: GangRequest, counts: Iterable[int]) -> GangRequest:
    """The same ask for fewer members. Needs stay where they are, also when nothing of one is left."""
    needs = tuple(
        PodSet(pod_set.role, pod_set.shape, count) for pod_set, count in zip(request.pod_sets, counts, strict=True)
    )
    return msgspec.structs.replace(request, pod_sets=needs)


def minimal_request(request: GangRequest) -> GangRequest:
    """The ask without members it can do without: what each role needs, then the others in their order."""
    if request.min_members >= member_count(request):
        return request
    counts = [0] * len(request.pod_sets)
    missing = request.min_members
    for role, minimum in sorted(request.min_by_role.items()):
        missing -= _raise_counts(request, counts, minimum, role)
    _raise_counts(request, counts, missing)
    return resized_request(request, counts)


def request_within(request: GangRequest, limits: Mapping[str, int]) -> GangRequest | None:
    """As many of its members as these amounts allow; None: not even those it needs at least.

    `room` need not name every resource: what it does not name is without limit.
    """
    if not limits or _fits_within(request, limits):
        return request
    minimal = minimal_request(request)
    if not _fits_within(minimal, limits):
        return None
    counts = [pod_set.count for pod_set in minimal.pod_sets]
    remaining = {name: amount - requested_amounts(minimal.pod_sets).get(name, 0) for name, amount in limits.items()}
    for index, pod_set in enumerate(request.pod_sets):
        added_count = min(pod_set.count - counts[index], _max_multiples(pod_set.shape.amounts, remaining))
        counts[index] += added_count
        remaining = {
            name: amount - added_count * pod_set.shape.amounts.get(name, 0) for name, amount in remaining.items()
        }
    return resized_request(request, counts)


def _fits_within(request: GangRequest, limits: Mapping[str, int]) -> bool:
    needed = requested_amounts(request.pod_sets)
    return all(needed.get(name, 0) <= amount for name, amount in limits.items())


def _max_multiples(amounts: Amounts, limits: Mapping[str, int]) -> int:
    """How often these amounts go into the room. A number nobody reaches if the room does not limit them."""
    return min(
        (max(0, limits[name]) // amount for name, amount in amounts.items() if amount and name in limits),
        default=1 << 60,
    )


def _raise_counts(request: GangRequest, counts: list[int], count: int, role: str | None = None) -> int:
    """Raise counts until so many more are asked for, of one role or of any; how many there were."""
    added = 0
    for index, pod_set in enumerate(request.pod_sets):
        if role is None or pod_set.role == role:
            added_count = min(max(0, count - added), pod_set.count - counts[index])
            counts[index] += added_count
            added += added_count
    return added
