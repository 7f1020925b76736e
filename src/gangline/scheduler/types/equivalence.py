"""Equivalence classes of gang requests: requests that differ only in name and age are decided alike."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter

from gangline.scheduler.types.cycle import GangRequest
from gangline.scheduler.types.gang_requests import minimal_request, requested_amounts
from gangline.scheduler.types.resources import Amounts

MAX_STALE_CLASSES = 1024
"""All classes are dropped when there are this many more of them than requests."""

_UID = attrgetter("uid")


class EquivalenceClass:
    """What requests that differ only in name and age have in common. Classes are compared by identity."""

    __slots__ = ("min_amounts", "queue", "total_amounts")

    def __init__(self, request: GangRequest) -> None:
        self.queue = request.queue
        self.total_amounts: Amounts = requested_amounts(request.pod_sets)
        """The resources that all members need together."""
        self.min_amounts: Amounts = requested_amounts(minimal_request(request).pod_sets)
        """The resources that the required members need together."""


class EquivalenceClasses:
    """The equivalence class of each request. Kept between cycles, it does not look at unchanged requests again."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, EquivalenceClass] = {}
        self._requests: dict[str, GangRequest] = {}
        self.by_uid: dict[str, EquivalenceClass] = {}
        """The class of each current request, by the uid of its gang."""

    def update(self, requests: Iterable[GangRequest]) -> None:
        """Replace the current requests by these."""
        before, now = self._requests, {request.uid: request for request in requests}
        for uid in before.keys() - now.keys():
            del self.by_uid[uid]
        if len(self._by_key) > len(now) + MAX_STALE_CLASSES:
            self._by_key.clear()
        # Requests are immutable: the same object has the same class.
        for uid, request in now.items():
            if before.get(uid) is not request:
                self.by_uid[uid] = self.class_of(request)
        self._requests = now

    def classes_of(self, requests: Iterable[GangRequest]) -> frozenset[EquivalenceClass]:
        """The classes of these requests, which must be current."""
        return frozenset(map(self.by_uid.__getitem__, map(_UID, requests)))

    def counts(self) -> Mapping[EquivalenceClass, int]:
        """The number of current requests in each class."""
        return Counter(self.by_uid.values())

    def class_of(self, request: GangRequest) -> EquivalenceClass:
        """The class of a request, current or not."""
        key = _equivalence_key(request)
        equivalence = self._by_key.get(key)
        if equivalence is None:
            equivalence = self._by_key[key] = EquivalenceClass(request)
        return equivalence


def _equivalence_key(request: GangRequest) -> Hashable:
    """All fields of a request except its name and its age."""
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
