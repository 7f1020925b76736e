"""Asks that are alike: what holds of one holds of all, so it is found out once. Many wait, of few kinds."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter

from gangline.scheduler.quota.fair_share import Amounts
from gangline.scheduler.types.cycle import Ask
from gangline.scheduler.types.requests import amounts_of, core

SPARE = 1024
"""So many kinds more than there are asks are remembered; then all are forgotten."""

_UID = attrgetter("uid")


class Kind:
    """All that asks have in common which differ in name and age alone. Two of one `Kinds` are equal if they are one."""

    __slots__ = ("least", "queue", "total")

    def __init__(self, ask: Ask) -> None:
        self.queue = ask.queue
        self.total: Amounts = amounts_of(ask.needs)
        """What all members need together."""
        self.least: Amounts = amounts_of(core(ask).needs)
        """What those need that it cannot do without."""


class Kinds:
    """Of which kind every ask is. Whoever keeps it from round to round saves looking at asks that have not changed."""

    def __init__(self) -> None:
        self._alike: dict[Hashable, Kind] = {}
        self._met: dict[str, Ask] = {}
        self.of: dict[str, Kind] = {}
        """The kind of every ask that was met, by uid."""

    @property
    def remembered(self) -> int:
        """How many kinds there is a memory of."""
        return len(self._alike)

    def meet(self, asks: Iterable[Ask]) -> None:
        """Know these, and nobody else."""
        before, now = self._met, {ask.uid: ask for ask in asks}
        for uid in before.keys() - now.keys():
            del self.of[uid]
        if len(self._alike) > len(now) + SPARE:
            self._alike.clear()
        # Asks never change: one that is the same object is as it was.
        for uid, ask in now.items():
            if before.get(uid) is not ask:
                self.of[uid] = self.kind(ask)
        self._met = now

    def among(self, asks: Iterable[Ask]) -> frozenset[Kind]:
        """The kinds of these."""
        return frozenset(map(self.of.__getitem__, map(_UID, asks)))

    def counted(self) -> Mapping[Kind, int]:
        """How many of every kind were met."""
        return Counter(self.of.values())

    def kind(self, ask: Ask) -> Kind:
        """The kind of an ask, met or not."""
        key = _key(ask)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = Kind(ask)
        return found


def _key(ask: Ask) -> Hashable:
    """All of it but its name and its age."""
    return (
        ask.queue,
        ask.priority,
        ask.broken,
        ask.needs,
        ask.least,
        tuple(sorted(ask.roles.items())),
        ask.topology,
        ask.near,
        ask.preempts,
    )
