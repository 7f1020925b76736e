"""The queues' accounts during one round: what they hold, may hold and deserve."""

from collections.abc import Iterable, Mapping

from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.scheduler.placement.room import Room
from gangline.scheduler.quota.fair_share import COUNTED, Amounts, contended, deserved, dominant, ratio
from gangline.scheduler.types.cycle import Ask, Held, Holding, Placement, QueueRule
from gangline.scheduler.types.kinds import Kind, Kinds
from gangline.scheduler.types.requests import add


class Ledger:
    """What each queue holds, kept up to date as places are given. What it deserves stays as it was at the start."""

    def __init__(self, room: Room, kinds: Kinds, held: Held, queues: Mapping[str, QueueRule]) -> None:
        self._kinds = kinds
        self._rules = {DEFAULT_QUEUE: QueueRule(DEFAULT_QUEUE), **queues}
        # Also of pods on their way out: they count against the cap until they are gone.
        self._used = {queue: dict(amounts) for queue, amounts in held.used.items()}
        # Without them: what the queue will have.
        self._kept = {queue: dict(amounts) for queue, amounts in held.kept.items()}
        self._shares: dict[str, float] = {}
        self.free = room.free()
        """At the start of the round."""
        self._total = room.total()
        requests = _requests(self._kept, kinds.counted())
        pot = _pot(self._total, self.free, self._used.values())
        rules = sorted((self.rule(name) for name in requests), key=lambda rule: rule.name)
        # Asked of the same few kinds again and again; forgotten with every entry.
        self._over: dict[Kind, bool] = {}
        # Kept, as what queues deserve stays as it was.
        self._outgrows: dict[Kind, bool] = {}
        self._deserved = deserved(pot, rules, requests)
        self._contended = contended(pot, rules, requests)

    @property
    def allocated(self) -> Mapping[str, Amounts]:
        """Queue -> what it will have once those on their way out are gone."""
        return {queue: dict(amounts) for queue, amounts in sorted(self._kept.items())}

    @property
    def deserved(self) -> Mapping[str, Amounts]:
        return self._deserved

    def known(self, queue: str) -> bool:
        return queue in self._rules

    def rule(self, queue: str) -> QueueRule:
        return self._rules.get(queue) or QueueRule(queue)

    def share(self, queue: str) -> float:
        """How much of what it deserves a queue has; 1: all of it. With plenty for all: its dominant share by weight."""
        found = self._shares.get(queue)
        if found is None:
            found = self._shares[queue] = self._share(queue)
        return found

    def _share(self, queue: str) -> float:
        held = self._kept.get(queue, {})
        if self._contended:
            return ratio(held, self._deserved.get(queue, {}), self._contended)
        return dominant(held, self._total) / max(1, self.rule(queue).weight)

    def over(self, ask: Ask) -> bool:
        """Whether with what this ask needs at least its queue has more than it deserves of any of that."""
        return self.over_by(self._kinds.of[ask.uid])

    def over_by(self, kind: Kind) -> bool:
        """The same of any ask of a kind."""
        found = self._over.get(kind)
        if found is None:
            found = self._over[kind] = self.above(kind.queue, kind.least)
        return found

    def outgrows(self, ask: Ask) -> bool:
        """Whether what it needs at least is by itself more than its queue deserves."""
        kind = self._kinds.of[ask.uid]
        found = self._outgrows.get(kind)
        if found is None:
            least, due = kind.least, self._deserved.get(kind.queue, {})
            among = least.keys() & self._contended
            found = self._outgrows[kind] = any(least[name] > due.get(name, 0) for name in among)
        return found

    def above(self, queue: str, change: Amounts) -> bool:
        """Whether a queue has more than it deserves of any resource named here, once this much is added to it."""
        held, due = self._kept.get(queue, {}), self._deserved.get(queue, {})
        return any(
            held.get(name, 0) + change[name] > due.get(name, 0) for name in change.keys() & self._contended
        )

    def left(self, queue: str, gone: Iterable[Amounts] = ()) -> dict[str, int]:
        """What the cap of a queue leaves of each resource it names, once these amounts are gone."""
        caps = self.rule(queue).cap
        if not caps:
            return {}
        used = self._used.get(queue, {})
        room = {name: cap - used.get(name, 0) for name, cap in caps.items()}
        for amounts in gone:
            for name in room:
                room[name] += amounts.get(name, 0)
        return room

    def give(self, ask: Ask, placement: Placement) -> None:
        """Enter what an ask was given."""
        self._shares.pop(ask.queue, None)
        self._over.clear()
        for account in (self._used, self._kept):
            amounts = account.setdefault(ask.queue, {})
            for need, nodes in zip(ask.needs, placement.nodes, strict=True):
                add(amounts, need.shape.amounts, len(nodes))

    def dismiss(self, queue: str, amounts: Amounts) -> None:
        """Enter that these amounts are on their way out."""
        self._shares.pop(queue, None)
        self._over.clear()
        add(self._kept.setdefault(queue, {}), amounts, -1)


def counted(holdings: Iterable[Holding]) -> Held:
    """What queues hold, added up gang by gang."""
    used: dict[str, dict[str, int]] = {}
    kept: dict[str, dict[str, int]] = {}
    for holding in holdings:
        add(used.setdefault(holding.queue, {}), holding.used)
        add(kept.setdefault(holding.queue, {}), holding.kept)
    return Held(used, kept)


def _requests(held: Mapping[str, Amounts], asks: Mapping[Kind, int]) -> dict[str, dict[str, int]]:
    requests = {queue: dict(amounts) for queue, amounts in held.items()}
    for kind, count in asks.items():
        add(requests.setdefault(kind.queue, {}), kind.total, count)
    return requests


def _pot(total: Amounts, free: Amounts, held: Iterable[Amounts]) -> dict[str, int]:
    """What there is for all queues together: what they hold and what is free, so nothing that others use."""
    pot = dict(free)
    for amounts in held:
        add(pot, amounts)
    return {name: min(amount, total.get(name, 0)) for name, amount in pot.items() if name != COUNTED}
