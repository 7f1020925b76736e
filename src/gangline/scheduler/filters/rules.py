"""Rules between pods, as numbers per domain: affinity, anti-affinity of both sides, topology spread.

A domain is one value of a label of nodes. What a rule knows is how many pods it means are in each domain; whether
a node is allowed is then one look-up, for all nodes at once.
"""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.pods.shape import SpreadConstraint
from gangline.scheduler.snapshot.node_table import Codes, Mask
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.reasons import FilterReason

DomainCounts: TypeAlias = NDArray[np.int64]
"""A number per domain; the last one is for nodes without the label."""


class PlacementRule(Protocol):
    """What one more pod of a shape may do."""

    @property
    def reason(self) -> FilterReason: ...
    @property
    def is_stateful(self) -> bool:
        """Whether a pod of this shape changes what the next one may do."""
        ...

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        """Which of these nodes, or of all, may take one more."""
        ...

    def add_pod(self, node: int) -> None:
        """One more is on this node."""
        ...


class AntiAffinityRule:
    """Anti-affinity, the pod's own or somebody else's: not where one of those is."""

    reason = FilterReason.ANTI_AFFINITY

    def __init__(self, codes: Codes, counts: DomainCounts, *, moving: bool) -> None:
        self._codes, self._counts, self.is_stateful = codes, counts, moving
        self._counts[-1] = 0

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        free: Mask = self._counts == 0
        return free[self._codes if nodes is None else self._codes[nodes]]

    def add_pod(self, node: int) -> None:
        if self.is_stateful and self._codes[node] >= 0:
            self._counts[self._codes[node]] += 1


class AffinityRule:
    """Affinity: only where pods are that all terms mean. The first of a kind that means itself may go anywhere."""

    reason = FilterReason.AFFINITY

    def __init__(self, keys: list[str], codes: list[Codes], counts: list[DomainCounts], *, itself: bool) -> None:
        self._keys, self._codes, self._counts = keys, codes, counts
        for each in counts:
            each[-1] = 0
        self._selects_itself = itself
        self.awaits_first = itself and not any(each.any() for each in counts)
        self.is_stateful = self.awaits_first

    def confine_to(self, key: str) -> None:
        """All nodes in question are in one domain of this key: where the first goes, all may go."""
        if all(each == key for each in self._keys):
            self.is_stateful = False

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        found: Mask | None = None
        for codes, counts in zip(self._codes, self._counts, strict=True):
            seen = codes if nodes is None else codes[nodes]
            fits = (seen >= 0) if self.awaits_first else (counts > 0)[seen]
            found = fits if found is None else found & fits
        assert found is not None
        return found

    def add_pod(self, node: int) -> None:
        if self._selects_itself:
            self.awaits_first = False
            for codes, counts in zip(self._codes, self._counts, strict=True):
                if codes[node] >= 0:
                    counts[codes[node]] += 1


class SpreadRule:
    """Topology spread: no domain far ahead of the emptiest."""

    reason = FilterReason.SPREAD

    def __init__(
        self,
        rule: SpreadConstraint,
        codes: Codes,
        counts: DomainCounts,
        eligible: Mask,
        *,
        itself: bool,
        moving: bool,
    ) -> None:
        self._constraint, self._codes, self._counts, self._selects_itself = rule, codes, counts, itself
        # Domains that count: those with a node on which the pod may be.
        self._domains = np.unique(codes[eligible & (codes >= 0)])
        self.is_stateful = moving

    def allowed_mask(self, nodes: Vector | None = None) -> Mask:
        codes = self._codes if nodes is None else self._codes[nodes]
        few = len(self._domains) < self._constraint.min_domains or not len(self._domains)
        least = 0 if few else int(self._counts[self._domains].min())
        fits = self._counts + self._selects_itself - least <= self._constraint.max_skew
        fits[-1] = False
        return fits[codes]

    def add_pod(self, node: int) -> None:
        if self.is_stateful and self._codes[node] >= 0:
            self._counts[self._codes[node]] += 1
