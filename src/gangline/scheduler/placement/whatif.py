"""What-if questions on one snapshot: does a gang fit, what if it were placed, what if pods were evicted."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.placement.gang_placement import best_effort_placement, gang_placement
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import BoundPod, GangRequest, Placement, Shortage, Vector
from gangline.scheduler.types.shape import PodShape


class WhatIf:
    """Places gangs on one snapshot, and counts what has been placed."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        pods: Mapping[str, BoundPod],
        nominated: Sequence[BoundPod] = (),
        terminating: Collection[str] = (),
    ) -> None:
        self._snapshot, self._pods, self._nominated = snapshot, pods, nominated
        self._reserved: list[tuple[PodShape, Vector]] = []
        # The snapshot without the pods last evicted in a what-if: the same set is used again and again in one cycle.
        self._after_eviction: tuple[frozenset[str], ClusterSnapshot] | None = None
        self.terminating: Collection[str] = terminating
        """Uids of terminating pods. Their resources are used until they are gone."""

    @property
    def node_names(self) -> Sequence[str]:
        """Number of a node -> its name."""
        return self._snapshot.nodes.names

    def bound_pod(self, uid: str) -> BoundPod | None:
        """The pod with this uid, if it uses resources."""
        return self._pods.get(uid)

    def place(self, request: GangRequest) -> Placement | Shortage:
        """A placement of the required members and as many others as fit, or why there is none.

        Changes nothing. The same snapshot and the same requests in the same order give the same placements.
        """
        return gang_placement(self._snapshot_for(request), request)

    def place_after_eviction(self, request: GangRequest, evicted: Collection[str]) -> Placement | Shortage:
        """The same as if these pods were gone."""
        return gang_placement(self._snapshot_for(request, self._snapshot_without(evicted)), request)

    def _snapshot_without(self, evicted: Collection[str]) -> ClusterSnapshot:
        """A copy of the snapshot without these pods. For equal frozen sets they are removed only once."""
        if self._after_eviction is not None and isinstance(evicted, frozenset) and self._after_eviction[0] == evicted:
            return self._after_eviction[1].copy()
        snapshot = self._snapshot.copy()
        snapshot.remove_pods(self._bound_pods(evicted))
        if isinstance(evicted, frozenset):
            self._after_eviction = evicted, snapshot.copy()
        return snapshot

    def assume(self, request: GangRequest, placement: Placement) -> None:
        """Count this placement from now on, even if pods must leave first."""
        for pod_set, nodes in zip(request.pod_sets, placement.nodes, strict=True):
            self._snapshot.assume(pod_set.shape, nodes)
            if self._after_eviction is not None:
                self._after_eviction[1].assume(pod_set.shape, nodes)

    def reserve(self, request: GangRequest) -> None:
        """Keep as much as there is of what the request needs, until `release`."""
        self._after_eviction = None
        placement = best_effort_placement(self._snapshot_for(request), request)
        for pod_set, nodes in zip(request.pod_sets, placement.nodes, strict=True):
            self._snapshot.assume(pod_set.shape, nodes, tentative=True)
            self._reserved.append((pod_set.shape, nodes))

    def release(self) -> None:
        """Give up everything reserved."""
        self._after_eviction = None
        for shape, nodes in self._reserved:
            self._snapshot.forget(shape, nodes)
        self._reserved.clear()

    def total(self) -> Mapping[str, int]:
        """What all usable nodes can allocate together, by resource."""
        return self._usable_totals(self._snapshot.allocatable.amounts)

    def free(self) -> Mapping[str, int]:
        """What of that is free; an overcommitted node counts as full."""
        return self._usable_totals(np.maximum(self._snapshot.free, 0))

    def _usable_totals(self, table: NDArray[np.int64]) -> Mapping[str, int]:
        usable = table @ self._snapshot.nodes.usable
        return {resource: int(usable[row]) for resource, row in sorted(self._snapshot.resource_rows.items())}

    def _bound_pods(self, uids: Iterable[str]) -> list[BoundPod]:
        return [pod for uid in dict.fromkeys(uids) if (pod := self._pods.get(uid)) is not None]

    def _snapshot_for(self, request: GangRequest, snapshot: ClusterSnapshot | None = None) -> ClusterSnapshot:
        """The snapshot minus capacity nominated by kube-scheduler for pods of equal or higher priority.

        A snapshot given by the caller is changed in place; our own is copied first.
        """
        removed = (self._snapshot if snapshot is None else snapshot).removed_uids
        nominated = [pod for pod in self._nominated if pod.priority >= request.priority and pod.uid not in removed]
        if not nominated:
            return self._snapshot if snapshot is None else snapshot
        reduced = self._snapshot.copy() if snapshot is None else snapshot
        for pod in sorted(nominated, key=lambda pod: pod.uid):
            number = reduced.nodes.index_of.get(pod.node)
            if number is not None:
                reduced.assume(pod.shape, np.array([number], dtype=np.int64), tentative=True)
        return reduced
