"""All of a gang or none of it: places on one board."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

import msgspec
import numpy as np

from gangline.scheduler.filters.fit import ShapeFit, reason_histogram
from gangline.scheduler.filters.pod_constraints import must_follow_others
from gangline.scheduler.filters.prefilter import prefilter_shortage
from gangline.scheduler.filters.scoring import NO_NODES
from gangline.scheduler.placement.topology import (
    ALL_NODES,
    MAX_DOMAINS,
    Domain,
    affinity_group,
    candidate_domains,
)
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import GangRequest, Placement, Shortage, Vector
from gangline.scheduler.types.reasons import nodes_message

MAX_ORDERS = 6
"""In how many orders the needs of a gang are tried before it is said not to fit."""


class DomainPlacement(msgspec.Struct, frozen=True):
    """What was found for every need, and whether that is enough."""

    nodes: tuple[Vector, ...]
    domain: Domain
    is_sufficient: bool

    @property
    def pod_count(self) -> int:
        return sum(map(len, self.nodes))

    def count_of_role(self, ask: GangRequest, role: str) -> int:
        """How many members of a role found a place."""
        return sum(len(nodes) for need, nodes in zip(ask.pod_sets, self.nodes, strict=True) if need.role == role)


def gang_placement(board: ClusterSnapshot, ask: GangRequest) -> Placement | Shortage:
    """Places for all that must be placed at once and for as many more as fit, or why not."""
    if problem := prefilter_shortage(board, ask):
        return problem
    best = _best_placement(board, ask)
    if best.is_sufficient and (best.pod_count or not sum(need.count for need in ask.pod_sets)):
        return Placement(best.nodes)
    return _shortage(board, ask, best)


def best_effort_placement(board: ClusterSnapshot, ask: GangRequest) -> Placement:
    """As many places as there are, enough or not."""
    if prefilter_shortage(board, ask):
        return Placement(tuple(NO_NODES for _ in ask.pod_sets))
    return Placement(_best_placement(board, ask).nodes)


def _best_placement(board: ClusterSnapshot, ask: GangRequest) -> DomainPlacement:
    """The first that is enough; else the one that comes closest."""
    best: DomainPlacement | None = None
    for ground in candidate_domains(board, ask):
        found = _domain_placement(board, ask, ground)
        if found.is_sufficient:
            return found
        if best is None or found.pod_count > best.pod_count:
            best = found
    assert best is not None
    gathered = _placement_by_affinity(board, ask)
    return gathered if gathered is not None and gathered.is_sufficient else best


def _placement_by_affinity(board: ClusterSnapshot, ask: GangRequest) -> DomainPlacement | None:
    """Followers with several of those whom they want to be with: one of these and some of them, domain by domain.

    None: nobody follows others of this gang.
    """
    if ask.topology is not None and ask.topology.required:
        return None
    key, kin = affinity_group(board, ask)
    followers = [number for number in sorted(kin) if must_follow_others(board, ask.pod_sets[number].shape)]
    leaders = [number for number in sorted(kin) if number not in followers]
    if not followers or not leaders:
        return None
    found = [NO_NODES for _ in ask.pod_sets]
    for ground in _roomiest_domains(board, ask, key, followers):
        trial, nodes = board.copy(), found.copy()
        _place_missing(trial, ask, leaders, ground, nodes, most=1)
        if _place_missing(trial, ask, followers, ground, nodes):
            board, found = trial, nodes
        if all(len(found[number]) == ask.pod_sets[number].count for number in followers):
            break
    board = board.copy()
    _place_missing(board, ask, range(len(ask.pod_sets)), ALL_NODES, found)
    return _checked_placement(ask, ALL_NODES, tuple(found))


def _roomiest_domains(board: ClusterSnapshot, ask: GangRequest, key: str, followers: Sequence[int]) -> list[Domain]:
    """Domains with most room for these, the leaders they want to be with aside."""
    column = board.nodes.label_column(key)
    room = np.zeros(column.size, dtype=np.int64)
    there = column.codes >= 0
    for number in followers:
        each = np.minimum(ShapeFit(board, ask.pod_sets[number].shape).capacity(unmet=False), ask.pod_sets[number].count)
        room += np.bincount(column.codes[there], weights=each[there], minlength=column.size).astype(np.int64)
    order = np.lexsort((np.arange(column.size), -room))[:MAX_DOMAINS]
    return [Domain(mask=column.codes == code, name=column.values[code]) for code in order.tolist() if room[code]]


def _place_missing(
    board: ClusterSnapshot,
    ask: GangRequest,
    numbers: Iterable[int],
    ground: Domain,
    found: list[Vector],
    most: int = 1 << 30,
) -> int:
    """Put what is missing of these needs, so many at most. How many it was."""
    placed = 0
    for number in numbers:
        missing = min(ask.pod_sets[number].count - len(found[number]), most - placed)
        nodes = _assume_pods(board, ask, number, missing, ground)
        found[number] = np.concatenate((found[number], nodes))
        placed += len(nodes)
    return placed


def _domain_placement(board: ClusterSnapshot, ask: GangRequest, ground: Domain) -> DomainPlacement:
    if len(ask.pod_sets) == 1:
        return _checked_placement(
            ask,
            ground,
            (_pod_set_fit(board, ask, 0, ground).choose_nodes(ask.pod_sets[0].count, ground.node_ranks),),
        )
    best: DomainPlacement | None = None
    for order, modest in _pod_set_orders(board, ask, ground):
        found = _checked_placement(ask, ground, _nodes_in_order(board, ask, ground, order, modest=modest))
        if found.is_sufficient:
            return found
        if best is None or found.pod_count > best.pod_count:
            best = found
    assert best is not None
    return best


def _pod_set_orders(board: ClusterSnapshot, ask: GangRequest, ground: Domain) -> Iterator[tuple[Sequence[int], bool]]:
    """Needs in the orders worth trying, the scarcest first; greedily, then only what must be at first."""
    scarcest = sorted(range(len(ask.pod_sets)), key=lambda number: _abundance(board, ask, number, ground))
    # Whoever wants to be with others of them comes after those.
    scarcest.sort(key=lambda number: must_follow_others(board, ask.pod_sets[number].shape))
    yield scarcest, False
    # Where every member is of a shape of its own, orders are many and all alike.
    for order in islice(permutations(scarcest), MAX_ORDERS if len(scarcest) <= MAX_ORDERS else 1):
        yield order, True


def _abundance(
    board: ClusterSnapshot, ask: GangRequest, number: int, ground: Domain
) -> tuple[float, str, tuple[tuple[str, int], ...]]:
    need = ask.pod_sets[number]
    total = float(_pod_set_fit(board, ask, number, ground).capacity().sum())
    return total / max(need.count, 1), need.role, need.shape.requests


def _pod_set_fit(board: ClusterSnapshot, ask: GangRequest, number: int, ground: Domain) -> ShapeFit:
    mask = ground.mask if ground.applies_to(number) else None
    return ShapeFit(board, ask.pod_sets[number].shape, mask, ground.key if mask is not None else "")


def _nodes_in_order(
    board: ClusterSnapshot, ask: GangRequest, ground: Domain, order: Sequence[int], *, modest: bool
) -> tuple[Vector, ...]:
    """Fill one need after the other. Modestly: first the least of every role, then the rest, the plentiful first."""
    board = board.copy()
    found = [NO_NODES for _ in ask.pod_sets]
    owed = dict(ask.min_by_role)
    if modest:
        for number in order:
            need = ask.pod_sets[number]
            count = min(need.count, owed.get(need.role, 0))
            found[number] = _assume_pods(board, ask, number, count, ground)
            owed[need.role] = owed.get(need.role, 0) - len(found[number])
        order = order[::-1]
    for number in order:
        need = ask.pod_sets[number]
        more = _assume_pods(board, ask, number, need.count - len(found[number]), ground)
        found[number] = np.concatenate((found[number], more))
    return tuple(found)


def _assume_pods(board: ClusterSnapshot, ask: GangRequest, number: int, count: int, ground: Domain) -> Vector:
    if count <= 0:
        return NO_NODES
    nodes = _pod_set_fit(board, ask, number, ground).choose_nodes(count, ground.node_ranks)
    board.assume(ask.pod_sets[number].shape, nodes)
    return nodes


def _checked_placement(ask: GangRequest, ground: Domain, nodes: tuple[Vector, ...]) -> DomainPlacement:
    found = DomainPlacement(nodes, ground, is_sufficient=False)
    enough = found.pod_count >= ask.min_members and all(
        found.count_of_role(ask, role) >= least for role, least in ask.min_by_role.items()
    )
    return msgspec.structs.replace(found, is_sufficient=enough)


def _shortage(board: ClusterSnapshot, ask: GangRequest, best: DomainPlacement) -> Shortage:
    """Why one more member of the need that lacks most finds no place once the others have theirs."""
    number = _bottleneck(ask, best)
    worst = ask.pod_sets[number]
    full = board.copy()
    for need, nodes in zip(ask.pod_sets, best.nodes, strict=True):
        full.assume(need.shape, nodes)
    mask = best.domain.mask if best.domain.applies_to(number) else None
    reasons = reason_histogram(full, worst.shape, mask, best.domain.reason)
    fitting = min(best.pod_count, ask.min_members)
    said = ""
    if best.domain.name:
        said = best.domain.gap_message(ask.min_members, fitting) + ": "
    elif len({need.role for need in ask.pod_sets}) > 1:
        there, wanted = best.count_of_role(ask, worst.role), _requested_count(ask, worst.role)
        said = f"{there} of {wanted} of role {worst.role} fit: "
    elif fitting:
        said = f"{fitting} of {ask.min_members} fit: "
    return Shortage(said + nodes_message(reasons, len(board.nodes)), reasons, fitting)


def _bottleneck(ask: GangRequest, best: DomainPlacement) -> int:
    """The need that lacks most; of a role that lacks some of its least, if there is one."""
    lacks = [need.count - len(nodes) for need, nodes in zip(ask.pod_sets, best.nodes, strict=True)]
    short = [best.count_of_role(ask, need.role) < ask.min_by_role.get(need.role, 0) for need in ask.pod_sets]
    return max(range(len(ask.pod_sets)), key=lambda number: (lacks[number] > 0 and short[number], lacks[number]))


def _requested_count(ask: GangRequest, role: str) -> int:
    return ask.min_by_role.get(role) or sum(need.count for need in ask.pod_sets if need.role == role)
