"""Equivalence classes of gang requests: requests that differ in name and age alone are decided alike."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter

from gangline.scheduler.types.cycle import GangRequest
from gangline.scheduler.types.gang_requests import minimal_request, requested_amounts
from gangline.scheduler.types.resources import Amounts

MAX_STALE_CLASSES = 1024
"""So many kinds more than there are asks are remembered; then all are forgotten."""

_UID = attrgetter("uid")


class EquivalenceClass:
    """All that asks have in common which differ in name and age alone. Two of one `EquivalenceClasses` are equal if they are one."""

    __slots__ = ("min_amounts", "queue", "total_amounts")

    def __init__(self, request: GangRequest) -> None:
        self.queue = request.queue
        self.total_amounts: Amounts = requested_amounts(request.pod_sets)
        """What all members need together."""
        self.min_amounts: Amounts = requested_amounts(minimal_request(request).pod_sets)
        """What those need that it cannot do without."""


class EquivalenceClasses:
    """Of which kind every ask is. Whoever keeps it from round to round saves looking at asks that have not changed."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, EquivalenceClass] = {}
        self._requests: dict[str, GangRequest] = {}
        self.by_uid: dict[str, EquivalenceClass] = {}
        """The kind of every ask that was met, by uid."""

    def update(self, requests: Iterable[GangRequest]) -> None:
        """Know these, and nobody else."""
        before, now = self._requests, {request.uid: request for request in requests}
        for uid in before.keys() - now.keys():
            del self.by_uid[uid]
        if len(self._by_key) > len(now) + MAX_STALE_CLASSES:
            self._by_key.clear()
        # Asks never change: one that is the same object is as it was.
        for uid, request in now.items():
            if before.get(uid) is not request:
                self.by_uid[uid] = self.class_of(request)
        self._requests = now

    def classes_of(self, requests: Iterable[GangRequest]) -> frozenset[EquivalenceClass]:
        """The kinds of these."""
        return frozenset(map(self.by_uid.__getitem__, map(_UID, requests)))

    def counts(self) -> Mapping[EquivalenceClass, int]:
        """How many of every kind were met."""
        return Counter(self.by_uid.values())

    def class_of(self, request: GangRequest) -> EquivalenceClass:
        """The kind of an ask, met or not."""
        key = _equivalence_key(request)
        equivalence = self._by_key.get(key)
        if equivalence is None:
            equivalence = self._by_key[key] = EquivalenceClass(request)
        return equivalence


def _equivalence_key(request: GangRequest) -> Hashable:
    """All of it but its name and its age."""
    return (
        request.queue,
        request.priority,
        request.recovering,
        request.pod_sets,
        request.min_members,
        tuple(sorted(request.min_by_role.items())),
        request.topology,
        request.current_nodes,
        request.can_preempt,
    )
