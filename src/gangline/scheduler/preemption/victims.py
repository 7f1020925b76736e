"""Candidates for eviction: our allocations, and what disruption budgets leave of them."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

import msgspec

from gangline.api.meta import Key
from gangline.scheduler.preemption.preempt import VictimSet, eviction_order
from gangline.scheduler.types.cycle import GangAllocation


class AllocationIndex:
    """Our allocations, indexed. Every index is built when it is first needed: most cycles need none."""

    def __init__(self, allocations: Collection[GangAllocation]) -> None:
        self._allocations = allocations

    @cached_property
    def in_eviction_order(self) -> Sequence[GangAllocation]:
        """The allocation to evict first comes first."""
        return eviction_order(self._allocations)

    @cached_property
    def lowest_priority(self) -> float:
        """The lowest priority of all allocations."""
        return min(map(attrgetter("priority"), self._allocations), default=math.inf)

    @cached_property
    def queue_names(self) -> frozenset[str]:
        """The queues of all allocations."""
        return frozenset(map(attrgetter("queue"), self._allocations))

    @cached_property
    def active_gangs(self) -> frozenset[str]:
        """Uids of gangs with a pod that is not terminating."""
        return frozenset(
            allocation.uid
            for allocation in self._allocations
            if any(not member.terminating for member in allocation.pods)
        )

    @cached_property
    def queue_by_pod(self) -> Mapping[str, str]:
        return {member.uid: allocation.queue for allocation in self._allocations for member in allocation.pods}


class BudgetUsage:
    """How many evictions of this cycle each disruption budget has been charged with."""

    def __init__(self) -> None:
        self._spent: Counter[Key] = Counter()

    def charge(self, victim_sets: Iterable[VictimSet]) -> None:
        """Charge the budgets with the eviction of these pods."""
        evicted: set[str] = set()
        for victim_set in victim_sets:
            self._spent.update(_budget_cost(victim_set, evicted))
            evicted.update(member.uid for member in victim_set.pods)

    def protected_allocations(
        self, allocations: Sequence[GangAllocation], victim_sets: Iterable[VictimSet]
    ) -> list[GangAllocation] | None:
        """Allocations with pods protected that the remaining budgets no longer allow to evict.

        None if the whole plan is within budget.
        """
        remaining: dict[Key, int] = {}
        exhausted: set[Key] = set()
        evicted: set[str] = set()
        for victim_set in victim_sets:
            for limit in victim_set.allocation.budget_limits:
                remaining.setdefault(limit.budget, limit.allowed - self._spent[limit.budget])
            cost = _budget_cost(victim_set, evicted)
            exceeded = {budget for budget, count in cost.items() if count > remaining[budget]}
            exhausted |= exceeded
            if not exceeded:
                evicted.update(member.uid for member in victim_set.pods)
                for budget, count in cost.items():
                    remaining[budget] -= count
        return [_with_protected(allocation, exhausted, evicted) for allocation in allocations] if exhausted else None


def _budget_cost(victim_set: VictimSet, evicted: Collection[str]) -> Counter[Key]:
    """How many evictions each budget is charged with. Pods evicted already are not counted: a pod may be in two sets."""
    uids = {member.uid for member in victim_set.pods}.difference(evicted)
    return +Counter({limit.budget: len(uids & limit.covered) for limit in victim_set.allocation.budget_limits})


def _with_protected(allocation: GangAllocation, exhausted: set[Key], evicted: set[str]) -> GangAllocation:
    """The allocation with every pod covered by an exhausted budget marked protected, except those already leaving."""
    protected = {
        uid for limit in allocation.budget_limits if limit.budget in exhausted for uid in limit.covered - evicted
    }
    if not protected:
        return allocation
    return msgspec.structs.replace(allocation, protected_uids=allocation.protected_uids | protected)
