"""The places of one round: given, promised to those for whom others leave, or held. Asks nothing twice."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from gangline.scheduler.cycle.infeasible import Shortages, Signature, Stuck, signature
from gangline.scheduler.placement.room import Room
from gangline.scheduler.preemption.preempt import Bundle, Clearing, by_queue, clear, lower
from gangline.scheduler.preemption.reclaim import due, entitled
from gangline.scheduler.preemption.spending import Spending
from gangline.scheduler.preemption.victims import Residents
from gangline.scheduler.quota.accounts import Ledger
from gangline.scheduler.quota.fair_share import Amounts
from gangline.scheduler.types.cycle import (
    Ask,
    Cause,
    Evict,
    Holding,
    Placement,
    Policy,
    Shortage,
    Wait,
    amounts_together,
)
from gangline.scheduler.types.requests import add, amounts_of, lacking, within


class Seating:
    """Gives places in turn. What it gives is used from then on, in the room and in the queue's account."""

    def __init__(self, room: Room, ledger: Ledger, holdings: Collection[Holding], policy: Policy) -> None:
        self._room, self._ledger, self._policy = room, ledger, policy
        self._residents = Residents(holdings)
        self._spending = Spending()
        # Never less than what can be placed.
        self._free = dict(ledger.free)
        # Whoever is on the way out: at the start, and by our own decisions; and how much room they leave.
        self._leaving = frozenset(room.leaving)
        self._left = amounts_together(filter(None, map(room.resident, self._leaving)))
        self._held: Ask | None = None
        # Gangs that got or were promised places in this round.
        self._served: set[str] = set()
        self.giving_way: set[str] = set()
        """Gangs of which some were made to leave in this round: none of those that got places."""
        self._shortages = Shortages(len(room.names))
        self._stuck = Stuck()
        self._blocked: dict[Signature, bool] = {}
        self._hopeful: dict[Signature, bool] = {}
        self.changes = 0
        """Grows with all that may make an equal ask be told something else than before."""

    def present(self, uid: str) -> bool:
        """Whether a gang holds any place that it is not about to lose."""
        return uid in self._residents.present

    def names(self, placement: Placement) -> tuple[tuple[str, ...], ...]:
        names = self._room.names
        return tuple(tuple(names[number] for number in nodes.tolist()) for nodes in placement.nodes)

    def place(self, ask: Ask) -> Placement | Shortage:
        """Places from now on its own, or why there are none."""
        known = self._shortages.known(ask, self._free)
        if known is not None:
            return known
        found = self._room.place(ask)
        if isinstance(found, Placement) and not found.placed:
            found = Shortage("no room for more members")
        if isinstance(found, Shortage):
            self._shortages.note(ask, found)
            self.changes += 1
            return found
        self._promise(ask, found)
        for need, nodes in zip(ask.needs, found.nodes, strict=True):
            add(self._free, need.shape.amounts, -len(nodes))
        return found

    def clear(self, ask: Ask, smallest: Ask) -> Evict | Wait | None:
        """Room from those who leave anyway, else from those who have to give way; None: there is no way.

        The places are promised to it, so that nobody else takes them and nobody leaves twice for the same.
        """
        if smallest in self._stuck:
            return None
        later = self._fits(smallest, ()) if self._leaving else None
        if later is not None:
            self._promise(smallest, later)
            return Wait(ask, Cause.VICTIMS, "room is being made for it: pods are leaving")
        cleared = self._preempt(ask, smallest) or self._reclaim(ask, smallest)
        if cleared is None:
            self._stuck.add(smallest)
            return None
        return self._evict(ask, smallest, cleared)

    def hold(self, ask: Ask) -> bool:
        """Keep what is free for this one, if it would ever fit; else do nothing and say so."""
        if not self.ever_fits(ask):
            return False
        self._held = ask
        self.changes += 1
        self._room.hold(ask)
        return True

    def ever_fits(self, ask: Ask) -> bool:
        """Whether it would fit if ours left."""
        key = signature(ask)
        if key not in self._hopeful:
            self._hopeful[key] = self._would_fit(ask)
        return self._hopeful[key]

    def _would_fit(self, ask: Ask) -> bool:
        """Without some of ours, for most need little; in the end without all of them."""
        times, gone, needed = 2, set(self._leaving), amounts_of(ask.needs)
        room = Counter(self._free)
        room.update(self._left)
        for holding in self._residents.holdings:
            gone.update(member.uid for member in holding.members)
            add(room, holding.kept)
            if all(room[name] >= times * amount for name, amount in needed.items()):
                if isinstance(self._room.place_after(ask, gone), Placement):
                    return True
                times *= 4
        return isinstance(self._room.place_after(ask, gone), Placement)

    def fits_but_for_hold(self, ask: Ask) -> bool:
        """Whether there would be room if nothing were held."""
        key = signature(ask)
        if self._held is not None and key not in self._blocked:
            self._blocked[key] = lacking(amounts_of(ask.needs), self._free) is None and self._fits_unheld(ask)
        return self._blocked.get(key, False)

    def _fits_unheld(self, ask: Ask) -> bool:
        assert self._held is not None
        self._room.release()
        found = self._room.place(ask)
        self._room.hold(self._held)
        return isinstance(found, Placement)

    def _preempt(self, ask: Ask, smallest: Ask) -> Clearing | None:
        if not (ask.preempts and self._policy.preemption and self._residents.least_important < ask.priority):
            return None
        return self._cleared(smallest, lower(self._residents.holdings, ask))

    def _reclaim(self, ask: Ask, smallest: Ask) -> Clearing | None:
        if not (self._policy.reclaim and entitled(ask, self._ledger)):
            return None
        return self._cleared(
            smallest, due(self._residents.holdings, self._residents.held_from, ask, self._ledger)
        )

    def _cleared(self, smallest: Ask, holdings: Iterable[Holding]) -> Clearing | None:
        holdings = [holding for holding in holdings if holding.uid not in self._served]
        # Without any it would have its places already, or its queue may not have them.
        if not holdings or not self._enough(smallest, (holding.kept for holding in holdings)):
            return None
        while True:
            found = clear(holdings, lambda bundles: self._fits(smallest, bundles), self._leaving)
            spared = None if found is None else self._spending.spared(holdings, found.bundles)
            if spared is None:
                return found
            # Each time another budget is used up, so this ends.
            holdings = spared

    def _enough(self, ask: Ask, more: Iterable[Amounts]) -> bool:
        """Whether by sums alone it could fit with this much more. False is certain, true is not."""
        missing = {
            name: amount - self._free.get(name, 0) - self._left.get(name, 0)
            for name, amount in amounts_of(ask.needs).items()
        }
        for amounts in chain(({},), more):
            missing = {name: amount - amounts.get(name, 0) for name, amount in missing.items() if amount > 0}
            if not any(amount > 0 for amount in missing.values()):
                return True
        return False

    def _fits(self, ask: Ask, bundles: Sequence[Bundle]) -> Placement | None:
        """Where it would go once these and all on their way out have left, if its queue may then have as much."""
        if not self._enough(ask, map(self._freed, bundles)):
            return None
        # What is not frozen is not remembered by the room: each of these is asked about once.
        gone: Collection[str] = self._leaving
        if bundles:
            gone = {member.uid for bundle in bundles for member in bundle.members} | self._leaving
        if not self._may_have(ask, gone):
            return None
        found = self._room.place_after(ask, gone)
        return found if isinstance(found, Placement) else None

    def _may_have(self, ask: Ask, gone: Iterable[str]) -> bool:
        """Whether the cap of its queue allows it once these are gone."""
        if not self._ledger.rule(ask.queue).cap:
            return True
        own = (self._room.resident(uid) for uid in gone if self._residents.queues.get(uid) == ask.queue)
        left = self._ledger.left(ask.queue, (each.shape.amounts for each in own if each is not None))
        return within(ask, left) is not None

    def _freed(self, bundle: Bundle) -> Amounts:
        if bundle.whole:
            return bundle.holding.kept
        return amounts_together(bundle.members)

    def _evict(self, ask: Ask, smallest: Ask, cleared: Clearing) -> Evict:
        for queue, residents in by_queue(cleared.bundles).items():
            for resident in residents:
                self._ledger.dismiss(queue, resident.shape.amounts)
        self._spending.spend(cleared.bundles)
        victims = cleared.victims
        self._leaving |= {victim.uid for victim in victims}
        add(self._left, amounts_together(victims))
        self._promise(smallest, cleared.placement)
        # Others may now fit into what these leave.
        self._stuck.clear()
        self.giving_way.update(bundle.holding.uid for bundle in cleared.bundles)
        gangs = tuple(dict.fromkeys(bundle.holding.key for bundle in cleared.bundles))
        return Evict(ask, victims, gangs, self.names(cleared.placement))

    def _promise(self, ask: Ask, placement: Placement) -> None:
        self._served.add(ask.uid)
        self.changes += 1
        self._room.take(ask, placement)
        self._ledger.give(ask, placement)
