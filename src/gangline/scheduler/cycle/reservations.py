"""Capacity handed out in one cycle: placed, promised to a preempting gang, or reserved. A request that failed is not retried."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from gangline.scheduler.cycle.infeasible import FailedPreemptions, FitSignature, InfeasibleCache, fit_signature
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
    """Hands out capacity, and from then on counts it as used in the what-if and in the queue's account."""

    def __init__(
        self, what_if: WhatIf, accounts: QueueAccounts, allocations: Collection[GangAllocation], policy: SchedulerPolicy
    ) -> None:
        self._what_if, self._accounts, self._policy = what_if, accounts, policy
        self._allocations = AllocationIndex(allocations)
        self._budget_usage = BudgetUsage()
        # An upper bound of what can still be placed.
        self._free = dict(accounts.free)
        # Terminating pods: at the start, and by our own decisions; and the amounts they free.
        self._terminating_uids = frozenset(what_if.terminating)
        self._terminating_amounts = total_amounts(filter(None, map(what_if.bound_pod, self._terminating_uids)))
        self._reserved_for: GangRequest | None = None
        # Gangs that were placed, or promised capacity, in this cycle.
        self._served_gangs: set[str] = set()
        self.preempted_gangs: set[str] = set()
        """Gangs that lost members to preemption in this cycle. No gang that was placed is among them."""
        self._infeasible = InfeasibleCache(len(what_if.node_names))
        self._failed_preemptions = FailedPreemptions()
        self._blocked_by_reservation: dict[FitSignature, bool] = {}
        self._feasible: dict[FitSignature, bool] = {}
        self.version = 0
        """Grows with everything that may change the decision about an equal request."""

    def holds_places(self, uid: str) -> bool:
        """Whether a gang has a pod that is not terminating."""
        return uid in self._allocations.active_gangs

    def node_names(self, placement: Placement) -> tuple[tuple[str, ...], ...]:
        names = self._what_if.node_names
        return tuple(tuple(names[number] for number in nodes.tolist()) for nodes in placement.nodes)

    def place(self, request: GangRequest) -> Placement | Shortage:
        """Place the request from now on, or say why it does not fit."""
        shortage = self._infeasible.known_shortage(request, self._free)
        if shortage is not None:
            return shortage
        outcome = self._what_if.place(request)
        if isinstance(outcome, Placement) and not outcome.pod_count:
            outcome = Shortage("no room for more members")
        if isinstance(outcome, Shortage):
            self._infeasible.record(request, outcome)
            self.version += 1
            return outcome
        self._assume(request, outcome)
        for pod_set, nodes in zip(request.pod_sets, outcome.nodes, strict=True):
            add_amounts(self._free, pod_set.shape.amounts, -len(nodes))
        return outcome

    def make_room(self, request: GangRequest, minimal: GangRequest) -> Preempt | Pending | None:
        """Make room by waiting for terminating pods, else by evicting others; None if there is no way.

        The capacity is promised to the gang, so that no other takes it and no pod is evicted twice for the same.
        """
        if minimal in self._failed_preemptions:
            return None
        placement = self._placement_after(minimal, ()) if self._terminating_uids else None
        if placement is not None:
            self._assume(minimal, placement)
            return Pending(request, PendingReason.VICTIMS, "waits for terminating pods to free resources")
        plan = self._preemption_plan(request, minimal) or self._reclaim_plan(request, minimal)
        if plan is None:
            self._failed_preemptions.add(minimal)
            return None
        return self._commit_plan(request, minimal, plan)

    def reserve(self, request: GangRequest) -> bool:
        """Reserve free capacity for the request if it can ever fit. Returns whether it was reserved."""
        if not self.could_ever_fit(request):
            return False
        self._reserved_for = request
        self.version += 1
        self._what_if.reserve(request)
        return True

    def could_ever_fit(self, request: GangRequest) -> bool:
        """Whether the request would fit if all our pods were evicted."""
        key = fit_signature(request)
        if key not in self._feasible:
            self._feasible[key] = self._fits_after_evictions(request)
        return self._feasible[key]

    def _fits_after_evictions(self, request: GangRequest) -> bool:
        """Whether the request fits after evicting a growing prefix of our allocations, at last all of them."""
        # The snapshot is tried when totals exceed the need by this factor, which grows: tries are expensive.
        margin, removed, needed = 2, set(self._terminating_uids), requested_amounts(request.pod_sets)
        available = Counter(self._free)
        available.update(self._terminating_amounts)
        for allocation in self._allocations.in_eviction_order:
            removed.update(member.uid for member in allocation.pods)
            add_amounts(available, allocation.retained)
            if all(available[name] >= margin * amount for name, amount in needed.items()):
                if isinstance(self._what_if.place_after_eviction(request, removed), Placement):
                    return True
                margin *= 4
        return isinstance(self._what_if.place_after_eviction(request, removed), Placement)

    def fits_without_reservation(self, request: GangRequest) -> bool:
        """Whether something is reserved, and the request would fit if it were not."""
        if self._reserved_for is None:
            return False
        key = fit_signature(request)
        if key not in self._blocked_by_reservation:
            is_possible = lacking_resource(requested_amounts(request.pod_sets), self._free) is None
            self._blocked_by_reservation[key] = is_possible and self._fits_unreserved(request)
        return self._blocked_by_reservation[key]

    def _fits_unreserved(self, request: GangRequest) -> bool:
        assert self._reserved_for is not None
        self._what_if.release()
        outcome = self._what_if.place(request)
        self._what_if.reserve(self._reserved_for)
        return isinstance(outcome, Placement)

    def _preemption_plan(self, request: GangRequest, minimal: GangRequest) -> PreemptionPlan | None:
        if not (
            request.can_preempt and self._policy.preemption and self._allocations.lowest_priority < request.priority
        ):
            return None
        return self._plan_within_budgets(minimal, lower_priority(self._allocations.in_eviction_order, request))

    def _reclaim_plan(self, request: GangRequest, minimal: GangRequest) -> PreemptionPlan | None:
        if not (self._policy.reclaim and may_reclaim(request, self._accounts)):
            return None
        return self._plan_within_budgets(
            minimal,
            reclaimable_allocations(
                self._allocations.in_eviction_order, self._allocations.queue_names, request, self._accounts
            ),
        )

    def _plan_within_budgets(
        self, minimal: GangRequest, allocations: Iterable[GangAllocation]
    ) -> PreemptionPlan | None:
        allocations = [allocation for allocation in allocations if allocation.uid not in self._served_gangs]
        # There is nothing to evict, or not even everything together would be enough.
        if not allocations or not self._totals_suffice(minimal, (allocation.retained for allocation in allocations)):
            return None
        while True:
            plan = preemption_plan(
                allocations, lambda victim_sets: self._placement_after(minimal, victim_sets), self._terminating_uids
            )
            if plan is None:
                return None
            protected = self._budget_usage.protected_allocations(allocations, plan.victim_sets)
            if protected is None:
                return plan
            # Every iteration exhausts another budget, so this ends.
            allocations = protected

    def _totals_suffice(self, request: GangRequest, freed: Iterable[Amounts]) -> bool:
        """Whether by totals alone the request could fit once this much is freed. False is certain, true is not."""
        missing = {
            name: amount - self._free.get(name, 0) - self._terminating_amounts.get(name, 0)
            for name, amount in requested_amounts(request.pod_sets).items()
        }
        for amounts in chain(({},), freed):
            missing = {name: amount - amounts.get(name, 0) for name, amount in missing.items() if amount > 0}
            if not any(amount > 0 for amount in missing.values()):
                return True
        return False

    def _placement_after(self, request: GangRequest, victim_sets: Sequence[VictimSet]) -> Placement | None:
        """The placement once the victims and all terminating pods are gone, if the queue's cap then allows it."""
        if not self._totals_suffice(request, map(self._freed_amounts, victim_sets)):
            return None
        # A set that is not frozen is not cached by the what-if: each of these is used once.
        removed: Collection[str] = self._terminating_uids
        if victim_sets:
            removed = {member.uid for victim_set in victim_sets for member in victim_set.pods} | self._terminating_uids
        if not self._is_within_cap(request, removed):
            return None
        outcome = self._what_if.place_after_eviction(request, removed)
        return outcome if isinstance(outcome, Placement) else None

    def _is_within_cap(self, request: GangRequest, removed: Iterable[str]) -> bool:
        """Whether the queue's cap allows the request once these pods are gone."""
        if not self._accounts.quota(request.queue).cap:
            return True
        own_pods = (
            self._what_if.bound_pod(uid) for uid in removed if self._allocations.queue_by_pod.get(uid) == request.queue
        )
        remaining = self._accounts.remaining_cap(
            request.queue, (pod.shape.amounts for pod in own_pods if pod is not None)
        )
        return request_within(request, remaining) is not None

    def _freed_amounts(self, victim_set: VictimSet) -> Amounts:
        return victim_set.allocation.retained if victim_set.ends_gang else total_amounts(victim_set.pods)

    def _commit_plan(self, request: GangRequest, minimal: GangRequest, plan: PreemptionPlan) -> Preempt:
        for queue, pods in victims_by_queue(plan.victim_sets).items():
            for pod in pods:
                self._accounts.refund(queue, pod.shape.amounts)
        self._budget_usage.charge(plan.victim_sets)
        victims = plan.victims
        self._terminating_uids |= {victim.uid for victim in victims}
        add_amounts(self._terminating_amounts, total_amounts(victims))
        self._assume(minimal, plan.placement)
        # Other requests may now fit into what the victims leave.
        self._failed_preemptions.clear()
        self.preempted_gangs.update(victim_set.allocation.uid for victim_set in plan.victim_sets)
        gangs = tuple(dict.fromkeys(victim_set.allocation.key for victim_set in plan.victim_sets))
        return Preempt(request, victims, gangs, self.node_names(plan.placement))

    def _assume(self, request: GangRequest, placement: Placement) -> None:
        self._served_gangs.add(request.uid)
        self.version += 1
        self._what_if.assume(request, placement)
        self._accounts.charge(request, placement)
