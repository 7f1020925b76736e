"""How many volumes a node can have attached: every volume once, however many pods use it there."""

from collections.abc import Mapping

import numpy as np

from gangline.api.scheduler_views import CSIVolumeSource
from gangline.scheduler.pods.shape import PodShape
from gangline.scheduler.snapshot.node_table import Mask
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot


def attachable_nodes(board: ClusterSnapshot, shape: PodShape) -> Mask | None:
    """Nodes to which all its volumes can be attached beside those that are there. None: all of them."""
    wanted = _csi_sources(board, shape)
    if not wanted or not board.volumes.attach_limits:
        return None
    attached = _attached_sources(board)
    found = np.ones(len(board.nodes), dtype=np.bool_)
    for name, limits in board.volumes.attach_limits.items():
        number = board.nodes.index_of.get(name)
        if number is not None:
            found[number] = _within_limits(wanted, attached.get(number, set()), limits)
    return found


def _within_limits(wanted: set[CSIVolumeSource], there: set[CSIVolumeSource], limits: Mapping[str, int]) -> bool:
    return all(
        sum(each.driver == driver for each in wanted | there) <= limits[driver]
        for driver in {each.driver for each in wanted - there}
        if driver in limits
    )


def _attached_sources(board: ClusterSnapshot) -> dict[int, set[CSIVolumeSource]]:
    """What is attached to every node, by its number."""
    found: dict[int, set[CSIVolumeSource]] = {}
    for (namespace, claim), users in board.pods.claim_users.items():
        source = board.volumes.csi_source(namespace, claim)
        if source is not None:
            for each in users.values():
                if each.uid not in board.removed_uids and each.node in board.nodes.index_of:
                    found.setdefault(board.nodes.index_of[each.node], set()).add(source)
    for came in board.assumed:
        sources = _csi_sources(board, came.shape)
        for number in np.unique(came.nodes).tolist() if sources else ():
            found.setdefault(number, set()).update(sources)
    return found


def _csi_sources(board: ClusterSnapshot, shape: PodShape) -> set[CSIVolumeSource]:
    found = (board.volumes.csi_source(shape.namespace, claim) for claim in shape.claims)
    return {each for each in found if each is not None}
