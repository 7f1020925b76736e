"""The resources a gang request needs, and smaller requests derived from it."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.scheduler.types.cycle import GangRequest, PodSet
from gangline.scheduler.types.resources import Amounts


def requested_amounts(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """The resources that these pod sets need together."""
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        for name, amount in pod_set.shape.requests:
            total[name] = total.get(name, 0) + amount * pod_set.count
    return total


def member_count(request: GangRequest) -> int:
    return sum(pod_set.count for pod_set in request.pod_sets)


def missing_members_message(request: GangRequest) -> str:
    """How many members the gang lacks to reach its minimum; empty if enough of them exist."""
    count = member_count(request)
    if count < request.min_members:
        return f"{count} of {request.min_members} members exist"
    for role, minimum in sorted(request.min_by_role.items()):
        count = sum(pod_set.count for pod_set in request.pod_sets if pod_set.role == role)
        if count < minimum:
            return f"{count} of {minimum} members of role {role} exist"
    return ""


def resized_request(request: GangRequest, counts: Iterable[int]) -> GangRequest:
    """The request with these counts for its pod sets. A pod set with count 0 keeps its position."""
    pod_sets = tuple(
        PodSet(pod_set.role, pod_set.shape, count) for pod_set, count in zip(request.pod_sets, counts, strict=True)
    )
    return msgspec.structs.replace(request, pod_sets=pod_sets)


def minimal_request(request: GangRequest) -> GangRequest:
    """The request for the required members only: first what each role needs, then pod sets in order."""
    if request.min_members >= member_count(request):
        return request
    counts = [0] * len(request.pod_sets)
    missing = request.min_members
    for role, minimum in sorted(request.min_by_role.items()):
        missing -= _raise_counts(request, counts, minimum, role)
    _raise_counts(request, counts, missing)
    return resized_request(request, counts)


def request_within(request: GangRequest, limits: Mapping[str, int]) -> GangRequest | None:
    """The request for as many members as the limits allow; None if they do not allow the required members.

    A resource that `limits` does not name is not limited.
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
    """How often the amounts go into the limits; 2^60 if the limits do not name any of their resources."""
    return min(
        (max(0, limits[name]) // amount for name, amount in amounts.items() if amount and name in limits),
        default=1 << 60,
    )


def _raise_counts(request: GangRequest, counts: list[int], count: int, role: str | None = None) -> int:
    """Raise the counts by up to `count` members, of one role or of any. Returns how many were added."""
    added = 0
    for index, pod_set in enumerate(request.pod_sets):
        if role is None or pod_set.role == role:
            added_count = min(max(0, count - added), pod_set.count - counts[index])
            counts[index] += added_count
            added += added_count
    return added
