"""Who of ours holds what."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from gangline.scheduler.preemption.preempt import by_dispensability
from gangline.scheduler.types.cycle import Holding


class Residents:
    """Who of ours holds what, looked up by uid. Made when it is first needed: most rounds never ask."""

    def __init__(self, holdings: Collection[Holding]) -> None:
        self._given = holdings

    @cached_property
    def holdings(self) -> Sequence[Holding]:
        """The first to go first, in a fixed order."""
        return by_dispensability(self._given)

    @cached_property
    def least_important(self) -> float:
        """The lowest priority of all gangs."""
        return min(map(attrgetter("priority"), self._given), default=math.inf)

    @cached_property
    def held_from(self) -> frozenset[str]:
        """The queues of all gangs."""
        return frozenset(map(attrgetter("queue"), self._given))

    @cached_property
    def present(self) -> frozenset[str]:
        """Gangs that hold a place they are not about to lose."""
        return frozenset(
            holding.uid
            for holding in self._given
            if any(not member.terminating for member in holding.members)
        )

    @cached_property
    def queues(self) -> Mapping[str, str]:
        return {member.uid: holding.queue for holding in self._given for member in holding.members}
