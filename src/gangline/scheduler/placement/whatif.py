"""A what-if on one snapshot of a cluster: would it fit, what if it did, what if others left."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.placement.gang_placement import best_effort_placement, gang_placement
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import BoundPod, GangRequest, Placement, Shortage, Vector
from gangline.scheduler.types.shape import PodShape


class WhatIf:
    """Decides on one snapshot, and remembers what was decided."""

    def __init__(
        self,
        board: ClusterSnapshot,
        residents: Mapping[str, BoundPod],
        nominated: Sequence[BoundPod] = (),
        leaving: Collection[str] = (),
    ) -> None:
        self._snapshot, self._pods, self._nominated = board, residents, nominated
        self._reserved: list[tuple[PodShape, Vector]] = []
        # The board without those for whose leaving somebody last waited: asked about again and again in one round.
        self._after_eviction: tuple[frozenset[str], ClusterSnapshot] | None = None
        self.terminating: Collection[str] = leaving
        """Residents that are on their way out. Their room is used until they are gone."""

    @property
    def node_names(self) -> Sequence[str]:
        """Number of a node -> its name."""
        return self._snapshot.nodes.names

    def bound_pod(self, uid: str) -> BoundPod | None:
        """Whoever has this uid, if it holds room."""
        return self._pods.get(uid)

    def place(self, ask: GangRequest) -> Placement | Shortage:
        """Places for at least `least` members and the least of every role, and as many more as fit; or why not.

        Changes nothing. The same snapshot and the same asks in the same order give the same places, always.
        """
        return gang_placement(self._snapshot_for(ask), ask)

    def place_after_eviction(self, ask: GangRequest, leaving: Collection[str]) -> Placement | Shortage:
        """The same, as if these residents had left."""
        return gang_placement(self._snapshot_for(ask, self._snapshot_without(leaving)), ask)

    def _snapshot_without(self, leaving: Collection[str]) -> ClusterSnapshot:
        """A board of its own, without these. Of an equal frozen set it is made once."""
        if self._after_eviction is not None and isinstance(leaving, frozenset) and self._after_eviction[0] == leaving:
            return self._after_eviction[1].copy()
        board = self._snapshot.copy()
        board.remove_pods(self._bound_pods(leaving))
        if isinstance(leaving, frozenset):
            self._after_eviction = leaving, board.copy()
        return board

    def assume(self, ask: GangRequest, placement: Placement) -> None:
        """From now on these places are used, even if somebody must leave them first."""
        for need, nodes in zip(ask.pod_sets, placement.nodes, strict=True):
            self._snapshot.assume(need.shape, nodes)
            if self._after_eviction is not None:
                self._after_eviction[1].assume(need.shape, nodes)

    def reserve(self, ask: GangRequest) -> None:
        """Keep as much of what it needs as there is for it, until `release`."""
        self._after_eviction = None
        found = best_effort_placement(self._snapshot_for(ask), ask)
        for need, nodes in zip(ask.pod_sets, found.nodes, strict=True):
            self._snapshot.assume(need.shape, nodes, promised=True)
            self._reserved.append((need.shape, nodes))

    def release(self) -> None:
        """Nothing is held any more."""
        self._after_eviction = None
        for shape, nodes in self._reserved:
            self._snapshot.forget(shape, nodes)
        self._reserved.clear()

    def total(self) -> Mapping[str, int]:
        """What all usable nodes offer together, by resource."""
        return self._usable_totals(self._snapshot.allocatable.amounts)

    def free(self) -> Mapping[str, int]:
        """What is left of that; a node that is over-full counts as full."""
        return self._usable_totals(np.maximum(self._snapshot.free, 0))

    def _usable_totals(self, table: NDArray[np.int64]) -> Mapping[str, int]:
        usable = table @ self._snapshot.nodes.usable
        return {resource: int(usable[row]) for resource, row in sorted(self._snapshot.resource_rows.items())}

    def _bound_pods(self, uids: Iterable[str]) -> list[BoundPod]:
        return [found for uid in dict.fromkeys(uids) if (found := self._pods.get(uid)) is not None]

    def _snapshot_for(self, ask: GangRequest, board: ClusterSnapshot | None = None) -> ClusterSnapshot:
        """The board with the room of those gone that kube-scheduler has promised to pods that are not less important."""
        seen = self._snapshot if board is None else board
        promised = [
            each for each in self._nominated if each.priority >= ask.priority and each.uid not in seen.removed_uids
        ]
        if not promised:
            return seen
        seen = seen.copy() if board is None else seen
        for each in sorted(promised, key=lambda each: each.uid):
            number = seen.nodes.index_of.get(each.node)
            if number is not None:
                seen.assume(each.shape, np.array([number], dtype=np.int64), promised=True)
        return seen
