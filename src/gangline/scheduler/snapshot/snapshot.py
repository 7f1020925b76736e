"""Free resources of all nodes, and the effect of decisions on them. Cheap to copy: a placement is tried on a copy."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.snapshot.node_table import NodeTable
from gangline.scheduler.snapshot.pod_index import PodIndex
from gangline.scheduler.snapshot.volumes import VolumeCache
from gangline.scheduler.types.cycle import BoundPod, Vector
from gangline.scheduler.types.shape import PodShape


class AssumedPods(NamedTuple):
    """Pods of one shape that were assumed since the snapshot was taken."""

    shape: PodShape
    nodes: Vector
    # Nominated or reserved: they keep others away, but no affinity may rely on them.
    tentative: bool = False


class NodeAllocatable(NamedTuple):
    """What nodes can allocate: one row per resource, one column per node."""

    amounts: NDArray[np.int64]
    # The same with zeros replaced by ones, to divide by.
    divisors: NDArray[np.float64]


class ClusterSnapshot:
    """Free resources on every node: one row per resource, one column per node."""

    __slots__ = (
        "allocatable",
        "anti_affinity",
        "assumed",
        "free",
        "nodes",
        "pods",
        "removed_uids",
        "resource_rows",
        "volumes",
    )

    def __init__(
        self,
        nodes: NodeTable,
        resource_rows: Mapping[str, int],
        allocatable: NodeAllocatable,
        free: NDArray[np.int64],
        pod_index: PodIndex,
        volumes: VolumeCache,
    ) -> None:
        self.nodes, self.resource_rows, self.allocatable, self.free = nodes, resource_rows, allocatable, free
        self.pods, self.volumes = pod_index, volumes
        # Changes since the snapshot: assumed pods, and pods treated as removed.
        self.assumed: list[AssumedPods] = []
        # The assumed pods that have anti-affinity.
        self.anti_affinity: list[AssumedPods] = []
        self.removed_uids: frozenset[str] = frozenset()

    def copy(self) -> "ClusterSnapshot":
        other = copy(self)
        other.free, other.assumed, other.anti_affinity = (
            self.free.copy(),
            self.assumed.copy(),
            self.anti_affinity.copy(),
        )
        return other

    def assume(self, shape: PodShape, nodes: Vector, *, tentative: bool = False) -> None:
        """Count pods of this shape on these nodes from now on. Free amounts may become negative."""
        if len(nodes):
            self._shift_free(shape.requests, nodes, -1)
            assumed = AssumedPods(shape, nodes, tentative)
            self.assumed.append(assumed)
            if shape.pod_constraints.anti_affinity:
                self.anti_affinity.append(assumed)

    def forget(self, shape: PodShape, nodes: Vector) -> None:
        """Undo an `assume` of the same shape and nodes."""
        if len(nodes):
            self._shift_free(shape.requests, nodes, 1)
            self.assumed = [each for each in self.assumed if each.nodes is not nodes]
            self.anti_affinity = [each for each in self.anti_affinity if each.nodes is not nodes]

    def remove_pods(self, pods: Iterable[BoundPod]) -> None:
        """Treat these pods as gone."""
        present = [each for each in pods if each.uid not in self.removed_uids]
        self._release_pods(present)
        self.removed_uids = self.removed_uids.union(each.uid for each in present)

    def _release_pods(self, pods: Iterable[BoundPod]) -> None:
        """Add the requests of these pods to the free amounts.

        Nominated pods free nothing, as they are not counted there.
        """
        index_of = self.nodes.index_of
        by_shape: dict[PodShape, list[int]] = {}
        for pod in pods:
            number = index_of.get(pod.node)
            if number is not None and not pod.nominated:
                by_shape.setdefault(pod.shape, []).append(number)
        # Grouped by requests, which many shapes share: preemption removes tens of thousands of pods at once.
        nodes_by_requests: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for shape, numbers in by_shape.items():
            nodes_by_requests.setdefault(shape.requests, []).extend(numbers)
        for requests, numbers in nodes_by_requests.items():
            self._shift_free(requests, np.array(numbers, dtype=np.int64), 1)

    def _shift_free(self, requests: tuple[tuple[str, int], ...], nodes: Vector, sign: int) -> None:
        """Add `sign` times the requests to the free amounts, once for each entry of `nodes`."""
        for resource, amount in requests:
            row = self.resource_rows.get(resource)
            if row is not None:
                # A node may occur more than once. Costs in proportion to the entries, not to the nodes.
                np.add.at(self.free[row], nodes, sign * amount)


def resource_capacity(snapshot: ClusterSnapshot, shape: PodShape) -> Vector:
    """How many pods of a shape fit on every node by resources alone."""
    capacity: Vector | None = None
    for resource, amount in shape.requests:
        row = snapshot.resource_rows.get(resource)
        if row is None:
            return np.zeros(len(snapshot.nodes), dtype=np.int64)
        # Most requests for pods and GPUs are 1, and division would cost more than everything else.
        quotient = snapshot.free[row] // amount if amount != 1 else snapshot.free[row]
        capacity = quotient if capacity is None else np.minimum(capacity, quotient)
    if capacity is None:
        return np.full(len(snapshot.nodes), np.iinfo(np.int32).max, dtype=np.int64)
    # A new vector, which the caller may change.
    return np.maximum(capacity, 0)
