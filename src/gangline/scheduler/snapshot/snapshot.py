"""How full the nodes are, and what a decision does to that. Cheap to copy: a decision is tried on a copy."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.snapshot.node_table import Layout
from gangline.scheduler.snapshot.pod_index import Population
from gangline.scheduler.snapshot.volumes import Volumes
from gangline.scheduler.types.cycle import Resident, Vector


class Came(NamedTuple):
    """Pods that came since the snapshot."""

    shape: Shape
    nodes: Vector
    # Nominated only: they keep others away, but nobody may count on them.
    promised: bool = False


class Offer(NamedTuple):
    """What nodes have in all: amounts are rows, nodes are columns."""

    amounts: NDArray[np.int64]
    # The same, fit to divide by.
    sizes: NDArray[np.float64]


class Board:
    """Room on every node. Amounts are rows, nodes are columns."""

    __slots__ = ("came", "free", "gone", "layout", "offer", "population", "rows", "shy", "volumes")

    def __init__(
        self,
        layout: Layout,
        rows: Mapping[str, int],
        offer: Offer,
        free: NDArray[np.int64],
        population: Population,
        volumes: Volumes,
    ) -> None:
        self.layout, self.rows, self.offer, self.free = layout, rows, offer, free
        self.population, self.volumes = population, volumes
        # Since the snapshot: who came, where; and which residents are thought away.
        self.came: list[Came] = []
        # Those of them that keep others away.
        self.shy: list[Came] = []
        self.gone: frozenset[str] = frozenset()

    def copy(self) -> "Board":
        other = copy(self)
        other.free, other.came, other.shy = self.free.copy(), self.came.copy(), self.shy.copy()
        return other

    def put(self, shape: Shape, nodes: Vector, *, promised: bool = False) -> None:
        """From now on pods of this shape are on these nodes. Room may become less than nothing."""
        if len(nodes):
            self._shift(shape.requests, nodes, -1)
            came = Came(shape, nodes, promised)
            self.came.append(came)
            if shape.peers.anti:
                self.shy.append(came)

    def lift(self, shape: Shape, nodes: Vector) -> None:
        """Undo a `put` of the same shape and nodes."""
        if len(nodes):
            self._shift(shape.requests, nodes, 1)
            self.came = [each for each in self.came if each.nodes is not nodes]
            self.shy = [each for each in self.shy if each.nodes is not nodes]

    def without(self, residents: Iterable[Resident]) -> None:
        """As if these had left."""
        left = [each for each in residents if each.uid not in self.gone]
        self._move(left, 1)
        self.gone = self.gone.union(each.uid for each in left)

    def again(self, residents: Iterable[Resident]) -> None:
        """Those are back."""
        back = [each for each in residents if each.uid in self.gone]
        self._move(back, -1)
        self.gone = self.gone.difference(each.uid for each in back)

    def _move(self, residents: Iterable[Resident], sign: int) -> None:
        """Room of residents, given back or taken. Those that are only nominated took none."""
        number = self.layout.number
        by_shape: dict[Shape, list[int]] = {}
        for each in residents:
            at = number.get(each.node)
            if at is not None and not each.nominated:
                by_shape.setdefault(each.shape, []).append(at)
        # Many shapes ask for the same: preemption thinks tens of thousands away at once.
        alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for shape, numbers in by_shape.items():
            alike.setdefault(shape.requests, []).extend(numbers)
        for requests, numbers in alike.items():
            self._shift(requests, np.array(numbers, dtype=np.int64), sign)

    def _shift(self, requests: tuple[tuple[str, int], ...], nodes: Vector, sign: int) -> None:
        """More or less room, by one pod for each entry of `nodes`."""
        for resource, amount in requests:
            row = self.rows.get(resource)
            if row is not None:
                # A node may be there more than once. Costs what is moved, not what there is.
                np.add.at(self.free[row], nodes, sign * amount)


def capacity(board: Board, shape: Shape) -> Vector:
    """How many pods of a shape every node has room for, by amounts alone."""
    found: Vector | None = None
    for resource, amount in shape.requests:
        row = board.rows.get(resource)
        if row is None:
            return np.zeros(len(board.layout), dtype=np.int64)
        # Of pods, and mostly of GPUs, one is asked for: dividing costs more than all the rest.
        each = board.free[row] // amount if amount != 1 else board.free[row]
        found = each if found is None else np.minimum(found, each)
    if found is None:
        return np.full(len(board.layout), np.iinfo(np.int32).max, dtype=np.int64)
    # A vector of its own, which whoever asked may change.
    return np.maximum(found, 0)
