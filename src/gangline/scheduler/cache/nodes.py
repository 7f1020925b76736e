"""Nodes and the pods on them, kept current change by change. No I/O; placements are tried on a `WhatIf`."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gangline.api.scheduler_views import Namespace, Node
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.snapshot.node_info import NodeInfo, node_info
from gangline.scheduler.snapshot.node_table import NodeTable
from gangline.scheduler.snapshot.pod_index import PodIndex
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot, NodeAllocatable
from gangline.scheduler.snapshot.volumes import VolumeCache
from gangline.scheduler.types.cycle import BoundPod
from gangline.scheduler.types.resources import PODS, amounts
from gangline.scheduler.types.tracked import TrackedObjects, name_of


class NodeCache:
    """Nodes, pods, volumes and namespaces.

    Objects may come in any order; an update replaces what was known, and a repeated one changes nothing. Decisions do
    not depend on the order in which objects came.
    """

    def __init__(self) -> None:
        self._resource_rows: dict[str, int] = {PODS: 0}
        # A node has a slot as soon as it, or a pod on it, is first seen.
        self._slots: dict[str, int] = {}
        self._free_slots: list[int] = []
        self._allocatable = np.zeros((4, 16), dtype=np.int64)
        self._used = np.zeros((4, 16), dtype=np.int64)
        self._node_infos: dict[str, NodeInfo] = {}
        self._pods: dict[str, BoundPod] = {}
        self._pod_counts: dict[str, int] = {}
        self._nominated: dict[str, BoundPod] = {}
        self._terminating: dict[str, None] = {}
        self.namespaces = TrackedObjects[str, Namespace, Mapping[str, str]](name_of, _namespace_labels)
        self.volumes = VolumeCache()
        self._pod_index = PodIndex(self.namespaces.fields)
        self._node_table: NodeTable | None = None
        self._node_allocatable: NodeAllocatable | None = None
        self._slot_order: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._version = 0

    @property
    def version(self) -> int:
        """Grows with every change that may matter to a decision."""
        return self._version + self.namespaces.version + self.volumes.version

    @property
    def selected_labels(self) -> frozenset[str]:
        """Label keys that selectors of pods use: `selected_labels` of `shape_of`."""
        return self._pod_index.selected_labels

    def __len__(self) -> int:
        return len(self._node_infos)

    def put_node(self, node: Node) -> None:
        """Add or update a node. Raises `QuantityError`, and then changes nothing."""
        name, info = node.metadata.name, node_info(node)
        column = self._resource_column(amounts(node.status.allocatable))
        slot = self._slot_of(name)
        if self._node_infos.get(name) != info:
            self._node_infos[name] = info
            self._node_table = None
        elif np.array_equal(self._allocatable[:, slot], column):
            return
        self._allocatable[:, slot] = column
        self._node_allocatable = None
        self._version += 1

    def drop_node(self, name: str) -> None:
        if self._node_infos.pop(name, None) is None:
            return
        self._node_table = None
        self._allocatable[:, self._slots[name]] = 0
        self._release_slot(name)
        self._version += 1

    def put_pod(self, pod: BoundPod) -> None:
        """Add or update a pod that is bound, or nominated, to a node."""
        before = self._pods.get(pod.uid)
        if before == pod:
            return
        if before is not None:
            self._remove_pod(before)
        self._pods[pod.uid] = pod
        if pod.nominated:
            self._nominated[pod.uid] = pod
        else:
            self._add_usage(pod, 1)
            self._pod_index.add(pod)
        if pod.terminating:
            self._terminating[pod.uid] = None
        self._version += 1

    def drop_pod(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._remove_pod(before)
            self._version += 1

    def bound_pod(self, uid: str) -> BoundPod | None:
        return self._pods.get(uid)

    def what_if(self) -> WhatIf:
        """A what-if on the current state. It must not be used once the cache has changed."""
        nodes, allocatable = self._current_table(), self._current_allocatable()
        free = allocatable.amounts - self._used[: len(self._resource_rows), self._slot_order]
        snapshot = ClusterSnapshot(nodes, dict(self._resource_rows), allocatable, free, self._pod_index, self.volumes)
        return WhatIf(snapshot, self._pods, tuple(self._nominated.values()), tuple(self._terminating))

    def _current_table(self) -> NodeTable:
        if self._node_table is None:
            self._node_table = NodeTable(self._node_infos)
            self._slot_order = np.array([self._slots[name] for name in self._node_table.names], dtype=np.intp)
            self._node_allocatable = None
        return self._node_table

    def _current_allocatable(self) -> NodeAllocatable:
        """Cached: nodes seldom change what they can allocate, and a snapshot is taken many times a second."""
        if self._node_allocatable is None or len(self._node_allocatable.amounts) != len(self._resource_rows):
            amounts = self._allocatable[: len(self._resource_rows), self._slot_order]
            self._node_allocatable = NodeAllocatable(amounts, np.maximum(amounts, 1).astype(np.float64))
        return self._node_allocatable

    def _remove_pod(self, pod: BoundPod) -> None:
        self._terminating.pop(pod.uid, None)
        if self._nominated.pop(pod.uid, None) is None:
            self._pod_index.remove(pod)
            self._add_usage(pod, -1)
            self._release_slot(pod.node)

    def _add_usage(self, pod: BoundPod, sign: int) -> None:
        """Add `sign` times the pod's requests to what is used on its node."""
        slot = self._slot_of(pod.node)
        for resource, amount in pod.shape.requests:
            # The row first: a new resource may reallocate the table.
            row = self._row_of(resource)
            self._used[row, slot] += sign * amount
        self._pod_counts[pod.node] = self._pod_counts.get(pod.node, 0) + sign

    def _slot_of(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._slots)
            self._slots[name] = slot
            if slot >= self._used.shape[1]:
                self._grow(self._used.shape[0], 2 * self._used.shape[1])
        return slot

    def _release_slot(self, name: str) -> None:
        """Free the slot of a node when neither the node nor a pod on it is left."""
        if name not in self._node_infos and not self._pod_counts.get(name):
            self._pod_counts.pop(name, None)
            self._free_slots.append(self._slots.pop(name))

    def _row_of(self, resource: str) -> int:
        row = self._resource_rows.setdefault(resource, len(self._resource_rows))
        if row >= self._used.shape[0]:
            self._grow(2 * self._used.shape[0], self._used.shape[1])
        return row

    def _resource_column(self, allocatable: Mapping[str, int]) -> NDArray[np.int64]:
        rows = {self._row_of(resource): amount for resource, amount in allocatable.items()}
        column = np.zeros(self._allocatable.shape[0], dtype=np.int64)
        for row, amount in rows.items():
            column[row] = amount
        return column

    def _grow(self, rows: int, slots: int) -> None:
        self._allocatable = _enlarged_table(self._allocatable, rows, slots)
        self._used = _enlarged_table(self._used, rows, slots)


def _enlarged_table(table: NDArray[np.int64], rows: int, slots: int) -> NDArray[np.int64]:
    enlarged = np.zeros((rows, slots), dtype=np.int64)
    enlarged[: table.shape[0], : table.shape[1]] = table
    return enlarged


def _namespace_labels(namespace: Namespace) -> Mapping[str, str]:
    return namespace.metadata.labels
