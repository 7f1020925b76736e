"""What an ask comes to in amounts, and how to ask for less of it."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter

import msgspec

from gangline.scheduler.quota.fair_share import Amounts
from gangline.scheduler.types.cycle import GangRequest, PodSet


def requested_amounts(needs: Iterable[PodSet]) -> dict[str, int]:
    """What all these members need together, by resource."""
    total: dict[str, int] = {}
    for need in needs:
        for name, amount in need.shape.requests:
            total[name] = total.get(name, 0) + amount * need.count
    return total


def add_amounts(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


def lacking_resource(needed: Amounts, room: Amounts) -> str | None:
    """The first resource, by name, of which there is less than needed."""
    return next((name for name in sorted(needed) if needed[name] > room.get(name, 0)), None)


def member_count(ask: GangRequest) -> int:
    return sum(need.count for need in ask.pod_sets)


def resized_request(ask: GangRequest, counts: Iterable[int]) -> GangRequest:
    """The same ask for fewer members. Needs stay where they are, also when nothing of one is left."""
    needs = tuple(PodSet(need.role, need.shape, count) for need, count in zip(ask.pod_sets, counts, strict=True))
    return msgspec.structs.replace(ask, pod_sets=needs)


def minimal_request(ask: GangRequest) -> GangRequest:
    """The ask without members it can do without: what each role needs, then the others in their order."""
    if ask.min_members >= member_count(ask):
        return ask
    counts = [0] * len(ask.pod_sets)
    missing = ask.min_members
    for role, least in sorted(ask.min_by_role.items()):
        missing -= _raise_counts(ask, counts, least, role)
    _raise_counts(ask, counts, missing)
    return resized_request(ask, counts)


def request_within(ask: GangRequest, room: Mapping[str, int]) -> GangRequest | None:
    """As many of its members as these amounts allow; None: not even those it needs at least.

    `room` need not name every resource: what it does not name is without limit.
    """
    if not room or _fits_within(ask, room):
        return ask
    smallest = minimal_request(ask)
    if not _fits_within(smallest, room):
        return None
    counts = [need.count for need in smallest.pod_sets]
    left = {name: amount - requested_amounts(smallest.pod_sets).get(name, 0) for name, amount in room.items()}
    for number, need in enumerate(ask.pod_sets):
        more = min(need.count - counts[number], _max_multiples(need.shape.amounts, left))
        counts[number] += more
        left = {name: amount - more * need.shape.amounts.get(name, 0) for name, amount in left.items()}
    return resized_request(ask, counts)


def _fits_within(ask: GangRequest, room: Mapping[str, int]) -> bool:
    needed = requested_amounts(ask.pod_sets)
    return all(needed.get(name, 0) <= amount for name, amount in room.items())


def _max_multiples(amounts: Amounts, room: Mapping[str, int]) -> int:
    """How often these amounts go into the room. A number nobody reaches if the room does not limit them."""
    return min(
        (max(0, room[name]) // amount for name, amount in amounts.items() if amount and name in room),
        default=1 << 60,
    )


def _raise_counts(ask: GangRequest, counts: list[int], wanted: int, role: str | None = None) -> int:
    """Raise counts until so many more are asked for, of one role or of any; how many there were."""
    added = 0
    for number, need in enumerate(ask.pod_sets):
        if role is None or need.role == role:
            more = min(max(0, wanted - added), need.count - counts[number])
            counts[number] += more
            added += more
    return added


MAX_STALE_CLASSES = 1024
"""So many kinds more than there are asks are remembered; then all are forgotten."""

_UID = attrgetter("uid")


class EquivalenceClass:
    """All that asks have in common which differ in name and age alone. Two of one `EquivalenceClasses` are equal if they are one."""

    __slots__ = ("min_amounts", "queue", "total_amounts")

    def __init__(self, ask: GangRequest) -> None:
        self.queue = ask.queue
        self.total_amounts: Amounts = requested_amounts(ask.pod_sets)
        """What all members need together."""
        self.min_amounts: Amounts = requested_amounts(minimal_request(ask).pod_sets)
        """What those need that it cannot do without."""


class EquivalenceClasses:
    """Of which kind every ask is. Whoever keeps it from round to round saves looking at asks that have not changed."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, EquivalenceClass] = {}
        self._requests: dict[str, GangRequest] = {}
        self.by_uid: dict[str, EquivalenceClass] = {}
        """The kind of every ask that was met, by uid."""

    @property
    def cached_count(self) -> int:
        """How many kinds there is a memory of."""
        return len(self._by_key)

    def update(self, asks: Iterable[GangRequest]) -> None:
        """Know these, and nobody else."""
        before, now = self._requests, {ask.uid: ask for ask in asks}
        for uid in before.keys() - now.keys():
            del self.by_uid[uid]
        if len(self._by_key) > len(now) + MAX_STALE_CLASSES:
            self._by_key.clear()
        # Asks never change: one that is the same object is as it was.
        for uid, ask in now.items():
            if before.get(uid) is not ask:
                self.by_uid[uid] = self.class_of(ask)
        self._requests = now

    def classes_of(self, asks: Iterable[GangRequest]) -> frozenset[EquivalenceClass]:
        """The kinds of these."""
        return frozenset(map(self.by_uid.__getitem__, map(_UID, asks)))

    def counts(self) -> Mapping[EquivalenceClass, int]:
        """How many of every kind were met."""
        return Counter(self.by_uid.values())

    def class_of(self, ask: GangRequest) -> EquivalenceClass:
        """The kind of an ask, met or not."""
        key = _equivalence_key(ask)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = EquivalenceClass(ask)
        return found


def _equivalence_key(ask: GangRequest) -> Hashable:
    """All of it but its name and its age."""
    return (
        ask.queue,
        ask.priority,
        ask.recovering,
        ask.pod_sets,
        ask.min_members,
        tuple(sorted(ask.min_by_role.items())),
        ask.topology,
        ask.current_nodes,
        ask.can_preempt,
    )
