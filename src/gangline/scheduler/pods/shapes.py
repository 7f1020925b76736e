"""Shapes made once: pods written alike share one, which saves most of the work and of the memory."""

from collections.abc import Collection
from typing import Final

import msgspec

from gangline.api.scheduler_views import RESIZE_PENDING, Pod
from gangline.scheduler.pods.decode import IDENTITY, pinned, resident_of, shape_of
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Resident

MOST: Final = 50_000
"""How many are kept; then all are forgotten and made again when next asked for."""


class Shapes:
    """`shape_of` and `resident_of` with a memory. What they give is the same."""

    def __init__(self, most: int = MOST) -> None:
        self._kept: dict[bytes, Shape] = {}
        # A pod that starts is written otherwise than before, and has the shape that it had.
        self._same: dict[Shape, Shape] = {}
        self._most = most
        self._encoder = msgspec.msgpack.Encoder()

    def of(self, pod: Pod, keep: Collection[str] = ()) -> Shape:
        """As `shape_of`."""
        if any(each.ephemeral for each in pod.spec.volumes):
            # Its claims bear the name of the pod.
            return shape_of(pod, keep)
        written = self._written(pod, keep)
        found = self._kept.get(written)
        if found is None:
            if len(self._kept) >= self._most:
                self._kept.clear()
                self._same.clear()
            made = shape_of(pod, keep)
            found = self._kept[written] = self._same.setdefault(made, made)
        return found

    def resident(self, pod: Pod) -> Resident | None:
        """As `resident_of`."""
        return resident_of(pod, self.of(pod))

    def _written(self, pod: Pod, keep: Collection[str]) -> bytes:
        """All that `shape_of` looks at, as bytes: far cheaper to make than a shape."""
        spec, status, labels = pod.spec, pod.status, pod.metadata.labels
        # Of labels that others ask for, only those of one pod alone make a difference.
        kept = IDENTITY.intersection(keep)
        if spec.affinity is None and not spec.topology_spread_constraints:
            labels = {key: value for key, value in labels.items() if key not in IDENTITY or key in kept}
        return self._encoder.encode(
            (
                pod.metadata.namespace,
                labels,
                sorted(kept),
                pinned(pod),
                spec.containers,
                spec.init_containers,
                spec.resources,
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.volumes,
                spec.resource_claims,
                status.container_statuses,
                status.init_container_statuses,
                [each.reason for each in status.conditions if each.type == RESIZE_PENDING],
            )
        )
