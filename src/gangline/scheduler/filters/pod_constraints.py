"""Pod affinity, anti-affinity and topology spread: which rules apply to a shape, and their pod counts per domain."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.api.selectors import LabelSelector
from gangline.scheduler.snapshot.node_table import Codes, Mask
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import BoundPod, Vector
from gangline.scheduler.types.reasons import FilterReason
from gangline.scheduler.types.shape import AffinityTerm, PodShape, SpreadConstraint

DomainCounts: TypeAlias = NDArray[np.int64]
"""A number per domain; the last one is for nodes without the label."""


class PlacementRule(Protocol):
    """A constraint between pods, for one shape on one snapshot."""

    @property
    def reason(self) -> FilterReason: ...
    @property
    def is_stateful(self) -> bool:
        """Whether a pod of this shape changes where the next one may go."""
        ...

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        """Which of these nodes, or of all nodes, may take one more pod."""
        ...

    def add_pod(self, node: int) -> None:
        """Count one more pod on this node."""
        ...


class AntiAffinityRule:
    """Anti-affinity, of the pod itself or of existing pods: not in a domain with a selected pod."""

    reason = FilterReason.ANTI_AFFINITY

    def __init__(self, codes: Codes, counts: DomainCounts, *, stateful: bool) -> None:
        self._codes, self._counts, self.is_stateful = codes, counts, stateful
        self._counts[-1] = 0

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        free: Mask = self._counts == 0
        return free[self._codes if nodes is None else self._codes[nodes]]

    def add_pod(self, node: int) -> None:
        if self.is_stateful and self._codes[node] >= 0:
            self._counts[self._codes[node]] += 1


class AffinityRule:
    """Affinity: only in domains with a pod that all terms select. The first pod that selects itself may go anywhere."""

    reason = FilterReason.AFFINITY

    def __init__(
        self, keys: list[str], codes: list[Codes], counts: list[DomainCounts], *, selects_itself: bool
    ) -> None:
        self._keys, self._codes, self._counts = keys, codes, counts
        for domain_counts in counts:
            domain_counts[-1] = 0
        self._selects_itself = selects_itself
        self.awaits_first = selects_itself and not any(domain_counts.any() for domain_counts in counts)
        self.is_stateful = self.awaits_first

    def confine_to(self, key: str) -> None:
        """All candidate nodes are in one domain of this key: where the first pod goes, all may go."""
        if all(own_key == key for own_key in self._keys):
            self.is_stateful = False

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        allowed: Mask | None = None
        for codes, counts in zip(self._codes, self._counts, strict=True):
            node_codes = codes if nodes is None else codes[nodes]
            fits = (node_codes >= 0) if self.awaits_first else (counts > 0)[node_codes]
            allowed = fits if allowed is None else allowed & fits
        assert allowed is not None
        return allowed

    def add_pod(self, node: int) -> None:
        if self._selects_itself:
            self.awaits_first = False
            for codes, counts in zip(self._codes, self._counts, strict=True):
                if codes[node] >= 0:
                    counts[codes[node]] += 1


class SpreadRule:
    """Topology spread: no domain may have more than the maximum skew over the one with the fewest pods."""

    reason = FilterReason.SPREAD

    def __init__(
        self,
        rule: SpreadConstraint,
        codes: Codes,
        counts: DomainCounts,
        eligible: Mask,
        *,
        selects_itself: bool,
        stateful: bool,
    ) -> None:
        self._constraint, self._codes, self._counts, self._selects_itself = rule, codes, counts, selects_itself
        # Domains that count: those with a node on which the pod may run.
        self._domains = np.unique(codes[eligible & (codes >= 0)])
        self.is_stateful = stateful

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        codes = self._codes if nodes is None else self._codes[nodes]
        too_few_domains = len(self._domains) < self._constraint.min_domains or not len(self._domains)
        lowest = 0 if too_few_domains else int(self._counts[self._domains].min())
        fits = self._counts + self._selects_itself - lowest <= self._constraint.max_skew
        fits[-1] = False
        return fits[codes]

    def add_pod(self, node: int) -> None:
        if self.is_stateful and self._codes[node] >= 0:
            self._counts[self._codes[node]] += 1


def placement_rules(snapshot: ClusterSnapshot, shape: PodShape) -> list[PlacementRule]:
    """All constraints between pods that apply to a pod of this shape."""
    rules: list[PlacementRule] = [
        *_anti_affinity_rules(snapshot, shape),
        *_existing_anti_affinity_rules(snapshot, shape),
    ]
    if shape.pod_constraints.spread:
        rules += _spread_rules(snapshot, shape)
    if shape.pod_constraints.affinity:
        rules.append(_affinity_rule(snapshot, shape))
    return rules


def _anti_affinity_rules(snapshot: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    for term in shape.pod_constraints.anti_affinity:
        codes = snapshot.nodes.label_column(term.topology_key).codes
        matches = _matches_per_node(snapshot, term.selector, _namespace_filter(snapshot, term), tentative=True)
        selects_itself = snapshot.pods.selects(term, shape)
        yield AntiAffinityRule(codes, _counts_per_domain(snapshot, term.topology_key, matches), stateful=selects_itself)


def _existing_anti_affinity_rules(snapshot: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    """Anti-affinity of existing and assumed pods against this shape."""
    holders: dict[AffinityTerm, list[int]] = {}
    for term, pods in snapshot.pods.anti_affinity_against(shape):
        holders[term] = _node_numbers(snapshot, pods)
    for assumed in snapshot.anti_affinity:
        for term in assumed.shape.pod_constraints.anti_affinity:
            if snapshot.pods.selects(term, shape):
                holders.setdefault(term, []).extend(assumed.nodes.tolist())
    for term, node_numbers in holders.items():
        if node_numbers:
            codes = snapshot.nodes.label_column(term.topology_key).codes
            yield AntiAffinityRule(
                codes,
                _counts_per_domain(snapshot, term.topology_key, _counts_per_node(snapshot, node_numbers)),
                stateful=False,
            )


def _affinity_rule(snapshot: ClusterSnapshot, shape: PodShape) -> AffinityRule:
    terms = shape.pod_constraints.affinity
    # A pod counts only if all terms select it.
    matches = _matches_of_all_terms(snapshot, terms)
    return AffinityRule(
        [term.topology_key for term in terms],
        [snapshot.nodes.label_column(term.topology_key).codes for term in terms],
        [_counts_per_domain(snapshot, term.topology_key, matches) for term in terms],
        selects_itself=all(snapshot.pods.selects(term, shape) for term in terms),
    )


def _spread_rules(snapshot: ClusterSnapshot, shape: PodShape) -> Iterable[PlacementRule]:
    labelled = np.ones(len(snapshot.nodes), dtype=np.bool_)
    for rule in shape.pod_constraints.spread:
        labelled &= snapshot.nodes.label_column(rule.topology_key).codes >= 0
    for rule in shape.pod_constraints.spread:
        eligible = labelled
        if rule.honor_affinity:
            eligible = eligible & snapshot.nodes.affinity_mask(shape.node_constraints)
        if rule.honor_taints:
            eligible = eligible & snapshot.nodes.tolerated_mask(shape.node_constraints.tolerations)
        # An empty selector matches the pod itself, but kube-scheduler counts no pod by it.
        is_empty = not rule.selector
        matches = _matches_per_node(snapshot, rule.selector, shape.namespace.__eq__, terminating=False)
        counts = _counts_per_domain(snapshot, rule.topology_key, matches * (eligible & (not is_empty)))
        selects_itself = rule.selector.matches(dict(shape.labels))
        codes = snapshot.nodes.label_column(rule.topology_key).codes
        yield SpreadRule(
            rule, codes, counts, eligible, selects_itself=selects_itself, stateful=selects_itself and not is_empty
        )


def _namespace_filter(snapshot: ClusterSnapshot, term: AffinityTerm) -> Callable[[str], bool]:
    return lambda namespace: snapshot.pods.selects_namespace(term, namespace)


def _matches_of_all_terms(snapshot: ClusterSnapshot, terms: tuple[AffinityTerm, ...]) -> Vector:
    together = LabelSelector(
        [each for term in terms for each in term.selector.requirements],
        # A selector that is true without a requirement matches nothing.
        never=any(term.selector and not term.selector.requirements for term in terms),
    )
    return _matches_per_node(
        snapshot, together, lambda namespace: all(snapshot.pods.selects_namespace(term, namespace) for term in terms)
    )


def _matches_per_node(
    snapshot: ClusterSnapshot,
    selector: LabelSelector,
    namespaces: Callable[[str], bool],
    *,
    terminating: bool = True,
    tentative: bool = False,
) -> Vector:
    """How many pods on each node match.

    `terminating`: count terminating pods too; `tentative`: count nominated and reserved pods too.
    """
    node_numbers = _node_numbers(
        snapshot, (pod for pod in snapshot.pods.matching(selector, namespaces) if terminating or not pod.terminating)
    )
    for assumed in snapshot.assumed:
        is_counted = (tentative or not assumed.tentative) and namespaces(assumed.shape.namespace)
        if is_counted and selector.matches(dict(assumed.shape.labels)):
            node_numbers.extend(assumed.nodes.tolist())
    return _counts_per_node(snapshot, node_numbers)


def _node_numbers(snapshot: ClusterSnapshot, pods: Iterable[BoundPod]) -> list[int]:
    """The node numbers of the pods that have not been removed."""
    index_of, removed = snapshot.nodes.index_of, snapshot.removed_uids
    return [index_of[pod.node] for pod in pods if pod.uid not in removed and pod.node in index_of]


def _counts_per_node(snapshot: ClusterSnapshot, node_numbers: list[int]) -> Vector:
    return np.bincount(np.array(node_numbers, dtype=np.int64), minlength=len(snapshot.nodes)).astype(np.int64)


def _counts_per_domain(snapshot: ClusterSnapshot, key: str, counts: Vector) -> DomainCounts:
    """Counts per node as counts per domain."""
    column = snapshot.nodes.label_column(key)
    # Code -1, for nodes without the label, becomes the last one.
    codes = np.where(column.codes < 0, column.size, column.codes)
    return np.bincount(codes, weights=counts, minlength=column.size + 1).astype(np.int64)


def has_unmet_affinity(snapshot: ClusterSnapshot, shape: PodShape) -> bool:
    """Whether no pod exists yet that the pod's affinity requires: the first one's domain decides for all."""
    terms = shape.pod_constraints.affinity
    if not terms:
        return False
    # Pods on nodes without the label are in no domain that others could join.
    matches = _matches_of_all_terms(snapshot, terms)
    return not any(matches[snapshot.nodes.label_column(term.topology_key).codes >= 0].any() for term in terms)


def must_follow_others(snapshot: ClusterSnapshot, shape: PodShape) -> bool:
    """Whether the shape has unmet affinity to pods other than itself: it cannot be placed first."""
    alike = all(snapshot.pods.selects(term, shape) for term in shape.pod_constraints.affinity)
    return not alike and has_unmet_affinity(snapshot, shape)
