"""Which rules between pods apply to a shape on a board, and how many pods they mean in every domain."""

from collections.abc import Callable, Iterable

import numpy as np

from gangline.api.selectors import LabelSelector
from gangline.scheduler.filters.rules import (
    AffinityRule,
    AntiAffinityRule,
    DomainCounts,
    PlacementRule,
    SpreadRule,
)
from gangline.scheduler.pods.shape import AffinityTerm, PodShape
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import BoundPod, Vector


def placement_rules(board: ClusterSnapshot, shape: PodShape) -> list[PlacementRule]:
    """All that rules between pods say about where a pod of this shape may go, on this board."""
    found: list[PlacementRule] = [
        *_anti_affinity_rules(board, shape),
        *_existing_anti_affinity_rules(board, shape),
    ]
    if shape.pod_constraints.spread:
        found += _spread_rules(board, shape)
    if shape.pod_constraints.affinity:
        found.append(_affinity_rule(board, shape))
    return found


def _anti_affinity_rules(board: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    for term in shape.pod_constraints.anti_affinity:
        codes = board.nodes.label_column(term.topology_key).codes
        meant = _matches_per_node(board, term.selector, _namespace_filter(board, term), promised=True)
        itself = board.pods.selects(term, shape)
        yield AntiAffinityRule(codes, _counts_per_domain(board, term.topology_key, meant), moving=itself)


def _existing_anti_affinity_rules(board: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    """Anti-affinity of those who are there already, against this shape."""
    holders: dict[AffinityTerm, list[int]] = {}
    for term, residents in board.pods.anti_affinity_against(shape):
        holders[term] = _node_numbers(board, residents)
    for came in board.anti_affinity:
        for term in came.shape.pod_constraints.anti_affinity:
            if board.pods.selects(term, shape):
                holders.setdefault(term, []).extend(came.nodes.tolist())
    for term, numbers in holders.items():
        if numbers:
            codes = board.nodes.label_column(term.topology_key).codes
            yield AntiAffinityRule(
                codes,
                _counts_per_domain(board, term.topology_key, _counts_per_node(board, numbers)),
                moving=False,
            )


def _affinity_rule(board: ClusterSnapshot, shape: PodShape) -> AffinityRule:
    terms = shape.pod_constraints.affinity
    # A pod counts only if all terms mean it.
    every = _matches_of_all_terms(board, terms)
    return AffinityRule(
        [term.topology_key for term in terms],
        [board.nodes.label_column(term.topology_key).codes for term in terms],
        [_counts_per_domain(board, term.topology_key, every) for term in terms],
        itself=all(board.pods.selects(term, shape) for term in terms),
    )


def _spread_rules(board: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    keyed = np.ones(len(board.nodes), dtype=np.bool_)
    for rule in shape.pod_constraints.spread:
        keyed &= board.nodes.label_column(rule.topology_key).codes >= 0
    for rule in shape.pod_constraints.spread:
        eligible = keyed
        if rule.honor_affinity:
            eligible = eligible & board.nodes.affinity_mask(shape.node_constraints)
        if rule.honor_taints:
            eligible = eligible & board.nodes.tolerated_mask(shape.node_constraints.tolerations)
        # A selector that asks for nothing matches the pod itself, but kube-scheduler counts nobody by it.
        blank = not rule.selector
        meant = _matches_per_node(board, rule.selector, shape.namespace.__eq__, leaving=False)
        counts = _counts_per_domain(board, rule.topology_key, meant * (eligible & (not blank)))
        itself = rule.selector.matches(dict(shape.labels))
        codes = board.nodes.label_column(rule.topology_key).codes
        yield SpreadRule(rule, codes, counts, eligible, itself=itself, moving=itself and not blank)


def _namespace_filter(board: ClusterSnapshot, term: AffinityTerm) -> Callable[[str], bool]:
    return lambda namespace: board.pods.selects_namespace(term, namespace)


def _matches_of_all_terms(board: ClusterSnapshot, terms: tuple[AffinityTerm, ...]) -> Vector:
    together = LabelSelector(
        [each for term in terms for each in term.selector.requirements],
        # True without a requirement: it means nobody.
        never=any(term.selector and not term.selector.requirements for term in terms),
    )
    return _matches_per_node(
        board,
        together,
        lambda namespace: all(board.pods.selects_namespace(term, namespace) for term in terms),
    )


def _matches_per_node(
    board: ClusterSnapshot,
    selector: LabelSelector,
    namespaces: Callable[[str], bool],
    *,
    leaving: bool = True,
    promised: bool = False,
) -> Vector:
    """How many pods on each node are meant; `leaving`: those on their way out too; `promised`: those nominated too."""
    numbers = _node_numbers(
        board,
        (each for each in board.pods.matching(selector, namespaces) if leaving or not each.terminating),
    )
    for came in board.assumed:
        counts = (promised or not came.tentative) and namespaces(came.shape.namespace)
        if counts and selector.matches(dict(came.shape.labels)):
            numbers.extend(came.nodes.tolist())
    return _counts_per_node(board, numbers)


def _node_numbers(board: ClusterSnapshot, residents: Iterable[BoundPod]) -> list[int]:
    """The nodes of those that are still there."""
    number, gone = board.nodes.index_of, board.removed_uids
    return [number[each.node] for each in residents if each.uid not in gone and each.node in number]


def _counts_per_node(board: ClusterSnapshot, numbers: list[int]) -> Vector:
    return np.bincount(np.array(numbers, dtype=np.int64), minlength=len(board.nodes)).astype(np.int64)


def _counts_per_domain(board: ClusterSnapshot, key: str, each: Vector) -> DomainCounts:
    """Numbers per node as numbers per domain."""
    column = board.nodes.label_column(key)
    # -1, for nodes without the label, becomes the last one.
    codes = np.where(column.codes < 0, column.size, column.codes)
    return np.bincount(codes, weights=each, minlength=column.size + 1).astype(np.int64)


def has_unmet_affinity(board: ClusterSnapshot, shape: PodShape) -> bool:
    """Whether its affinity means pods of which none is there yet: where the first goes decides for all."""
    terms = shape.pod_constraints.affinity
    if not terms:
        return False
    # Those on nodes without the label are in no domain that others could join.
    every = _matches_of_all_terms(board, terms)
    return not any(every[board.nodes.label_column(term.topology_key).codes >= 0].any() for term in terms)


def must_follow_others(board: ClusterSnapshot, shape: PodShape) -> bool:
    """The same, of pods that are not like itself: it cannot be the first."""
    alike = all(board.pods.selects(term, shape) for term in shape.pod_constraints.affinity)
    return not alike and has_unmet_affinity(board, shape)
