"""Who deserves how much: weighted max-min over what the queues ask for, resource by resource. Exact integers."""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

import msgspec

from gangline.scheduler.types.cycle import QueueQuota
from gangline.scheduler.types.resources import PODS, Amounts


class QueueClaim(msgspec.Struct, frozen=True):
    """What one queue may have of one resource at most, and how much it weighs against others."""

    queue: str
    weight: int
    limit: int


def deserved_shares(
    pot: Amounts, rules: Iterable[QueueQuota], requests: Mapping[str, Amounts]
) -> dict[str, dict[str, int]]:
    """What each queue deserves of the pot, by resource.

    Every queue gets the same per weight, but none more than it requests or than its cap; what one leaves, the
    others share in the same way. Rounded down to whole units, so the sum never exceeds the pot.
    """
    rules = list(rules)
    shares: dict[str, dict[str, int]] = {rule.name: {} for rule in rules}
    for resource in shared_resources(requests):
        claims = [_queue_claim(rule, resource, requests.get(rule.name, {})) for rule in rules]
        for queue, amount in _max_min_fill(pot.get(resource, 0), claims).items():
            shares[queue][resource] = amount
    return shares


def contended_resources(pot: Amounts, rules: Iterable[QueueQuota], requests: Mapping[str, Amounts]) -> frozenset[str]:
    """The resources of which the queues, each within its cap, ask for more than there is."""
    rules = list(rules)

    def wanted(resource: str) -> int:
        return sum(_queue_claim(rule, resource, requests.get(rule.name, {})).limit for rule in rules)

    return frozenset(resource for resource in shared_resources(requests) if wanted(resource) > pot.get(resource, 0))


def shared_resources(requests: Mapping[str, Amounts]) -> list[str]:
    """The requested resources that queues compete for, sorted. Every member takes one of `pods`, so it is left out."""
    return sorted({name for amounts in requests.values() for name in amounts} - {PODS})


def dominant_share(allocated: Amounts, total: Amounts) -> float:
    """The largest part of any resource that is held (dominant resource fairness)."""
    return max_ratio(allocated, total, allocated.keys() - {PODS})


def max_ratio(held: Amounts, due: Amounts, among: Collection[str]) -> float:
    """The largest quotient of held and due. Holding what is not due at all is without bound."""
    return max((_quotient(held.get(name, 0), due.get(name, 0)) for name in among), default=0.0)


def _quotient(held: int, due: int) -> float:
    if held <= 0:
        return 0.0
    return held / due if due > 0 else float("inf")


def _queue_claim(rule: QueueQuota, resource: str, request: Amounts) -> QueueClaim:
    wanted = request.get(resource, 0)
    cap = rule.cap.get(resource)
    return QueueClaim(rule.name, max(1, rule.weight), wanted if cap is None else min(wanted, cap))


def _max_min_fill(pot: int, claims: list[QueueClaim]) -> dict[str, int]:
    """Pour the pot: those whose limit is lowest per weight are full first, the rest share what is left by weight."""
    left, weight = max(0, pot), sum(claim.weight for claim in claims)
    given: dict[str, int] = {}
    for claim in sorted(claims, key=lambda claim: Fraction(claim.limit, claim.weight)):
        if claim.limit * weight > left * claim.weight:
            # From here on nobody is full: the level is the same for all of them.
            rest = [other for other in claims if other.queue not in given]
            return given | {other.queue: left * other.weight // weight for other in rest}
        given[claim.queue] = claim.limit
        left, weight = left - claim.limit, weight - claim.weight
    return given
