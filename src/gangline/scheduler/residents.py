"""Who of ours holds what."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from gangline.scheduler.demand import held_by
from gangline.scheduler.model import Holding
from gangline.scheduler.preempt import dispensable
from gangline.scheduler.shares import Amounts


class Residents:
    """Who of ours holds what, looked up by uid. Made when it is first needed: most rounds never ask."""

    def __init__(self, holdings: Collection[Holding]) -> None:
        self._given = holdings
        self._held: dict[str, Amounts] = {}

    @cached_property
    def holdings(self) -> Sequence[Holding]:
        """The first to go first, in a fixed order."""
        return sorted(self._given, key=dispensable)

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

    def held(self, holding: Holding) -> Amounts:
        """What a gang holds that is not on its way out."""
        found = self._held.get(holding.uid)
        if found is None:
            found = self._held[holding.uid] = held_by(holding)
        return found
