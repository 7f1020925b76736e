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
from gangline.scheduler.cycle.ordering import by_age, by_share, by_waiting_time, fair_order, requests_by_rank
from gangline.scheduler.cycle.reservations import Reservations
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.quota.accounts import QueueAccounts, queue_usage
from gangline.scheduler.types.cycle import (
    Bind,
    CycleResult,
    Decision,
    GangAllocation,
    GangRequest,
    Pending,
    PendingReason,
    Placement,
    QueueQuota,
    QueueUsage,
    SchedulerPolicy,
    Shortage,
)
from gangline.scheduler.types.equivalence import EquivalenceClass, EquivalenceClasses
from gangline.scheduler.types.gang_requests import (
    member_count,
    minimal_request,
    missing_members_message,
    request_within,
    requested_amounts,
    resized_request,
)
from gangline.scheduler.types.resources import as_quantity

MAX_INFEASIBLE = 8
"""How many of those whose patience is over are looked at, if there is never room for them, before we give up."""

MAX_PRECHECKS = 4
"""Of so many of them, of each rank, it is found out beforehand whether there is ever room for them."""


def schedule(
    room: WhatIf,
    asks: Iterable[GangRequest],
    holdings: Iterable[GangAllocation],
    queues: Mapping[str, QueueQuota],
    policy: SchedulerPolicy,
    now: datetime,
    held: QueueUsage | None = None,
    kinds: EquivalenceClasses | None = None,
) -> CycleResult:
    """Decide for every ask, once. `room` is used up by it: take a new one for the next round.

    Whoever keeps count of what queues hold may give it as `held`; else it is added up from the holdings. `kinds` may
    be kept from round to round: it makes nothing different, but the next one faster.
    """
    asks, holdings, kinds = list(asks), list(holdings), kinds or EquivalenceClasses()
    kinds.update(asks)
    ledger = QueueAccounts(room.total(), room.free(), kinds, queue_usage(holdings) if held is None else held, queues)
    return _SchedulingCycle(asks, kinds, ledger, Reservations(room, ledger, holdings, policy), policy, now).run()


class _SchedulingCycle:
    def __init__(
        self,
        asks: list[GangRequest],
        kinds: EquivalenceClasses,
        ledger: QueueAccounts,
        seating: Reservations,
        policy: SchedulerPolicy,
        now: datetime,
    ) -> None:
        self._requests, self._classes, self._accounts, self._reservations = asks, kinds, ledger, seating
        self._starvation_timeout, self._starvation_cutoff = (
            policy.starvation_timeout,
            _starvation_cutoff(policy, now),
        )
        self._reserved_for: GangRequest | None = None
        self._infeasible_count = 0
        # By the uid of the ask, in the order in which they were made.
        self._decisions: dict[str, Decision] = {}
        # What one of a kind was told last, which is what all of it are told until something changes.
        self._pending_by_class: dict[EquivalenceClass, Pending] = {}
        self._pending_version = seating.version

    def run(self) -> CycleResult:
        ranked = requests_by_rank(self._requests, self._goes_first)
        overdue = [by_waiting_time(self._overdue_requests(group)) for _, group in ranked]
        for late in overdue:
            self._precheck_overdue(late)
        for _, same in groupby(zip(ranked, overdue, strict=True), key=lambda found: found[0][0][0]):
            groups = [(group, late) for (_, group), late in same]
            for group, late in groups:
                self._decide_rank([ask for ask in group if ask.min_members], [ask for ask in late if ask.min_members])
            self._place_surplus(chain.from_iterable(group for group, _ in groups))
        return CycleResult(
            list(self._decisions.values()),
            self._accounts.allocated,
            self._accounts.deserved,
            self._recheck_at(),
        )

    def _decide_rank(self, group: Sequence[GangRequest], overdue: Sequence[GangRequest]) -> None:
        """Those of one rank: first all that leave their queue within its share, then the others.

        If one of the others has lost patience, and its queue's share is large enough for it, its queue waits for it:
        only what is due to other queues goes first. Both come by age, the overdue by how long they have waited.
        """
        hungry = self._decide_overdue_within_share(overdue)
        group = self._undecided(group)
        beyond = {ask.uid for ask in group}
        for ask in by_share(self._unless_all_over_share(group), self._accounts.share):
            if ask.queue != hungry and not self._accounts.exceeds_share(ask):
                beyond.remove(ask.uid)
                self._decisions[ask.uid] = self._decide(ask)
        self._decide_overdue_over_share(ask for ask in overdue if ask.uid in beyond)
        group = [ask for ask in self._undecided(group) if ask.uid in beyond]
        order = fair_order(group, self._accounts.share, self._accounts.exceeds_share)
        for ask in order if self._unless_all_over_share(group) else by_share(group, self._accounts.share):
            self._decisions[ask.uid] = self._decide(ask)

    def _unless_all_over_share(self, asks: Sequence[GangRequest]) -> Sequence[GangRequest]:
        """All of them, or none if every one would take its queue over its share: then nothing comes before the rest."""
        return () if all(map(self._accounts.class_exceeds_share, self._classes.classes_of(asks))) else asks

    def _undecided(self, asks: Iterable[GangRequest]) -> list[GangRequest]:
        return [ask for ask in asks if ask.uid not in self._decisions]

    def _goes_first(self, ask: GangRequest) -> bool:
        """Broken gangs go first; but one of which nothing is left may not so get its queue more than its share."""
        return ask.recovering and (self._reservations.holds_places(ask.uid) or not self._accounts.exceeds_share(ask))

    def _decide(self, ask: GangRequest) -> Decision:
        """Judge it, unless one that is alike was just judged: thousands wait, and most of them for the same."""
        if ask.uid in self._reservations.preempted_gangs:
            return self._evaluate(ask)
        if self._pending_version != self._reservations.version:
            self._drop_stale_pending()
        kind = self._classes.by_uid[ask.uid]
        told = self._pending_by_class.get(kind)
        if told is not None:
            return Pending(ask, told.reason, told.message, told.nodes_by_reason)
        decision = self._evaluate(ask)
        self._drop_stale_pending()
        if isinstance(decision, Pending) and decision.reason != PendingReason.VICTIMS:
            self._pending_by_class[kind] = decision
        return decision

    def _drop_stale_pending(self) -> None:
        """What was told before the last change."""
        if self._pending_version != self._reservations.version:
            self._pending_version = self._reservations.version
            self._pending_by_class.clear()

    def _evaluate(self, ask: GangRequest) -> Decision:
        barred = self._unmet_precondition(ask)
        if barred is not None:
            return barred
        smallest = minimal_request(ask)
        if request_within(smallest, self._accounts.remaining_cap(ask.queue)) is None:
            return self._reservations.make_room(ask, smallest) or self._cap_reached(ask)
        found = self._reservations.place(smallest)
        if isinstance(found, Shortage) and len(ask.pod_sets) > 1 and member_count(smallest) < member_count(ask):
            # Which members are the least is for us to choose: others may fit.
            found = self._place_any_members(ask, found)
        if isinstance(found, Placement):
            return Bind(ask, self._reservations.node_names(found))
        return self._resolve_shortage(ask, smallest, found)

    def _place_any_members(self, ask: GangRequest, shortage: Shortage) -> Placement | Shortage:
        allowed = request_within(ask, self._accounts.remaining_cap(ask.queue))
        return shortage if allowed is None else self._reservations.place(allowed)

    def _resolve_shortage(self, ask: GangRequest, smallest: GangRequest, shortage: Shortage) -> Decision:
        if shortage.unsupported:
            return Pending(ask, PendingReason.REFUSED, shortage.message, shortage.nodes_by_reason)
        cleared = self._reservations.make_room(ask, smallest)
        if cleared is not None:
            return cleared
        if self._reserved_for is not None and self._reservations.fits_without_reservation(smallest):
            return Pending(
                ask,
                PendingReason.HELD,
                f"what is free is held for {self._reserved_for.key}, which has waited longest",
            )
        return Pending(ask, PendingReason.RESOURCES, shortage.message, shortage.nodes_by_reason)

    def _unmet_precondition(self, ask: GangRequest) -> Pending | None:
        if message := missing_members_message(ask):
            return Pending(ask, PendingReason.TASKS, message)
        if ask.uid in self._reservations.preempted_gangs:
            return Pending(ask, PendingReason.HELD, "members of it have to leave for others")
        if not self._accounts.has_queue(ask.queue):
            return Pending(
                ask,
                PendingReason.QUEUE,
                f"queue {ask.queue!r} does not exist: create it, or use {DEFAULT_QUEUE!r}",
            )
        return None

    def _cap_reached(self, ask: GangRequest) -> Pending:
        needed, left = (
            requested_amounts(minimal_request(ask).pod_sets),
            self._accounts.remaining_cap(ask.queue),
        )
        name = next(name for name in sorted(left) if needed.get(name, 0) > left[name])
        cap, missing = self._accounts.quota(ask.queue).cap[name], needed.get(name, 0)
        held = f"may have {as_quantity(name, cap)} {name} and holds {as_quantity(name, cap - left[name])}"
        return Pending(
            ask,
            PendingReason.QUEUE,
            f"queue {ask.queue!r} {held}; {as_quantity(name, missing)} more are needed",
        )

    def _place_surplus(self, group: Iterable[GangRequest]) -> None:
        """Members beyond the least, of gangs just placed and of gangs that are whole: the last of their priority."""
        placed = {uid for uid, found in self._decisions.items() if isinstance(found, Bind)}
        some = [ask for ask in group if not ask.min_members or ask.uid in placed]
        more = by_age(rest for ask in some if (rest := self._surplus_request(ask)) is not None)
        for rest in fair_order(more, self._accounts.share, self._accounts.exceeds_share):
            barred = self._unmet_precondition(rest)
            allowed = request_within(rest, self._accounts.remaining_cap(rest.queue)) if barred is None else None
            if barred is not None:
                self._decisions[rest.uid] = barred
            elif allowed is None or not member_count(allowed):
                self._record_surplus(rest, self._surplus_cap_reached(rest))
            else:
                self._record_surplus(rest, self._reservations.place(allowed))

    def _surplus_request(self, ask: GangRequest) -> GangRequest | None:
        """What is left of an ask once it has its least, as an ask that can do without."""
        if not ask.min_members:
            return ask
        match self._decisions.get(ask.uid):
            case Bind(nodes=nodes) if member_count(ask) > sum(map(len, nodes)):
                counts = [need.count - len(found) for need, found in zip(ask.pod_sets, nodes, strict=True)]
                near = (*ask.current_nodes, *(name for found in nodes for name in found))
                return msgspec.structs.replace(
                    resized_request(ask, counts), min_members=0, min_by_role={}, current_nodes=near
                )
        return None

    def _record_surplus(self, rest: GangRequest, found: Placement | Pending | Shortage) -> None:
        placed = self._decisions.get(rest.uid)
        match found, placed:
            case Placement(), Bind():
                joined = zip(placed.nodes, self._reservations.node_names(found), strict=True)
                self._decisions[rest.uid] = Bind(placed.request, tuple(first + more for first, more in joined))
            case Placement(), _:
                self._decisions[rest.uid] = Bind(rest, self._reservations.node_names(found))
            case Pending(), None:
                self._decisions[rest.uid] = found
            case Shortage(), None:
                cause = PendingReason.REFUSED if found.unsupported else PendingReason.RESOURCES
                self._decisions[rest.uid] = Pending(rest, cause, found.message, found.nodes_by_reason)

    def _surplus_cap_reached(self, rest: GangRequest) -> Pending:
        return Pending(rest, PendingReason.QUEUE, f"queue {rest.queue!r} has what it may have")

    # The starvation guard: those whose patience is over come first, the longest waiting first, until one cannot have
    # its places. What is free and of use to it is then held for it, so that the rest of the round, whose asks are not
    # more important, has only what it does not need. Queues that have what they deserve have no such right.

    def _precheck_overdue(self, overdue: Iterable[GangRequest]) -> None:
        """Find out who would ever fit while nobody has got a place: what is given in this round will be free again."""
        for ask in islice(overdue, MAX_PRECHECKS):
            if ask.min_members and self._unmet_precondition(ask) is None:
                self._reservations.could_ever_fit(minimal_request(ask))

    def _decide_overdue_within_share(self, overdue: Iterable[GangRequest]) -> str | None:
        """Those that stay within the share of their queue. Gives the queue of the first that could, once others end."""
        hungry = None
        for ask in self._eligible_overdue(overdue):
            if ask.queue == hungry:
                continue
            if not self._accounts.exceeds_share(ask):
                self._decide_or_reserve(ask)
            elif hungry is None and not self._accounts.outgrows_share(ask) and self._unmet_precondition(ask) is None:
                hungry = ask.queue if self._reservations.could_ever_fit(minimal_request(ask)) else None
                self._infeasible_count += hungry is None
        return hungry

    def _decide_overdue_over_share(self, overdue: Iterable[GangRequest]) -> None:
        for ask in self._eligible_overdue(overdue):
            self._decide_or_reserve(ask)

    def _eligible_overdue(self, overdue: Iterable[GangRequest]) -> Iterator[GangRequest]:
        """While nothing is held, and there is hope."""
        for ask in overdue:
            if self._reserved_for is not None or self._infeasible_count >= MAX_INFEASIBLE:
                return
            if self._accounts.share(ask.queue) < 1:
                yield ask

    def _decide_or_reserve(self, ask: GangRequest) -> None:
        self._decisions[ask.uid] = decision = self._decide(ask)
        if isinstance(decision, Pending) and decision.reason == PendingReason.RESOURCES:
            self._infeasible_count += not self._reserve(ask, decision)

    def _overdue_requests(self, asks: Iterable[GangRequest]) -> list[GangRequest]:
        limit = self._starvation_cutoff
        return [] if limit is None else [ask for ask in asks if ask.waiting_since <= limit]

    def _reserve(self, ask: GangRequest, waits: Pending) -> bool:
        if not self._reservations.reserve(minimal_request(ask)):
            return False
        self._reserved_for = ask
        message = f"{waits.message}; it has waited longest: what frees up is held for it"
        self._decisions[ask.uid] = msgspec.structs.replace(waits, message=message)
        return True

    def _recheck_at(self) -> datetime | None:
        if self._starvation_timeout is None or self._starvation_cutoff is None:
            return None
        limit = self._starvation_cutoff
        patient = [ask for ask in self._requests if ask.waiting_since > limit and ask.min_members]
        waiting = (ask.waiting_since for ask in patient if isinstance(self._decisions.get(ask.uid), Pending))
        first = min(waiting, default=None)
        return None if first is None else first + self._starvation_timeout


def _starvation_cutoff(policy: SchedulerPolicy, now: datetime) -> datetime | None:
    """Whoever has waited since then, or longer, is out of patience. None: nobody ever is."""
    if policy.starvation_timeout is None:
        return None
    try:
        return now - policy.starvation_timeout
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
