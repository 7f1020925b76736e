"""The order in which nodes are filled: few nodes, the fullest first, and nodes with unused GPUs last."""

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.snapshot.node_table import Mask
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.resources import CPU, PODS
from gangline.scheduler.types.shape import PodShape

_COMMON_RESOURCES = frozenset((CPU, "memory", "ephemeral-storage", PODS))
NO_NODES: Vector = np.empty(0, dtype=np.int64)


def is_scarce(resource: str) -> bool:
    """Whether only few nodes have the resource, such as GPUs."""
    return resource not in _COMMON_RESOURCES and not resource.startswith("hugepages-")


def packed_nodes(
    snapshot: ClusterSnapshot, shape: PodShape, capacity: Vector, count: int, node_ranks: Vector | None = None
) -> Vector:
    """Nodes for up to `count` pods, one entry for each pod.

    One node for all of them if there is one, the tightest; else the fullest nodes first. `node_ranks` (lower is better)
    and the pods' preferences come before that; and pods that need no GPU take nodes with GPUs last.
    """
    if count <= 0:
        return NO_NODES
    fits = capacity >= count
    tightest = _tightest_nodes(_priority_keys(snapshot, shape, node_ranks), capacity, fits) if fits.any() else NO_NODES
    if len(tightest):
        keys = _free_shares(snapshot, shape, tightest) if len(tightest) > 1 else []
        return np.full(count, _best_node(tightest, keys), dtype=np.int64)
    return _fill_nodes(ranked_nodes(snapshot, shape, capacity, node_ranks), capacity, count)


def ranked_nodes(
    snapshot: ClusterSnapshot, shape: PodShape, capacity: Vector, node_ranks: Vector | None = None
) -> Vector:
    """All nodes with capacity, in the order in which they are filled."""
    nodes = np.flatnonzero(capacity)
    keys_before = (key[nodes] for key in _priority_keys(snapshot, shape, node_ranks))
    return nodes[np.lexsort((nodes, *_free_shares(snapshot, shape, nodes), *keys_before))]


def _priority_keys(snapshot: ClusterSnapshot, shape: PodShape, node_ranks: Vector | None) -> list[Vector]:
    """Sort keys for every node that count more than packing, the most important last."""
    scores = snapshot.nodes.filter_result(shape.node_constraints).scores
    keys = (_unused_scarce(snapshot, shape), None if scores is None else -scores, node_ranks)
    return [key for key in keys if key is not None]


def _tightest_nodes(keys_before: list[Vector], capacity: Vector, fits: Mask) -> Vector:
    """The nodes that fit all pods most tightly, of those that are best by the keys."""
    if keys_before:
        best = capacity > 0
        for key in reversed(keys_before):
            best &= key == key[best].min()
        fits = fits & best
    fitting = capacity[fits]
    return np.flatnonzero(fits & (capacity == fitting.min())) if len(fitting) else NO_NODES


def _best_node(nodes: Vector, keys: list[NDArray[np.float64]]) -> int:
    """The best node without sorting all: by the last key, then by those before it, then by number."""
    while len(keys) > 1:
        *keys, key = keys
        best = key == key.min()
        nodes, keys = nodes[best], [other[best] for other in keys]
    # Of equal nodes, the first.
    return int(nodes[keys[0].argmin() if keys else 0])


def _fill_nodes(nodes: Vector, capacity: Vector, count: int) -> Vector:
    counts = np.minimum(capacity[nodes], count)
    ends = np.cumsum(counts)
    last = int(np.searchsorted(ends, count))
    if last < len(nodes):
        counts = counts[: last + 1].copy()
        counts[last] -= ends[last] - count
    return np.repeat(nodes[: len(counts)], counts)


def _free_shares(snapshot: ClusterSnapshot, shape: PodShape, nodes: Vector) -> list[NDArray[np.float64]]:
    """Free fractions as sort keys, the most important last: scarce resources, after all others."""
    keys: list[NDArray[np.float64]] = []
    for scarce in (False, True):
        rows = [
            snapshot.resource_rows[resource]
            for resource, _ in shape.requests
            if resource != PODS and is_scarce(resource) is scarce and resource in snapshot.resource_rows
        ]
        if rows:
            shares = [snapshot.free[row].take(nodes) / snapshot.allocatable.divisors[row].take(nodes) for row in rows]
            keys.append(sum(shares[1:], shares[0]))
    return keys


def _unused_scarce(snapshot: ClusterSnapshot, shape: PodShape) -> NDArray[np.int64] | None:
    """How many scarce resources each node has that the pod does not request; None if there are none."""
    requested = {resource for resource, _ in shape.requests}
    rows = [
        row for resource, row in snapshot.resource_rows.items() if is_scarce(resource) and resource not in requested
    ]
    if not rows:
        return None
    counts: NDArray[np.int64] = (snapshot.allocatable.amounts[rows] > 0).sum(axis=0)
    return counts
