"""How many pods of a shape fit on every node by all filters, and why a node takes none."""

from collections.abc import Iterator

import numpy as np

from gangline.scheduler.filters.pod_constraints import AffinityRule, PlacementRule, placement_rules
from gangline.scheduler.filters.scoring import NO_NODES, is_scarce, packed_nodes, ranked_nodes
from gangline.scheduler.filters.volumes import attachable_nodes, provisionable_nodes
from gangline.scheduler.snapshot.node_table import Mask, ReasonCodes, mark_reason
from gangline.scheduler.snapshot.pod_index import ports_conflict
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot, resource_capacity
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.reasons import REASON_TEXTS, FilterReason, resource_text
from gangline.scheduler.types.resources import PODS
from gangline.scheduler.types.shape import PodShape

_ALL_SHORT = np.ones(1, dtype=np.bool_)


class ShapeFit:
    """One shape on one snapshot.

    `domain_mask`: the candidate nodes; with `key` they are all in one domain of that label.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, shape: PodShape, domain_mask: Mask | None = None, key: str = ""
    ) -> None:
        self._snapshot, self._shape = snapshot, shape
        self._max_pods = _max_pods(snapshot, shape, domain_mask)
        self._rules = placement_rules(snapshot, shape)
        for rule in self._rules:
            if isinstance(rule, AffinityRule):
                rule.confine_to(key)

    def capacity(self, *, check_affinity: bool = True) -> Vector:
        """How many pods each node takes. Where constraints change with every pod placed, this is an upper bound.

        `check_affinity`: whether the pods that affinity requires must exist. False: they are still to be placed.
        """
        capacity = self._max_pods
        for rule in self._rules:
            if not check_affinity and isinstance(rule, AffinityRule):
                continue
            capacity = capacity * rule.allowed_mask()
            if rule.reason is FilterReason.ANTI_AFFINITY and rule.is_stateful:
                capacity = np.minimum(capacity, 1)
        return capacity

    def choose_nodes(self, count: int, node_ranks: Vector | None = None) -> Vector:
        """Nodes for up to `count` pods, one entry for each; nodes with low ranks first."""
        if count <= 0:
            return NO_NODES
        stateful = [rule for rule in self._rules if rule.is_stateful]
        if not stateful:
            return packed_nodes(self._snapshot, self._shape, self.capacity(), count, node_ranks)
        return self._choose_one_by_one(stateful, count, node_ranks)

    def _choose_one_by_one(self, stateful: list[PlacementRule], count: int, node_ranks: Vector | None) -> Vector:
        """Choose pod by pod, as each one changes where the next may go."""
        limit = self._max_pods
        for rule in self._rules:
            if not rule.is_stateful:
                limit = limit * rule.allowed_mask()
        nodes = ranked_nodes(self._snapshot, self._shape, limit, node_ranks)
        remaining = limit[nodes]
        chosen: list[int] = []
        while len(chosen) < count and len(nodes):
            fits = remaining > 0
            for rule in stateful:
                fits &= rule.allowed_mask(nodes)
            at = int(fits.argmax())
            if not fits[at]:
                break
            remaining[at] -= 1
            chosen.append(int(nodes[at]))
            for rule in stateful:
                rule.add_pod(chosen[-1])
        return np.array(chosen, dtype=np.int64)


def _max_pods(snapshot: ClusterSnapshot, shape: PodShape, domain_mask: Mask | None) -> Vector:
    """How many pods each node takes by its own properties, resources, ports and volumes."""
    max_pods = resource_capacity(snapshot, shape)
    max_pods *= snapshot.nodes.filter_result(shape.node_constraints).mask
    if domain_mask is not None:
        max_pods *= domain_mask
    if shape.host_ports:
        np.minimum(max_pods, free_port_mask(snapshot, shape), out=max_pods)
    for mask, _ in _volume_masks(snapshot, shape):
        max_pods *= mask
    return max_pods


def _volume_masks(snapshot: ClusterSnapshot, shape: PodShape) -> Iterator[tuple[Mask, FilterReason]]:
    """Nodes that the pod's volumes allow, and the reason for the others."""
    if shape.claims:
        for mask, reason in (
            (attachable_nodes(snapshot, shape), FilterReason.ATTACH_LIMIT),
            (snapshot.volumes.reachable_nodes(snapshot.nodes, shape), FilterReason.VOLUME),
            (provisionable_nodes(snapshot, shape), FilterReason.VOLUME),
        ):
            if mask is not None:
                yield mask, reason


def free_port_mask(snapshot: ClusterSnapshot, shape: PodShape) -> Mask:
    """Nodes on which no pod has a host port of the shape. No node takes two pods of such a shape."""
    free = np.ones(len(snapshot.nodes), dtype=np.bool_)
    for pod in snapshot.pods.host_port_pods.values():
        number = snapshot.nodes.index_of.get(pod.node)
        if number is not None and pod.uid not in snapshot.removed_uids and _shares_host_port(shape, pod.shape):
            free[number] = False
    for assumed in snapshot.assumed:
        if assumed.shape.host_ports and _shares_host_port(shape, assumed.shape):
            free[assumed.nodes] = False
    return free


def _shares_host_port(ours: PodShape, theirs: PodShape) -> bool:
    return any(ports_conflict(mine, other) for mine in ours.host_ports for other in theirs.host_ports)


def reason_histogram(
    snapshot: ClusterSnapshot,
    shape: PodShape,
    domain_mask: Mask | None = None,
    reason: FilterReason = FilterReason.DOMAIN,
) -> dict[str, int]:
    """Reason -> number of nodes, each counted under its first reason. `reason`: for nodes outside the domain."""
    reasons: ReasonCodes = snapshot.nodes.filter_result(shape.node_constraints).reasons.copy()
    if shape.host_ports:
        mark_reason(reasons, ~free_port_mask(snapshot, shape), FilterReason.PORT)
    # The scarcest resource says most; the number of pods comes last.
    order = sorted((name for name, _ in shape.requests), key=lambda name: (name == PODS, not is_scarce(name), name))
    requested = dict(shape.requests)
    for number, resource in enumerate(order):
        row = snapshot.resource_rows.get(resource)
        is_short = _ALL_SHORT if row is None else snapshot.free[row] < requested[resource]
        mark_reason(reasons, np.broadcast_to(is_short, reasons.shape), FilterReason.RESOURCE + number)
    for mask, code in _volume_masks(snapshot, shape):
        mark_reason(reasons, ~mask, code)
    if domain_mask is not None:
        mark_reason(reasons, ~domain_mask, reason)
    for rule in placement_rules(snapshot, shape):
        mark_reason(reasons, ~rule.allowed_mask(), rule.reason)
    counts = np.bincount(reasons)
    return {
        resource_text(order[code - FilterReason.RESOURCE])
        if code >= FilterReason.RESOURCE
        else REASON_TEXTS[code]: int(counts[code])
        for code in np.flatnonzero(counts).tolist()
        if code
    }
