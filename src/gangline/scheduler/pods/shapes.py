"""Shapes made once: pods written alike share one, which saves most of the work and of the memory."""

from collections.abc import Collection
from typing import Final

import msgspec

from gangline.api.scheduler_views import POD_RESIZE_PENDING, Pod
from gangline.scheduler.pods.decode import IDENTITY_LABELS, bound_pod_of, is_gated, shape_of
from gangline.scheduler.pods.shape import PodShape
from gangline.scheduler.types.cycle import BoundPod

MAX_CACHED_SHAPES: Final = 50_000
"""How many are kept; then all are forgotten and made again when next asked for."""


class ShapeCache:
    """`shape_of` and `bound_pod_of` with a memory. What they give is the same."""

    def __init__(self, most: int = MAX_CACHED_SHAPES) -> None:
        self._by_encoding: dict[bytes, PodShape] = {}
        # A pod that starts is written otherwise than before, and has the shape that it had.
        self._interned: dict[PodShape, PodShape] = {}
        self._max_size = most
        self._encoder = msgspec.msgpack.Encoder()

    def shape_for(self, pod: Pod, keep: Collection[str] = ()) -> PodShape:
        """As `shape_of`."""
        if any(each.ephemeral for each in pod.spec.volumes):
            # Its claims bear the name of the pod.
            return shape_of(pod, keep)
        written = self._encoding(pod, keep)
        found = self._by_encoding.get(written)
        if found is None:
            if len(self._by_encoding) >= self._max_size:
                self._by_encoding.clear()
                self._interned.clear()
            made = shape_of(pod, keep)
            found = self._by_encoding[written] = self._interned.setdefault(made, made)
        return found

    def bound_pod_for(self, pod: Pod) -> BoundPod | None:
        """As `bound_pod_of`."""
        return bound_pod_of(pod, self.shape_for(pod))

    def _encoding(self, pod: Pod, keep: Collection[str]) -> bytes:
        """All that `shape_of` looks at, as bytes: far cheaper to make than a shape."""
        spec, status, labels = pod.spec, pod.status, pod.metadata.labels
        # Of labels that others ask for, only those of one pod alone make a difference.
        kept = IDENTITY_LABELS.intersection(keep)
        if spec.affinity is None and not spec.topology_spread_constraints:
            labels = {key: value for key, value in labels.items() if key not in IDENTITY_LABELS or key in kept}
        return self._encoder.encode(
            (
                pod.metadata.namespace,
                labels,
                sorted(kept),
                is_gated(pod),
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
                [each.reason for each in status.conditions if each.type == POD_RESIZE_PENDING],
            )
        )
