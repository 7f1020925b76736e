"""One round: every gang that waits gets its places, makes others leave, or is told why it waits. Pure.

The same snapshot, asks and time give the same decisions, in whatever order the asks come. A gang is given all it
needs at least or nothing, and nothing is kept for one that cannot start, with two exceptions: those for which others
are leaving, and the one that has waited longest once its patience is over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, groupby, islice

import msgspec

from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.scheduler.cycle.ordering import by_age, by_patience, by_share, ranks, turns
from gangline.scheduler.cycle.reservations import Seating
from gangline.scheduler.placement.room import Room
from gangline.scheduler.quota.accounts import Ledger, counted
from gangline.scheduler.types.cycle import (
    Ask,
    Cause,
    Decision,
    Held,
    Holding,
    Place,
    Placement,
    Policy,
    QueueRule,
    Round,
    Shortage,
    Wait,
)
from gangline.scheduler.types.kinds import Kind, Kinds
from gangline.scheduler.types.requests import amounts_of, core, members, resized, within
from gangline.scheduler.types.resources import as_quantity

HOPELESS = 8
"""How many of those whose patience is over are looked at, if there is never room for them, before we give up."""

FORESEEN = 4
"""Of so many of them, of each rank, it is found out beforehand whether there is ever room for them."""


def schedule(
    room: Room,
    asks: Iterable[Ask],
    holdings: Iterable[Holding],
    queues: Mapping[str, QueueRule],
    policy: Policy,
    now: datetime,
    held: Held | None = None,
    kinds: Kinds | None = None,
) -> Round:
    """Decide for every ask, once. `room` is used up by it: take a new one for the next round.

    Whoever keeps count of what queues hold may give it as `held`; else it is added up from the holdings. `kinds` may
    be kept from round to round: it makes nothing different, but the next one faster.
    """
    asks, holdings, kinds = list(asks), list(holdings), kinds or Kinds()
    kinds.meet(asks)
    ledger = Ledger(room, kinds, counted(holdings) if held is None else held, queues)
    return _Deciding(asks, kinds, ledger, Seating(room, ledger, holdings, policy), policy, now).round()


class _Deciding:
    def __init__(
        self,
        asks: list[Ask],
        kinds: Kinds,
        ledger: Ledger,
        seating: Seating,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._asks, self._kinds, self._ledger, self._seating = asks, kinds, ledger, seating
        self._patience, self._limit = policy.patience, _limit(policy, now)
        self._held: Ask | None = None
        self._hopeless = 0
        # By the uid of the ask, in the order in which they were made.
        self._decisions: dict[str, Decision] = {}
        # What one of a kind was told last, which is what all of it are told until something changes.
        self._told: dict[Kind, Wait] = {}
        self._told_at = seating.changes

    def round(self) -> Round:
        ranked = ranks(self._asks, self._first)
        overdue = [by_patience(self._out_of_patience(group)) for _, group in ranked]
        for late in overdue:
            self._foresee(late)
        for _, same in groupby(zip(ranked, overdue, strict=True), key=lambda found: found[0][0][0]):
            groups = [(group, late) for (_, group), late in same]
            for group, late in groups:
                self._seat([ask for ask in group if ask.least], [ask for ask in late if ask.least])
            self._extend(chain.from_iterable(group for group, _ in groups))
        return Round(
            list(self._decisions.values()), self._ledger.allocated, self._ledger.deserved, self._again()
        )

    def _seat(self, group: Sequence[Ask], overdue: Sequence[Ask]) -> None:
        """Those of one rank: first all that leave their queue within its share, then the others.

        If one of the others has lost patience, and its queue's share is large enough for it, its queue waits for it:
        only what is due to other queues goes first. Both come by age, the overdue by how long they have waited.
        """
        hungry = self._overdue_within(overdue)
        group = self._open(group)
        beyond = {ask.uid for ask in group}
        for ask in by_share(self._promising(group), self._ledger.share):
            if ask.queue != hungry and not self._ledger.over(ask):
                beyond.remove(ask.uid)
                self._decisions[ask.uid] = self._decide(ask)
        self._overdue_beyond(ask for ask in overdue if ask.uid in beyond)
        group = [ask for ask in self._open(group) if ask.uid in beyond]
        order = turns(group, self._ledger.share, self._ledger.over)
        for ask in order if self._promising(group) else by_share(group, self._ledger.share):
            self._decisions[ask.uid] = self._decide(ask)

    def _promising(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        """All of them, or none if every one would take its queue over its share: then nothing comes before the rest."""
        return () if all(map(self._ledger.over_by, self._kinds.among(asks))) else asks

    def _open(self, asks: Iterable[Ask]) -> list[Ask]:
        return [ask for ask in asks if ask.uid not in self._decisions]

    def _first(self, ask: Ask) -> bool:
        """Broken gangs go first; but one of which nothing is left may not so get its queue more than its share."""
        return ask.broken and (self._seating.present(ask.uid) or not self._ledger.over(ask))

    def _decide(self, ask: Ask) -> Decision:
        """Judge it, unless one that is alike was just judged: thousands wait, and most of them for the same."""
        if ask.uid in self._seating.giving_way:
            return self._judge(ask)
        if self._told_at != self._seating.changes:
            self._forget()
        kind = self._kinds.of[ask.uid]
        told = self._told.get(kind)
        if told is not None:
            return Wait(ask, told.cause, told.message, told.nodes)
        decision = self._judge(ask)
        self._forget()
        if isinstance(decision, Wait) and decision.cause != Cause.VICTIMS:
            self._told[kind] = decision
        return decision

    def _forget(self) -> None:
        """What was told before the last change."""
        if self._told_at != self._seating.changes:
            self._told_at = self._seating.changes
            self._told.clear()

    def _judge(self, ask: Ask) -> Decision:
        barred = self._barred(ask)
        if barred is not None:
            return barred
        smallest = core(ask)
        if within(smallest, self._ledger.left(ask.queue)) is None:
            return self._seating.clear(ask, smallest) or self._capped(ask)
        found = self._seating.place(smallest)
        if isinstance(found, Shortage) and len(ask.needs) > 1 and members(smallest) < members(ask):
            # Which members are the least is for us to choose: others may fit.
            found = self._any(ask, found)
        if isinstance(found, Placement):
            return Place(ask, self._seating.names(found))
        return self._short(ask, smallest, found)

    def _any(self, ask: Ask, shortage: Shortage) -> Placement | Shortage:
        allowed = within(ask, self._ledger.left(ask.queue))
        return shortage if allowed is None else self._seating.place(allowed)

    def _short(self, ask: Ask, smallest: Ask, shortage: Shortage) -> Decision:
        if shortage.refused:
            return Wait(ask, Cause.REFUSED, shortage.message, shortage.nodes)
        cleared = self._seating.clear(ask, smallest)
        if cleared is not None:
            return cleared
        if self._held is not None and self._seating.fits_but_for_hold(smallest):
            return Wait(
                ask, Cause.HELD, f"what is free is held for {self._held.key}, which has waited longest"
            )
        return Wait(ask, Cause.RESOURCES, shortage.message, shortage.nodes)

    def _barred(self, ask: Ask) -> Wait | None:
        if members(ask) < ask.least:
            return Wait(ask, Cause.TASKS, f"{members(ask)} of {ask.least} members exist")
        for role, least in sorted(ask.roles.items()):
            there = sum(need.count for need in ask.needs if need.role == role)
            if there < least:
                return Wait(ask, Cause.TASKS, f"{there} of {least} members of role {role} exist")
        if ask.uid in self._seating.giving_way:
            return Wait(ask, Cause.HELD, "members of it have to leave for others")
        if not self._ledger.known(ask.queue):
            return Wait(
                ask, Cause.QUEUE, f"queue {ask.queue!r} does not exist: create it, or use {DEFAULT_QUEUE!r}"
            )
        return None

    def _capped(self, ask: Ask) -> Wait:
        needed, left = amounts_of(core(ask).needs), self._ledger.left(ask.queue)
        name = next(name for name in sorted(left) if needed.get(name, 0) > left[name])
        cap, missing = self._ledger.rule(ask.queue).cap[name], needed.get(name, 0)
        held = f"may have {as_quantity(name, cap)} {name} and holds {as_quantity(name, cap - left[name])}"
        return Wait(
            ask, Cause.QUEUE, f"queue {ask.queue!r} {held}; {as_quantity(name, missing)} more are needed"
        )

    def _extend(self, group: Iterable[Ask]) -> None:
        """Members beyond the least, of gangs just placed and of gangs that are whole: the last of their priority."""
        placed = {uid for uid, found in self._decisions.items() if isinstance(found, Place)}
        some = [ask for ask in group if not ask.least or ask.uid in placed]
        more = by_age(rest for ask in some if (rest := self._rest(ask)) is not None)
        for rest in turns(more, self._ledger.share, self._ledger.over):
            barred = self._barred(rest)
            allowed = within(rest, self._ledger.left(rest.queue)) if barred is None else None
            if barred is not None:
                self._decisions[rest.uid] = barred
            elif allowed is None or not members(allowed):
                self._settle(rest, self._capped_extra(rest))
            else:
                self._settle(rest, self._seating.place(allowed))

    def _rest(self, ask: Ask) -> Ask | None:
        """What is left of an ask once it has its least, as an ask that can do without."""
        if not ask.least:
            return ask
        match self._decisions.get(ask.uid):
            case Place(nodes=nodes) if members(ask) > sum(map(len, nodes)):
                counts = [need.count - len(found) for need, found in zip(ask.needs, nodes, strict=True)]
                near = (*ask.near, *(name for found in nodes for name in found))
                return msgspec.structs.replace(resized(ask, counts), least=0, roles={}, near=near)
        return None

    def _settle(self, rest: Ask, found: Placement | Wait | Shortage) -> None:
        placed = self._decisions.get(rest.uid)
        match found, placed:
            case Placement(), Place():
                joined = zip(placed.nodes, self._seating.names(found), strict=True)
                self._decisions[rest.uid] = Place(placed.ask, tuple(first + more for first, more in joined))
            case Placement(), _:
                self._decisions[rest.uid] = Place(rest, self._seating.names(found))
            case Wait(), None:
                self._decisions[rest.uid] = found
            case Shortage(), None:
                cause = Cause.REFUSED if found.refused else Cause.RESOURCES
                self._decisions[rest.uid] = Wait(rest, cause, found.message, found.nodes)

    def _capped_extra(self, rest: Ask) -> Wait:
        return Wait(rest, Cause.QUEUE, f"queue {rest.queue!r} has what it may have")

    # The starvation guard: those whose patience is over come first, the longest waiting first, until one cannot have
    # its places. What is free and of use to it is then held for it, so that the rest of the round, whose asks are not
    # more important, has only what it does not need. Queues that have what they deserve have no such right.

    def _foresee(self, overdue: Iterable[Ask]) -> None:
        """Find out who would ever fit while nobody has got a place: what is given in this round will be free again."""
        for ask in islice(overdue, FORESEEN):
            if ask.least and self._barred(ask) is None:
                self._seating.ever_fits(core(ask))

    def _overdue_within(self, overdue: Iterable[Ask]) -> str | None:
        """Those that stay within the share of their queue. Gives the queue of the first that could, once others end."""
        hungry = None
        for ask in self._impatient(overdue):
            if ask.queue == hungry:
                continue
            if not self._ledger.over(ask):
                self._decide_or_hold(ask)
            elif hungry is None and not self._ledger.outgrows(ask) and self._barred(ask) is None:
                hungry = ask.queue if self._seating.ever_fits(core(ask)) else None
                self._hopeless += hungry is None
        return hungry

    def _overdue_beyond(self, overdue: Iterable[Ask]) -> None:
        for ask in self._impatient(overdue):
            self._decide_or_hold(ask)

    def _impatient(self, overdue: Iterable[Ask]) -> Iterator[Ask]:
        """While nothing is held, and there is hope."""
        for ask in overdue:
            if self._held is not None or self._hopeless >= HOPELESS:
                return
            if self._ledger.share(ask.queue) < 1:
                yield ask

    def _decide_or_hold(self, ask: Ask) -> None:
        self._decisions[ask.uid] = decision = self._decide(ask)
        if isinstance(decision, Wait) and decision.cause == Cause.RESOURCES:
            self._hopeless += not self._hold(ask, decision)

    def _out_of_patience(self, asks: Iterable[Ask]) -> list[Ask]:
        limit = self._limit
        return [] if limit is None else [ask for ask in asks if ask.since <= limit]

    def _hold(self, ask: Ask, waits: Wait) -> bool:
        if not self._seating.hold(core(ask)):
            return False
        self._held = ask
        message = f"{waits.message}; it has waited longest: what frees up is held for it"
        self._decisions[ask.uid] = msgspec.structs.replace(waits, message=message)
        return True

    def _again(self) -> datetime | None:
        if self._patience is None or self._limit is None:
            return None
        limit = self._limit
        patient = [ask for ask in self._asks if ask.since > limit and ask.least]
        waiting = (ask.since for ask in patient if isinstance(self._decisions.get(ask.uid), Wait))
        first = min(waiting, default=None)
        return None if first is None else first + self._patience


def _limit(policy: Policy, now: datetime) -> datetime | None:
    """Whoever has waited since then, or longer, is out of patience. None: nobody ever is."""
    if policy.patience is None:
        return None
    try:
        return now - policy.patience
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
