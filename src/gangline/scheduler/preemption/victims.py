"""Who of ours holds what."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from gangline.scheduler.preemption.preempt import eviction_order
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
