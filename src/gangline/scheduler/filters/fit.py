"""How many pods of a shape every node takes, all things considered; and for one that takes none, why."""

from collections.abc import Iterator

import numpy as np

from gangline.scheduler.filters.affinity import rules_for
from gangline.scheduler.filters.provision import provided
from gangline.scheduler.filters.rules import Rule, Together
from gangline.scheduler.filters.scoring import NOWHERE, pack, ranked, scarce
from gangline.scheduler.filters.volumes import attachable
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.snapshot.node_table import Mask, Whys, mark
from gangline.scheduler.snapshot.pod_index import clash
from gangline.scheduler.snapshot.snapshot import Board, capacity
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.reasons import WORDS, Reason, lack
from gangline.scheduler.types.resources import PODS

_SHORT = np.ones(1, dtype=np.bool_)


class Fit:
    """One shape on one board. `ground`: the nodes that come into question; all within one domain of `key`."""

    def __init__(self, board: Board, shape: Shape, ground: Mask | None = None, key: str = "") -> None:
        self._board, self._shape = board, shape
        self._limit = _limit(board, shape, ground)
        self._rules = rules_for(board, shape)
        for rule in self._rules:
            if isinstance(rule, Together):
                rule.settle(key)

    def room(self, *, unmet: bool = True) -> Vector:
        """How many each node takes; where rules between pods change with every pod, at most so many.

        `unmet`: also look at whether those are there whom it wants to be with. Else they are to come.
        """
        found = self._limit
        for rule in self._rules:
            if not unmet and isinstance(rule, Together):
                continue
            found = found * rule.allowed()
            if rule.reason is Reason.ANTI and rule.moving:
                found = np.minimum(found, 1)
        return found

    def spots(self, count: int, first: Vector | None = None) -> Vector:
        """Nodes for up to `count` pods, one entry for each; those low in `first` before others."""
        if count <= 0:
            return NOWHERE
        moving = [rule for rule in self._rules if rule.moving]
        if not moving:
            return pack(self._board, self._shape, self.room(), count, first)
        return self._step(moving, count, first)

    def _step(self, moving: list[Rule], count: int, first: Vector | None) -> Vector:
        """One pod after the other, as every one changes what the next may do."""
        limit = self._limit
        for rule in self._rules:
            if not rule.moving:
                limit = limit * rule.allowed()
        nodes = ranked(self._board, self._shape, limit, first)
        left = limit[nodes]
        found: list[int] = []
        while len(found) < count and len(nodes):
            fits = left > 0
            for rule in moving:
                fits &= rule.allowed(nodes)
            at = int(fits.argmax())
            if not fits[at]:
                break
            left[at] -= 1
            found.append(int(nodes[at]))
            for rule in moving:
                rule.add(found[-1])
        return np.array(found, dtype=np.int64)


def _limit(board: Board, shape: Shape, ground: Mask | None) -> Vector:
    """How many each node takes as far as nobody else's pods matter, but for their amounts and ports."""
    found = capacity(board, shape)
    found *= board.layout.view(shape.where).mask
    if ground is not None:
        found *= ground
    if shape.ports:
        np.minimum(found, ports_free(board, shape), out=found)
    for mask, _ in _volumes(board, shape):
        found *= mask
    return found


def _volumes(board: Board, shape: Shape) -> Iterator[tuple[Mask, Reason]]:
    """Nodes that its volumes allow, and what speaks against the others."""
    if shape.claims:
        for mask, why in (
            (attachable(board, shape), Reason.ATTACHED),
            (board.volumes.reach(board.layout, shape), Reason.VOLUME),
            (provided(board, shape), Reason.VOLUME),
        ):
            if mask is not None:
                yield mask, why


def ports_free(board: Board, shape: Shape) -> Mask:
    """Nodes on which nobody has a port that the shape wants. There is never room for two of it."""
    free = np.ones(len(board.layout), dtype=np.bool_)
    for resident in board.population.holding_ports.values():
        number = board.layout.number.get(resident.node)
        if number is not None and resident.uid not in board.gone and _clash(shape, resident.shape):
            free[number] = False
    for came in board.came:
        if came.shape.ports and _clash(shape, came.shape):
            free[came.nodes] = False
    return free


def _clash(ours: Shape, theirs: Shape) -> bool:
    return any(clash(mine, other) for mine in ours.ports for other in theirs.ports)


def histogram(
    board: Board, shape: Shape, ground: Mask | None = None, reason: Reason = Reason.DOMAIN
) -> dict[str, int]:
    """Reason -> number of nodes, each node under the first reason that holds of it; `reason`: outside the ground."""
    whys: Whys = board.layout.view(shape.where).whys.copy()
    if shape.ports:
        mark(whys, ~ports_free(board, shape), Reason.PORT)
    # What is rarest says most; the number of pods comes last.
    order = sorted(
        (name for name, _ in shape.requests), key=lambda name: (name == PODS, not scarce(name), name)
    )
    wanted = dict(shape.requests)
    for number, resource in enumerate(order):
        row = board.rows.get(resource)
        short = _SHORT if row is None else board.free[row] < wanted[resource]
        mark(whys, np.broadcast_to(short, whys.shape), Reason.LACK + number)
    for mask, why in _volumes(board, shape):
        mark(whys, ~mask, why)
    if ground is not None:
        mark(whys, ~ground, reason)
    for rule in rules_for(board, shape):
        mark(whys, ~rule.allowed(), rule.reason)
    counts = np.bincount(whys)
    return {
        lack(order[why - Reason.LACK]) if why >= Reason.LACK else WORDS[why]: int(counts[why])
        for why in np.flatnonzero(counts).tolist()
        if why
    }
