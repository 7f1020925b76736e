"""How many volumes a node can have attached: every volume once, however many pods use it there."""

from collections.abc import Mapping

import numpy as np

from gangline.api.scheduler_views import CSISource
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.snapshot.node_table import Mask
from gangline.scheduler.snapshot.snapshot import Board


def attachable(board: Board, shape: Shape) -> Mask | None:
    """Nodes to which all its volumes can be attached beside those that are there. None: all of them."""
    wanted = _sources(board, shape)
    if not wanted or not board.volumes.limits:
        return None
    attached = _attached(board)
    found = np.ones(len(board.layout), dtype=np.bool_)
    for name, limits in board.volumes.limits.items():
        number = board.layout.number.get(name)
        if number is not None:
            found[number] = _fits(wanted, attached.get(number, set()), limits)
    return found


def _fits(wanted: set[CSISource], there: set[CSISource], limits: Mapping[str, int]) -> bool:
    return all(
        sum(each.driver == driver for each in wanted | there) <= limits[driver]
        for driver in {each.driver for each in wanted - there}
        if driver in limits
    )


def _attached(board: Board) -> dict[int, set[CSISource]]:
    """What is attached to every node, by its number."""
    found: dict[int, set[CSISource]] = {}
    for (namespace, claim), users in board.population.claims.items():
        source = board.volumes.source(namespace, claim)
        if source is not None:
            for each in users.values():
                if each.uid not in board.gone and each.node in board.layout.number:
                    found.setdefault(board.layout.number[each.node], set()).add(source)
    for came in board.came:
        sources = _sources(board, came.shape)
        for number in np.unique(came.nodes).tolist() if sources else ():
            found.setdefault(number, set()).update(sources)
    return found


def _sources(board: Board, shape: Shape) -> set[CSISource]:
    found = (board.volumes.source(shape.namespace, claim) for claim in shape.claims)
    return {each for each in found if each is not None}
