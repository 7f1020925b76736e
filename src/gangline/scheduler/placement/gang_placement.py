"""Places a gang on a snapshot: all required members or none."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

import msgspec
import numpy as np

from gangline.scheduler.filters.fit import ShapeFit, reason_histogram
from gangline.scheduler.filters.pod_constraints import must_follow_others
from gangline.scheduler.filters.prefilter import prefilter_shortage
from gangline.scheduler.filters.scoring import NO_NODES
from gangline.scheduler.placement.topology import ALL_NODES, MAX_DOMAINS, Domain, affinity_group, candidate_domains
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import GangRequest, Placement, Shortage, Vector
from gangline.scheduler.types.gang_requests import member_count
from gangline.scheduler.types.reasons import nodes_message

MAX_ORDERS = 6
"""In how many orders the pod sets of a gang are tried before it counts as not fitting."""


class DomainPlacement(msgspec.Struct, frozen=True):
    """The nodes found for every pod set within a domain, and whether these are enough."""

    nodes: tuple[Vector, ...]
    domain: Domain
    is_sufficient: bool

    @property
    def pod_count(self) -> int:
        return sum(map(len, self.nodes))

    def count_of_role(self, request: GangRequest, role: str) -> int:
        """How many members of a role are placed."""
        return sum(
            len(nodes) for pod_set, nodes in zip(request.pod_sets, self.nodes, strict=True) if pod_set.role == role
        )


def gang_placement(snapshot: ClusterSnapshot, request: GangRequest) -> Placement | Shortage:
    """A placement of the required members and as many others as fit, or why there is none."""
    if problem := prefilter_shortage(snapshot, request):
        return problem
    best = _best_placement(snapshot, request)
    if best.is_sufficient and (best.pod_count or not member_count(request)):
        return Placement(best.nodes)
    return _shortage(snapshot, request, best)


def best_effort_placement(snapshot: ClusterSnapshot, request: GangRequest) -> Placement:
    """A placement of as many members as fit, enough or not."""
    if prefilter_shortage(snapshot, request):
        return Placement(tuple(NO_NODES for _ in request.pod_sets))
    return Placement(_best_placement(snapshot, request).nodes)


def _best_placement(snapshot: ClusterSnapshot, request: GangRequest) -> DomainPlacement:
    """The first sufficient placement; else the one with the most members."""
    best = _first_sufficient(
        _domain_placement(snapshot, request, each) for each in candidate_domains(snapshot, request)
    )
    if best.is_sufficient:
        return best
    by_affinity = _placement_by_affinity(snapshot, request)
    return by_affinity if by_affinity is not None and by_affinity.is_sufficient else best


def _first_sufficient(placements: Iterable[DomainPlacement]) -> DomainPlacement:
    """The first sufficient placement; else the first with the most members. There must be one."""
    best: DomainPlacement | None = None
    for placement in placements:
        if placement.is_sufficient:
            return placement
        if best is None or placement.pod_count > best.pod_count:
            best = placement
    assert best is not None
    return best


def _placement_by_affinity(snapshot: ClusterSnapshot, request: GangRequest) -> DomainPlacement | None:
    """Place pods with required pod affinity to other members of the gang.

    Per domain: one target pod, then as many dependants as fit. None if no member has such affinity, or a topology is
    required.
    """
    if request.topology is not None and request.topology.required:
        return None
    key, group = affinity_group(snapshot, request)
    followers = [index for index in sorted(group) if must_follow_others(snapshot, request.pod_sets[index].shape)]
    leaders = [index for index in sorted(group) if index not in followers]
    if not followers or not leaders:
        return None
    nodes = [NO_NODES for _ in request.pod_sets]
    for domain in _roomiest_domains(snapshot, request, key, followers):
        attempt, attempt_nodes = snapshot.copy(), nodes.copy()
        _place_missing(attempt, request, leaders, domain, attempt_nodes, limit=1)
        if _place_missing(attempt, request, followers, domain, attempt_nodes):
            snapshot, nodes = attempt, attempt_nodes
        if all(len(nodes[index]) == request.pod_sets[index].count for index in followers):
            break
    snapshot = snapshot.copy()
    _place_missing(snapshot, request, range(len(request.pod_sets)), ALL_NODES, nodes)
    return _checked_placement(request, ALL_NODES, tuple(nodes))


def _roomiest_domains(
    snapshot: ClusterSnapshot, request: GangRequest, key: str, followers: Sequence[int]
) -> list[Domain]:
    """The domains with most room for these pod sets, disregarding their affinity."""
    column = snapshot.nodes.label_column(key)
    room = np.zeros(column.size, dtype=np.int64)
    labelled = column.codes >= 0
    for index in followers:
        pod_set = request.pod_sets[index]
        capacity = np.minimum(ShapeFit(snapshot, pod_set.shape).capacity(check_affinity=False), pod_set.count)
        room += np.bincount(column.codes[labelled], weights=capacity[labelled], minlength=column.size).astype(np.int64)
    order = np.lexsort((np.arange(column.size), -room))[:MAX_DOMAINS]
    return [Domain(mask=column.codes == code, name=column.values[code]) for code in order.tolist() if room[code]]


def _place_missing(
    snapshot: ClusterSnapshot,
    request: GangRequest,
    indices: Iterable[int],
    domain: Domain,
    placed_nodes: list[Vector],
    limit: int = 1 << 30,
) -> int:
    """Assume the missing pods of these pod sets, up to a limit. Returns how many were placed."""
    placed = 0
    for index in indices:
        missing = min(request.pod_sets[index].count - len(placed_nodes[index]), limit - placed)
        nodes = _assume_pods(snapshot, request, index, missing, domain)
        placed_nodes[index] = np.concatenate((placed_nodes[index], nodes))
        placed += len(nodes)
    return placed


def _domain_placement(snapshot: ClusterSnapshot, request: GangRequest, domain: Domain) -> DomainPlacement:
    if len(request.pod_sets) == 1:
        nodes = _pod_set_fit(snapshot, request, 0, domain).choose_nodes(request.pod_sets[0].count, domain.node_ranks)
        return _checked_placement(request, domain, (nodes,))
    return _first_sufficient(
        _checked_placement(
            request, domain, _nodes_in_order(snapshot, request, domain, order, minimum_first=minimum_first)
        )
        for order, minimum_first in _pod_set_orders(snapshot, request, domain)
    )


def _pod_set_orders(
    snapshot: ClusterSnapshot, request: GangRequest, domain: Domain
) -> Iterator[tuple[Sequence[int], bool]]:
    """The orders of pod sets to try, the scarcest first: greedily, then with the minimum of every role first."""
    scarcest = sorted(range(len(request.pod_sets)), key=lambda index: _abundance(snapshot, request, index, domain))
    # Pod sets with affinity to other members come after those.
    scarcest.sort(key=lambda index: must_follow_others(snapshot, request.pod_sets[index].shape))
    yield scarcest, False
    # Where every member has its own shape, there are many orders and all are alike.
    for order in islice(permutations(scarcest), MAX_ORDERS if len(scarcest) <= MAX_ORDERS else 1):
        yield order, True


def _abundance(
    snapshot: ClusterSnapshot, request: GangRequest, index: int, domain: Domain
) -> tuple[float, str, tuple[tuple[str, int], ...]]:
    pod_set = request.pod_sets[index]
    total = float(_pod_set_fit(snapshot, request, index, domain).capacity().sum())
    return total / max(pod_set.count, 1), pod_set.role, pod_set.shape.requests


def _pod_set_fit(snapshot: ClusterSnapshot, request: GangRequest, index: int, domain: Domain) -> ShapeFit:
    mask = domain.mask if domain.applies_to(index) else None
    return ShapeFit(snapshot, request.pod_sets[index].shape, mask, domain.key if mask is not None else "")


def _nodes_in_order(
    snapshot: ClusterSnapshot, request: GangRequest, domain: Domain, order: Sequence[int], *, minimum_first: bool
) -> tuple[Vector, ...]:
    """Place one pod set after the other.

    `minimum_first`: first the minimum of every role; then the rest, the most abundant first.
    """
    snapshot = snapshot.copy()
    nodes = [NO_NODES for _ in request.pod_sets]
    owed_by_role = dict(request.min_by_role)
    if minimum_first:
        for index in order:
            pod_set = request.pod_sets[index]
            count = min(pod_set.count, owed_by_role.get(pod_set.role, 0))
            nodes[index] = _assume_pods(snapshot, request, index, count, domain)
            owed_by_role[pod_set.role] = owed_by_role.get(pod_set.role, 0) - len(nodes[index])
        order = order[::-1]
    for index in order:
        pod_set = request.pod_sets[index]
        added = _assume_pods(snapshot, request, index, pod_set.count - len(nodes[index]), domain)
        nodes[index] = np.concatenate((nodes[index], added))
    return tuple(nodes)


def _assume_pods(snapshot: ClusterSnapshot, request: GangRequest, index: int, count: int, domain: Domain) -> Vector:
    if count <= 0:
        return NO_NODES
    nodes = _pod_set_fit(snapshot, request, index, domain).choose_nodes(count, domain.node_ranks)
    snapshot.assume(request.pod_sets[index].shape, nodes)
    return nodes


def _checked_placement(request: GangRequest, domain: Domain, nodes: tuple[Vector, ...]) -> DomainPlacement:
    placement = DomainPlacement(nodes, domain, is_sufficient=False)
    is_sufficient = placement.pod_count >= request.min_members and all(
        placement.count_of_role(request, role) >= minimum for role, minimum in request.min_by_role.items()
    )
    return msgspec.structs.replace(placement, is_sufficient=is_sufficient)


def _shortage(snapshot: ClusterSnapshot, request: GangRequest, best: DomainPlacement) -> Shortage:
    """Why one more member of the bottleneck does not fit once the others are placed."""
    index = _bottleneck(request, best)
    bottleneck = request.pod_sets[index]
    filled = snapshot.copy()
    for pod_set, nodes in zip(request.pod_sets, best.nodes, strict=True):
        filled.assume(pod_set.shape, nodes)
    mask = best.domain.mask if best.domain.applies_to(index) else None
    reasons = reason_histogram(filled, bottleneck.shape, mask, best.domain.reason)
    fitting = min(best.pod_count, request.min_members)
    prefix = ""
    if best.domain.name:
        prefix = best.domain.gap_message(request.min_members, fitting) + ": "
    elif len({pod_set.role for pod_set in request.pod_sets}) > 1:
        role = bottleneck.role
        prefix = f"{best.count_of_role(request, role)} of {_requested_count(request, role)} of role {role} fit: "
    elif fitting:
        prefix = f"{fitting} of {request.min_members} fit: "
    return Shortage(prefix + nodes_message(reasons, len(snapshot.nodes)), reasons, fitting)


def _bottleneck(request: GangRequest, best: DomainPlacement) -> int:
    """The index of the pod set that lacks most, of a role below its minimum if there is one."""
    missing = [pod_set.count - len(nodes) for pod_set, nodes in zip(request.pod_sets, best.nodes, strict=True)]
    below_minimum = [
        best.count_of_role(request, pod_set.role) < request.min_by_role.get(pod_set.role, 0)
        for pod_set in request.pod_sets
    ]
    return max(
        range(len(request.pod_sets)), key=lambda index: (missing[index] > 0 and below_minimum[index], missing[index])
    )


def _requested_count(request: GangRequest, role: str) -> int:
    return request.min_by_role.get(role) or sum(pod_set.count for pod_set in request.pod_sets if pod_set.role == role)
