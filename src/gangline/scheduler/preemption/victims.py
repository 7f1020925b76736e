"""Who of ours holds what."""

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
    """Who of ours holds what, looked up by uid. Made when it is first needed: most rounds never ask."""

    def __init__(self, holdings: Collection[GangAllocation]) -> None:
        self._allocations = holdings

    @cached_property
    def in_eviction_order(self) -> Sequence[GangAllocation]:
        """The first to go first, in a fixed order."""
        return eviction_order(self._allocations)

    @cached_property
    def lowest_priority(self) -> float:
        """The lowest priority of all gangs."""
        return min(map(attrgetter("priority"), self._allocations), default=math.inf)

    @cached_property
    def queue_names(self) -> frozenset[str]:
        """The queues of all gangs."""
        return frozenset(map(attrgetter("queue"), self._allocations))

    @cached_property
    def active_gangs(self) -> frozenset[str]:
        """Gangs that hold a place they are not about to lose."""
        return frozenset(
            holding.uid for holding in self._allocations if any(not member.terminating for member in holding.pods)
        )

    @cached_property
    def queue_by_pod(self) -> Mapping[str, str]:
        return {member.uid: holding.queue for holding in self._allocations for member in holding.pods}


class BudgetUsage:
    """How much of each budget this round has used."""

    def __init__(self) -> None:
        self._spent: Counter[Key] = Counter()

    def charge(self, bundles: Iterable[VictimSet]) -> None:
        """These leave."""
        going: set[str] = set()
        for bundle in bundles:
            self._spent.update(_budget_cost(bundle, going))
            going.update(member.uid for member in bundle.pods)

    def protected_allocations(
        self, holdings: Sequence[GangAllocation], bundles: Iterable[VictimSet]
    ) -> list[GangAllocation] | None:
        """The holdings without those who cannot leave beside the first of these bundles. None: all of these can leave."""
        left: dict[Key, int] = {}
        used_up: set[Key] = set()
        going: set[str] = set()
        for bundle in bundles:
            for limit in bundle.allocation.budget_limits:
                left.setdefault(limit.budget, limit.allowed - self._spent[limit.budget])
            taken = _budget_cost(bundle, going)
            short = {budget for budget, count in taken.items() if count > left[budget]}
            used_up |= short
            if not short:
                going.update(member.uid for member in bundle.pods)
                for budget, count in taken.items():
                    left[budget] -= count
        return [_with_protected(holding, used_up, going) for holding in holdings] if used_up else None


def _budget_cost(bundle: VictimSet, going: Collection[str]) -> Counter[Key]:
    """Of which budgets a bundle takes how much, when these leave anyway: a member may be in two bundles of its gang."""
    uids = {member.uid for member in bundle.pods}.difference(going)
    return +Counter({limit.budget: len(uids & limit.covered) for limit in bundle.allocation.budget_limits})


def _with_protected(holding: GangAllocation, used_up: set[Key], going: set[str]) -> GangAllocation:
    """As one of which nobody else leaves whom these budgets cover."""
    kept = {uid for limit in holding.budget_limits if limit.budget in used_up for uid in limit.covered - going}
    return msgspec.structs.replace(holding, protected_uids=holding.protected_uids | kept) if kept else holding
