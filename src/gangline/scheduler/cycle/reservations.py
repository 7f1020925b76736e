"""The places of one round: given, promised to those for whom others leave, or held. Asks nothing twice."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from gangline.scheduler.cycle.infeasible import (
    FailedPreemptions,
    FitSignature,
    InfeasibleCache,
    fit_signature,
)
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.preemption.preempt import (
    PreemptionPlan,
    VictimSet,
    lower_priority,
    preemption_plan,
    victims_by_queue,
)
from gangline.scheduler.preemption.reclaim import may_reclaim, reclaimable_allocations
from gangline.scheduler.preemption.victims import AllocationIndex, BudgetUsage
from gangline.scheduler.quota.accounts import QueueAccounts
from gangline.scheduler.types.cycle import (
    GangAllocation,
    GangRequest,
    Pending,
    PendingReason,
    Placement,
    Preempt,
    SchedulerPolicy,
    Shortage,
    total_amounts,
)
from gangline.scheduler.types.gang_requests import request_within, requested_amounts
from gangline.scheduler.types.resources import Amounts, add_amounts, lacking_resource


class Reservations:
    """Gives places in turn. What it gives is used from then on, in the room and in the queue's account."""

    def __init__(
        self, room: WhatIf, ledger: QueueAccounts, holdings: Collection[GangAllocation], policy: SchedulerPolicy
    ) -> None:
        self._what_if, self._accounts, self._policy = room, ledger, policy
        self._allocations = AllocationIndex(holdings)
        self._budget_usage = BudgetUsage()
        # Never less than what can be placed.
        self._free = dict(ledger.free)
        # Whoever is on the way out: at the start, and by our own decisions; and how much room they leave.
        self._terminating_uids = frozenset(room.terminating)
        self._terminating_amounts = total_amounts(filter(None, map(room.bound_pod, self._terminating_uids)))
        self._reserved_for: GangRequest | None = None
        # Gangs that got or were promised places in this round.
        self._served_gangs: set[str] = set()
        self.preempted_gangs: set[str] = set()
        """Gangs of which some were made to leave in this round: none of those that got places."""
        self._infeasible = InfeasibleCache(len(room.node_names))
        self._failed_preemptions = FailedPreemptions()
        self._blocked_by_reservation: dict[FitSignature, bool] = {}
        self._feasible: dict[FitSignature, bool] = {}
        self.version = 0
        """Grows with all that may make an equal ask be told something else than before."""

    def holds_places(self, uid: str) -> bool:
        """Whether a gang holds any place that it is not about to lose."""
        return uid in self._allocations.active_gangs

    def node_names(self, placement: Placement) -> tuple[tuple[str, ...], ...]:
        names = self._what_if.node_names
        return tuple(tuple(names[number] for number in nodes.tolist()) for nodes in placement.nodes)

    def place(self, ask: GangRequest) -> Placement | Shortage:
        """Places from now on its own, or why there are none."""
        known = self._infeasible.known_shortage(ask, self._free)
        if known is not None:
            return known
        found = self._what_if.place(ask)
        if isinstance(found, Placement) and not found.pod_count:
            found = Shortage("no room for more members")
        if isinstance(found, Shortage):
            self._infeasible.record(ask, found)
            self.version += 1
            return found
        self._assume(ask, found)
        for need, nodes in zip(ask.pod_sets, found.nodes, strict=True):
            add_amounts(self._free, need.shape.amounts, -len(nodes))
        return found

    def make_room(self, ask: GangRequest, smallest: GangRequest) -> Preempt | Pending | None:
        """Room from those who leave anyway, else from those who have to give way; None: there is no way.

        The places are promised to it, so that nobody else takes them and nobody leaves twice for the same.
        """
        if smallest in self._failed_preemptions:
            return None
        later = self._placement_after(smallest, ()) if self._terminating_uids else None
        if later is not None:
            self._assume(smallest, later)
            return Pending(ask, PendingReason.VICTIMS, "room is being made for it: pods are leaving")
        cleared = self._preemption_plan(ask, smallest) or self._reclaim_plan(ask, smallest)
        if cleared is None:
            self._failed_preemptions.add(smallest)
            return None
        return self._commit_plan(ask, smallest, cleared)

    def reserve(self, ask: GangRequest) -> bool:
        """Keep what is free for this one, if it would ever fit; else do nothing and say so."""
        if not self.could_ever_fit(ask):
            return False
        self._reserved_for = ask
        self.version += 1
        self._what_if.reserve(ask)
        return True

    def could_ever_fit(self, ask: GangRequest) -> bool:
        """Whether it would fit if ours left."""
        key = fit_signature(ask)
        if key not in self._feasible:
            self._feasible[key] = self._fits_after_evictions(ask)
        return self._feasible[key]

    def _fits_after_evictions(self, ask: GangRequest) -> bool:
        """Without some of ours, for most need little; in the end without all of them."""
        times, gone, needed = 2, set(self._terminating_uids), requested_amounts(ask.pod_sets)
        room = Counter(self._free)
        room.update(self._terminating_amounts)
        for holding in self._allocations.in_eviction_order:
            gone.update(member.uid for member in holding.pods)
            add_amounts(room, holding.retained)
            if all(room[name] >= times * amount for name, amount in needed.items()):
                if isinstance(self._what_if.place_after_eviction(ask, gone), Placement):
                    return True
                times *= 4
        return isinstance(self._what_if.place_after_eviction(ask, gone), Placement)

    def fits_without_reservation(self, ask: GangRequest) -> bool:
        """Whether there would be room if nothing were held."""
        key = fit_signature(ask)
        if self._reserved_for is not None and key not in self._blocked_by_reservation:
            self._blocked_by_reservation[key] = lacking_resource(
                requested_amounts(ask.pod_sets), self._free
            ) is None and self._fits_unreserved(ask)
        return self._blocked_by_reservation.get(key, False)

    def _fits_unreserved(self, ask: GangRequest) -> bool:
        assert self._reserved_for is not None
        self._what_if.release()
        found = self._what_if.place(ask)
        self._what_if.reserve(self._reserved_for)
        return isinstance(found, Placement)

    def _preemption_plan(self, ask: GangRequest, smallest: GangRequest) -> PreemptionPlan | None:
        if not (ask.can_preempt and self._policy.preemption and self._allocations.lowest_priority < ask.priority):
            return None
        return self._plan_within_budgets(smallest, lower_priority(self._allocations.in_eviction_order, ask))

    def _reclaim_plan(self, ask: GangRequest, smallest: GangRequest) -> PreemptionPlan | None:
        if not (self._policy.reclaim and may_reclaim(ask, self._accounts)):
            return None
        return self._plan_within_budgets(
            smallest,
            reclaimable_allocations(
                self._allocations.in_eviction_order, self._allocations.queue_names, ask, self._accounts
            ),
        )

    def _plan_within_budgets(self, smallest: GangRequest, holdings: Iterable[GangAllocation]) -> PreemptionPlan | None:
        holdings = [holding for holding in holdings if holding.uid not in self._served_gangs]
        # Without any it would have its places already, or its queue may not have them.
        if not holdings or not self._totals_suffice(smallest, (holding.retained for holding in holdings)):
            return None
        while True:
            found = preemption_plan(
                holdings, lambda bundles: self._placement_after(smallest, bundles), self._terminating_uids
            )
            spared = None if found is None else self._budget_usage.protected_allocations(holdings, found.victim_sets)
            if spared is None:
                return found
            # Each time another budget is used up, so this ends.
            holdings = spared

    def _totals_suffice(self, ask: GangRequest, more: Iterable[Amounts]) -> bool:
        """Whether by sums alone it could fit with this much more. False is certain, true is not."""
        missing = {
            name: amount - self._free.get(name, 0) - self._terminating_amounts.get(name, 0)
            for name, amount in requested_amounts(ask.pod_sets).items()
        }
        for amounts in chain(({},), more):
            missing = {name: amount - amounts.get(name, 0) for name, amount in missing.items() if amount > 0}
            if not any(amount > 0 for amount in missing.values()):
                return True
        return False

    def _placement_after(self, ask: GangRequest, bundles: Sequence[VictimSet]) -> Placement | None:
        """Where it would go once these and all on their way out have left, if its queue may then have as much."""
        if not self._totals_suffice(ask, map(self._freed_amounts, bundles)):
            return None
        # What is not frozen is not remembered by the room: each of these is asked about once.
        gone: Collection[str] = self._terminating_uids
        if bundles:
            gone = {member.uid for bundle in bundles for member in bundle.pods} | self._terminating_uids
        if not self._is_within_cap(ask, gone):
            return None
        found = self._what_if.place_after_eviction(ask, gone)
        return found if isinstance(found, Placement) else None

    def _is_within_cap(self, ask: GangRequest, gone: Iterable[str]) -> bool:
        """Whether the cap of its queue allows it once these are gone."""
        if not self._accounts.quota(ask.queue).cap:
            return True
        own = (self._what_if.bound_pod(uid) for uid in gone if self._allocations.queue_by_pod.get(uid) == ask.queue)
        left = self._accounts.remaining_cap(ask.queue, (each.shape.amounts for each in own if each is not None))
        return request_within(ask, left) is not None

    def _freed_amounts(self, bundle: VictimSet) -> Amounts:
        if bundle.ends_gang:
            return bundle.allocation.retained
        return total_amounts(bundle.pods)

    def _commit_plan(self, ask: GangRequest, smallest: GangRequest, cleared: PreemptionPlan) -> Preempt:
        for queue, residents in victims_by_queue(cleared.victim_sets).items():
            for resident in residents:
                self._accounts.refund(queue, resident.shape.amounts)
        self._budget_usage.charge(cleared.victim_sets)
        victims = cleared.victims
        self._terminating_uids |= {victim.uid for victim in victims}
        add_amounts(self._terminating_amounts, total_amounts(victims))
        self._assume(smallest, cleared.placement)
        # Others may now fit into what these leave.
        self._failed_preemptions.clear()
        self.preempted_gangs.update(bundle.allocation.uid for bundle in cleared.victim_sets)
        gangs = tuple(dict.fromkeys(bundle.allocation.key for bundle in cleared.victim_sets))
        return Preempt(ask, victims, gangs, self.node_names(cleared.placement))

    def _assume(self, ask: GangRequest, placement: Placement) -> None:
        self._served_gangs.add(ask.uid)
        self.version += 1
        self._what_if.assume(ask, placement)
        self._accounts.charge(ask, placement)
