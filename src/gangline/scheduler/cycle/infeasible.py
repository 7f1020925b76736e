"""What is known not to fit, so that nothing is tried twice in a round: room only shrinks."""

from typing import TypeAlias

from gangline.api.scheduling import Topology
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.quota.fair_share import Amounts
from gangline.scheduler.types.cycle import Ask, Need, Shortage
from gangline.scheduler.types.reasons import told
from gangline.scheduler.types.requests import amounts_of, lacking, members
from gangline.scheduler.types.resources import as_quantity

Signature: TypeAlias = tuple[
    tuple[Need, ...], int, tuple[tuple[str, int], ...], Topology | None, tuple[str, ...], int
]
"""All that decides whether an ask fits."""

EXPLAINED = 64
"""So many different gangs are told node by node why they do not fit. The others hear of sums, if these say enough."""


def signature(ask: Ask) -> Signature:
    return ask.needs, ask.least, tuple(sorted(ask.roles.items())), ask.topology, ask.near, ask.priority


def kind(ask: Ask) -> tuple[Shape, int] | None:
    """Members alike, of which more do not fit where fewer did not; None: it is not as simple as that."""
    if len(ask.needs) != 1 or ask.topology is not None or not ask.least:
        return None
    return ask.needs[0].shape, ask.priority


class Shortages:
    """Asks that found no places, and why."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._equal: dict[Signature, Shortage] = {}
        # Kind of member -> for how many there was no room, the fewest that were tried.
        self._fewer: dict[tuple[Shape, int], tuple[int, Shortage]] = {}

    def note(self, ask: Ask, shortage: Shortage) -> None:
        self._equal[signature(ask)] = shortage
        alike = kind(ask)
        if alike is None or shortage.refused:
            return
        fewest = self._fewer.get(alike)
        if fewest is None or ask.least < fewest[0]:
            self._fewer[alike] = ask.least, shortage

    def known(self, ask: Ask, free: Amounts) -> Shortage | None:
        """Why it does not fit, if that is clear without a look at the nodes. `free` is what there is in all."""
        if not self._equal:
            return None
        return self._equal.get(signature(ask)) or self._as_fewer(ask) or self._by_sums(ask, free)

    def _as_fewer(self, ask: Ask) -> Shortage | None:
        alike = kind(ask)
        fewest, shortage = self._fewer.get(alike, (0, None)) if alike is not None else (0, None)
        if shortage is None or fewest > ask.least:
            return None
        some = f"{shortage.fitting} of {ask.least} fit: " if shortage.fitting else ""
        return Shortage(some + told(shortage.nodes, self._nodes), shortage.nodes, shortage.fitting)

    def _by_sums(self, ask: Ask, free: Amounts) -> Shortage | None:
        if len(self._equal) < EXPLAINED or ask.least < members(ask):
            return None
        needed = amounts_of(ask.needs)
        name = lacking(needed, free)
        if name is None:
            return None
        wanted, there = as_quantity(name, needed[name]), as_quantity(name, free.get(name, 0))
        return Shortage(f"{wanted} {name} needed, {there} free in all")


class Stuck:
    """Asks for which no room can be made: it depends on their queue, and on whether they may preempt."""

    def __init__(self) -> None:
        self._equal: set[tuple[str, bool, Signature]] = set()
        self._fewest: dict[tuple[str, bool, tuple[Shape, int]], int] = {}

    def __contains__(self, ask: Ask) -> bool:
        """Whether there was no way for an equal one, or for fewer of the same kind."""
        alike = kind(ask)
        if alike is not None:
            fewest = self._fewest.get((ask.queue, ask.preempts, alike))
            if fewest is not None and fewest <= ask.least:
                return True
        return (ask.queue, ask.preempts, signature(ask)) in self._equal

    def add(self, ask: Ask) -> None:
        self._equal.add((ask.queue, ask.preempts, signature(ask)))
        alike = kind(ask)
        if alike is not None:
            key = ask.queue, ask.preempts, alike
            self._fewest[key] = min(ask.least, self._fewest.get(key, ask.least))

    def clear(self) -> None:
        self._equal.clear()
        self._fewest.clear()
