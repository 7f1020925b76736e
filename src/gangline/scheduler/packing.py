"""Which of the nodes with room are taken first: few nodes, the fullest ones, and none that others need more."""

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.board import Board
from gangline.scheduler.model import Vector
from gangline.scheduler.shape import Shape
from gangline.scheduler.units import CPU, PODS

_PLAIN = frozenset((CPU, "memory", "ephemeral-storage", PODS))
NOWHERE: Vector = np.empty(0, dtype=np.int64)


def scarce(resource: str) -> bool:
    """Whether it is one of those that few nodes have: GPUs and the like."""
    return resource not in _PLAIN and not resource.startswith("hugepages-")


def pack(board: Board, shape: Shape, room: Vector, count: int, first: Vector | None = None) -> Vector:
    """Nodes for up to `count` pods, one entry for each pod.

    One node for all of them if there is one, the tightest; else the fullest nodes first. Before that come `first`
    (lower is better) and what the pods prefer; and pods that need no GPU leave nodes with GPUs for last.
    """
    nodes = np.flatnonzero(room)
    if not len(nodes) or count <= 0:
        return NOWHERE
    ahead = _ahead(board, shape, nodes, first)
    whole = _whole(nodes, ahead, room, count)
    if len(whole):
        return np.repeat(_first(whole, _fullness(board, shape, whole)), count)
    order = np.lexsort((nodes, *_fullness(board, shape, nodes), *ahead))
    return _take(nodes[order], room, count)


def ranked(board: Board, shape: Shape, room: Vector, first: Vector | None = None) -> Vector:
    """All nodes with room, in the order in which they should be taken."""
    nodes = np.flatnonzero(room)
    keys = (*_fullness(board, shape, nodes), *_ahead(board, shape, nodes, first))
    return nodes[np.lexsort((nodes, *keys))]


def _ahead(board: Board, shape: Shape, nodes: Vector, first: Vector | None) -> list[Vector]:
    """What counts more than packing, the most important last."""
    keys = []
    wasted = _wasted(board, shape)
    if wasted is not None:
        keys.append(wasted[nodes])
    liking = board.layout.view(shape.where).liking
    if liking is not None:
        keys.append(-liking[nodes])
    if first is not None:
        keys.append(first[nodes])
    return keys


def _whole(nodes: Vector, ahead: list[Vector], room: Vector, count: int) -> Vector:
    """The tightest nodes that take all, of those that nothing more important speaks against."""
    best = np.ones(len(nodes), dtype=np.bool_)
    for key in reversed(ahead):
        best &= key == key[best].min()
    found = nodes[best & (room[nodes] >= count)]
    return found[room[found] == room[found].min()] if len(found) else found


def _first(nodes: Vector, keys: list[NDArray[np.float64]]) -> Vector:
    """The best one, without sorting them all: by the last key, then by those before it, then by number."""
    while keys:
        *keys, key = keys
        best = key == key.min()
        nodes, keys = nodes[best], [each[best] for each in keys]
    return nodes[:1]


def _take(nodes: Vector, room: Vector, count: int) -> Vector:
    each = np.minimum(room[nodes], count)
    upto = np.cumsum(each)
    last = int(np.searchsorted(upto, count))
    if last < len(nodes):
        each = each[: last + 1].copy()
        each[last] -= upto[last] - count
    return np.repeat(nodes[: len(each)], each)


def _fullness(board: Board, shape: Shape, nodes: Vector) -> list[NDArray[np.float64]]:
    """Shares that are free, the most important last: GPUs and the like, then the rest."""
    keys: list[NDArray[np.float64]] = []
    for wanted in (False, True):
        rows = [
            board.rows[resource]
            for resource, _ in shape.requests
            if resource != PODS and scarce(resource) is wanted and resource in board.rows
        ]
        if rows:
            # Whole rows: adding all nodes up is faster than picking some.
            free = board.free[rows[0]] / board.offer.sizes[rows[0]]
            for row in rows[1:]:
                free += board.free[row] / board.offer.sizes[row]
            keys.append(free[nodes])
    return keys


def _wasted(board: Board, shape: Shape) -> NDArray[np.int64] | None:
    """How many scarce things each node has that such a pod does not use."""
    asked = {resource for resource, _ in shape.requests}
    rows = [row for resource, row in board.rows.items() if scarce(resource) and resource not in asked]
    if not rows:
        return None
    found: NDArray[np.int64] = (board.offer.amounts[rows] > 0).sum(axis=0)
    return found
