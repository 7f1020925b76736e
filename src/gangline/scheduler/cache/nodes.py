"""Nodes and who is on them, kept up to date change by change. No I/O; every decision is made on a `Trial`."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.api.meta import Key
from gangline.api.scheduler_views import Claim, CSINode, Node, PersistentVolume, StorageClass
from gangline.scheduler.placement.whatif import Trial
from gangline.scheduler.snapshot.node_info import Site, site_of
from gangline.scheduler.snapshot.node_table import Layout
from gangline.scheduler.snapshot.pod_index import Population
from gangline.scheduler.snapshot.snapshot import Board, Offer
from gangline.scheduler.snapshot.volumes import Volumes
from gangline.scheduler.types.cycle import Resident
from gangline.scheduler.types.resources import PODS, amounts


class Cluster:
    """The world as a scheduler sees it.

    Nodes and pods may come in any order; what is said of a pod or node replaces what was said before, and saying
    the same again changes nothing. The order in which things came never shows in a decision.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {PODS: 0}
        # A node has a slot from when it is first named, by itself or by a pod on it.
        self._slots: dict[str, int] = {}
        self._spare: list[int] = []
        self._offered = np.zeros((4, 16), dtype=np.int64)
        self._used = np.zeros((4, 16), dtype=np.int64)
        self._sites: dict[str, Site] = {}
        self._residents: dict[str, Resident] = {}
        self._on: dict[str, int] = {}
        self._nominated: dict[str, Resident] = {}
        self._leaving: dict[str, None] = {}
        self._population = Population()
        self._volumes = Volumes()
        self._layout: Layout | None = None
        self._offer: Offer | None = None
        self._order: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._version = 0

    @property
    def version(self) -> int:
        """Grows with every change that may matter to a decision."""
        return self._version

    @property
    def names(self) -> Sequence[str]:
        """Number of a node -> its name."""
        return self._laid_out().names

    @property
    def asked(self) -> frozenset[str]:
        """Labels that rules of residents ask for: `keep` of `shape_of`."""
        return self._population.asked

    def __len__(self) -> int:
        return len(self._sites)

    def put_node(self, node: Node) -> None:
        """Raises `QuantityError`, and then changes nothing."""
        name, site = node.metadata.name, site_of(node)
        column = self._column(amounts(node.status.allocatable))
        slot = self._slot(name)
        if self._sites.get(name) != site:
            self._sites[name] = site
            self._layout = None
        elif np.array_equal(self._offered[:, slot], column):
            return
        self._offered[:, slot] = column
        self._offer = None
        self._version += 1

    def drop_node(self, name: str) -> None:
        if self._sites.pop(name, None) is None:
            return
        self._layout = None
        self._offered[:, self._slots[name]] = 0
        self._free_slot(name)
        self._version += 1

    def put_pod(self, resident: Resident) -> None:
        """Somebody holds room, or is nominated to."""
        before = self._residents.get(resident.uid)
        if before == resident:
            return
        if before is not None:
            self._forget(before)
        self._residents[resident.uid] = resident
        if resident.nominated:
            self._nominated[resident.uid] = resident
        else:
            self._count(resident, 1)
            self._population.add(resident)
        if resident.terminating:
            self._leaving[resident.uid] = None
        self._version += 1

    def drop_pod(self, uid: str) -> None:
        before = self._residents.pop(uid, None)
        if before is not None:
            self._forget(before)
            self._version += 1

    def resident(self, uid: str) -> Resident | None:
        return self._residents.get(uid)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Labels of a namespace, for rules that choose namespaces by them."""
        if self._population.namespaces.get(name) != labels:
            self._population.namespaces[name] = labels
            self._version += 1

    def drop_namespace(self, name: str) -> None:
        if self._population.namespaces.pop(name, None) is not None:
            self._version += 1

    def put_claim(self, claim: Claim) -> None:
        self._version += self._volumes.put_claim(claim)

    def drop_claim(self, key: Key) -> None:
        self._version += self._volumes.drop_claim(key)

    def put_volume(self, volume: PersistentVolume) -> None:
        self._version += self._volumes.put_volume(volume)

    def drop_volume(self, name: str) -> None:
        self._version += self._volumes.drop_volume(name)

    def put_class(self, storage: StorageClass) -> None:
        self._version += self._volumes.put_class(storage)

    def drop_class(self, name: str) -> None:
        self._version += self._volumes.drop_class(name)

    def put_limits(self, node: CSINode) -> None:
        """How many volumes can be attached to a node."""
        self._version += self._volumes.put_limits(node)

    def drop_limits(self, name: str) -> None:
        self._version += self._volumes.drop_limits(name)

    def trial(self) -> Trial:
        """A what-if on this moment. It must not be used any more once the cluster has changed."""
        layout, offer = self._laid_out(), self._offer_now()
        free = offer.amounts - self._used[: len(self._rows), self._order]
        board = Board(layout, dict(self._rows), offer, free, self._population, self._volumes)
        return Trial(board, self._residents, tuple(self._nominated.values()), tuple(self._leaving))

    def _laid_out(self) -> Layout:
        if self._layout is None:
            self._layout = Layout(self._sites)
            self._order = np.array([self._slots[name] for name in self._layout.names], dtype=np.intp)
            self._offer = None
        return self._layout

    def _offer_now(self) -> Offer:
        """Nodes seldom change what they offer, and a snapshot is taken many times a second."""
        if self._offer is None or len(self._offer.amounts) != len(self._rows):
            amounts = self._offered[: len(self._rows), self._order]
            self._offer = Offer(amounts, np.maximum(amounts, 1).astype(np.float64))
        return self._offer

    def _forget(self, resident: Resident) -> None:
        self._leaving.pop(resident.uid, None)
        if self._nominated.pop(resident.uid, None) is None:
            self._population.remove(resident)
            self._count(resident, -1)
            self._free_slot(resident.node)

    def _count(self, resident: Resident, sign: int) -> None:
        """Add to, or take from, what is used on its node."""
        slot = self._slot(resident.node)
        for resource, amount in resident.shape.requests:
            # First the row: a new resource may move the table.
            row = self._row(resource)
            self._used[row, slot] += sign * amount
        self._on[resident.node] = self._on.get(resident.node, 0) + sign

    def _slot(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._spare.pop() if self._spare else len(self._slots)
            self._slots[name] = slot
            if slot >= self._used.shape[1]:
                self._grow(self._used.shape[0], 2 * self._used.shape[1])
        return slot

    def _free_slot(self, name: str) -> None:
        """Give a slot back when neither the node nor a pod on it is left."""
        if name not in self._sites and not self._on.get(name):
            self._on.pop(name, None)
            self._spare.append(self._slots.pop(name))

    def _row(self, resource: str) -> int:
        row = self._rows.setdefault(resource, len(self._rows))
        if row >= self._used.shape[0]:
            self._grow(2 * self._used.shape[0], self._used.shape[1])
        return row

    def _column(self, offered: Mapping[str, int]) -> NDArray[np.int64]:
        rows = {self._row(resource): amount for resource, amount in offered.items()}
        column = np.zeros(self._offered.shape[0], dtype=np.int64)
        for row, amount in rows.items():
            column[row] = amount
        return column

    def _grow(self, rows: int, slots: int) -> None:
        self._offered = _grown(self._offered, rows, slots)
        self._used = _grown(self._used, rows, slots)


def _grown(table: NDArray[np.int64], rows: int, slots: int) -> NDArray[np.int64]:
    found = np.zeros((rows, slots), dtype=np.int64)
    found[: table.shape[0], : table.shape[1]] = table
    return found
