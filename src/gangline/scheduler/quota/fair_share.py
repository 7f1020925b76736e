"""Deserved shares: weighted max-min fairness over the queues' requests, resource by resource. Exact integers."""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

import msgspec

from gangline.scheduler.types.cycle import QueueQuota
from gangline.scheduler.types.resources import PODS, Amounts


class QueueClaim(msgspec.Struct, frozen=True):
    """The most a queue may have of one resource, and its weight against others."""

    queue: str
    weight: int
    limit: int


def deserved_shares(
    shareable: Amounts, quotas: Iterable[QueueQuota], requests: Mapping[str, Amounts]
) -> dict[str, dict[str, int]]:
    """What each queue deserves of the shareable amounts, by resource.

    Every queue gets the same per weight, but none more than it requests or than its cap; what one leaves is shared by
    the others in the same way. Rounded down to whole units, so the sum never exceeds the total.
    """
    quotas = list(quotas)
    shares: dict[str, dict[str, int]] = {quota.name: {} for quota in quotas}
    for resource in shared_resources(requests):
        claims = [_queue_claim(quota, resource, requests.get(quota.name, {})) for quota in quotas]
        for queue, amount in _max_min_fill(shareable.get(resource, 0), claims).items():
            shares[queue][resource] = amount
    return shares


def contended_resources(
    shareable: Amounts, quotas: Iterable[QueueQuota], requests: Mapping[str, Amounts]
) -> frozenset[str]:
    """Resources of which the queues, each within its cap, request more than there is."""
    quotas = list(quotas)

    def total_limit(resource: str) -> int:
        return sum(_queue_claim(quota, resource, requests.get(quota.name, {})).limit for quota in quotas)

    return frozenset(
        resource for resource in shared_resources(requests) if total_limit(resource) > shareable.get(resource, 0)
    )


def shared_resources(requests: Mapping[str, Amounts]) -> list[str]:
    """The requested resources that queues compete for, sorted. Every member takes one of `pods`, so it is left out."""
    return sorted({name for amounts in requests.values() for name in amounts} - {PODS})


def dominant_share(allocated: Amounts, total: Amounts) -> float:
    """The largest fraction of any resource that is allocated (dominant resource fairness)."""
    return max_ratio(allocated, total, allocated.keys() - {PODS})


def max_ratio(held: Amounts, deserved: Amounts, among: Collection[str]) -> float:
    """The largest ratio of held to deserved. It is infinite for a resource of which nothing is deserved."""
    return max((_quotient(held.get(name, 0), deserved.get(name, 0)) for name in among), default=0.0)


def _quotient(held: int, deserved: int) -> float:
    if held <= 0:
        return 0.0
    return held / deserved if deserved > 0 else float("inf")


def _queue_claim(quota: QueueQuota, resource: str, request: Amounts) -> QueueClaim:
    requested = request.get(resource, 0)
    cap = quota.cap.get(resource)
    return QueueClaim(quota.name, max(1, quota.weight), requested if cap is None else min(requested, cap))


def _max_min_fill(shareable: int, claims: list[QueueClaim]) -> dict[str, int]:
    """Divide the amount: claims with the lowest limit per weight are filled first, the rest is shared by weight."""
    remaining, weight = max(0, shareable), sum(claim.weight for claim in claims)
    shares: dict[str, int] = {}
    for claim in sorted(claims, key=lambda claim: Fraction(claim.limit, claim.weight)):
        if claim.limit * weight > remaining * claim.weight:
            # From here on no claim is filled: all get the same per weight.
            unfilled = [other for other in claims if other.queue not in shares]
            return shares | {other.queue: remaining * other.weight // weight for other in unfilled}
        shares[claim.queue] = claim.limit
        remaining, weight = remaining - claim.limit, weight - claim.weight
    return shares
