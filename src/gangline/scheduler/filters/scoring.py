"""Which of the nodes with room are taken first: few nodes, the fullest ones, and none that others need more."""

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
    """Whether it is one of those that few nodes have: GPUs and the like."""
    return resource not in _COMMON_RESOURCES and not resource.startswith("hugepages-")


def packed_nodes(
    board: ClusterSnapshot, shape: PodShape, room: Vector, count: int, first: Vector | None = None
) -> Vector:
    """Nodes for up to `count` pods, one entry for each pod.

    One node for all of them if there is one, the tightest; else the fullest nodes first. Before that come `first`
    (lower is better) and what the pods prefer; and pods that need no GPU leave nodes with GPUs for last.
    """
    if count <= 0:
        return NO_NODES
    fits = room >= count
    whole = _tightest_nodes(_priority_keys(board, shape, first), room, fits) if fits.any() else NO_NODES
    if len(whole):
        keys = _free_shares(board, shape, whole) if len(whole) > 1 else []
        return np.full(count, _best_node(whole, keys), dtype=np.int64)
    return _fill_nodes(ranked_nodes(board, shape, room, first), room, count)


def ranked_nodes(board: ClusterSnapshot, shape: PodShape, room: Vector, first: Vector | None = None) -> Vector:
    """All nodes with room, in the order in which they should be taken."""
    nodes = np.flatnonzero(room)
    ahead = (key[nodes] for key in _priority_keys(board, shape, first))
    return nodes[np.lexsort((nodes, *_free_shares(board, shape, nodes), *ahead))]


def _priority_keys(board: ClusterSnapshot, shape: PodShape, first: Vector | None) -> list[Vector]:
    """What counts more than packing, for every node, the most important last."""
    liking = board.nodes.filter_result(shape.node_constraints).scores
    keys = (_unused_scarce(board, shape), None if liking is None else -liking, first)
    return [key for key in keys if key is not None]


def _tightest_nodes(ahead: list[Vector], room: Vector, fits: Mask) -> Vector:
    """The tightest nodes that take all, of those that nothing more important speaks against. Some take all."""
    if ahead:
        best = room > 0
        for key in reversed(ahead):
            best &= key == key[best].min()
        fits = fits & best
    left = room[fits]
    return np.flatnonzero(fits & (room == left.min())) if len(left) else NO_NODES


def _best_node(nodes: Vector, keys: list[NDArray[np.float64]]) -> int:
    """The best one, without sorting them all: by the last key, then by those before it, then by number."""
    while len(keys) > 1:
        *keys, key = keys
        best = key == key.min()
        nodes, keys = nodes[best], [each[best] for each in keys]
    # Of equal ones, the one that comes first.
    return int(nodes[keys[0].argmin() if keys else 0])


def _fill_nodes(nodes: Vector, room: Vector, count: int) -> Vector:
    each = np.minimum(room[nodes], count)
    upto = np.cumsum(each)
    last = int(np.searchsorted(upto, count))
    if last < len(nodes):
        each = each[: last + 1].copy()
        each[last] -= upto[last] - count
    return np.repeat(nodes[: len(each)], each)


def _free_shares(board: ClusterSnapshot, shape: PodShape, nodes: Vector) -> list[NDArray[np.float64]]:
    """Shares that are free, the most important last: GPUs and the like, then the rest."""
    keys: list[NDArray[np.float64]] = []
    for wanted in (False, True):
        rows = [
            board.resource_rows[resource]
            for resource, _ in shape.requests
            if resource != PODS and is_scarce(resource) is wanted and resource in board.resource_rows
        ]
        if rows:
            shares = [board.free[row].take(nodes) / board.allocatable.divisors[row].take(nodes) for row in rows]
            keys.append(sum(shares[1:], shares[0]))
    return keys


def _unused_scarce(board: ClusterSnapshot, shape: PodShape) -> NDArray[np.int64] | None:
    """How many scarce things each node has that such a pod does not use."""
    asked = {resource for resource, _ in shape.requests}
    rows = [row for resource, row in board.resource_rows.items() if is_scarce(resource) and resource not in asked]
    if not rows:
        return None
    found: NDArray[np.int64] = (board.allocatable.amounts[rows] > 0).sum(axis=0)
    return found
