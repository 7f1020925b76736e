"""What is known not to fit, so that nothing is tried twice in a round: room only shrinks."""

from typing import TypeAlias

from gangline.api.scheduling import GangTopology
from gangline.scheduler.types.cycle import GangRequest, PodSet, Shortage
from gangline.scheduler.types.gang_requests import member_count, requested_amounts
from gangline.scheduler.types.reasons import nodes_message
from gangline.scheduler.types.resources import Amounts, as_quantity, lacking_resource
from gangline.scheduler.types.shape import PodShape

FitSignature: TypeAlias = tuple[
    tuple[PodSet, ...], int, tuple[tuple[str, int], ...], GangTopology | None, tuple[str, ...], int
]
"""All that decides whether an ask fits."""

MAX_EXPLAINED = 64
"""So many different gangs are told node by node why they do not fit. The others hear of sums, if these say enough."""


def fit_signature(ask: GangRequest) -> FitSignature:
    return (
        ask.pod_sets,
        ask.min_members,
        tuple(sorted(ask.min_by_role.items())),
        ask.topology,
        ask.current_nodes,
        ask.priority,
    )


def uniform_key(ask: GangRequest) -> tuple[PodShape, int] | None:
    """Members alike, of which more do not fit where fewer did not; None: it is not as simple as that."""
    if len(ask.pod_sets) != 1 or ask.topology is not None or not ask.min_members:
        return None
    return ask.pod_sets[0].shape, ask.priority


class InfeasibleCache:
    """Asks that found no places, and why."""

    def __init__(self, nodes: int) -> None:
        self._node_count = nodes
        self._by_signature: dict[FitSignature, Shortage] = {}
        # Kind of member -> for how many there was no room, the fewest that were tried.
        self._smallest: dict[tuple[PodShape, int], tuple[int, Shortage]] = {}

    def record(self, ask: GangRequest, shortage: Shortage) -> None:
        self._by_signature[fit_signature(ask)] = shortage
        alike = uniform_key(ask)
        if alike is None or shortage.unsupported:
            return
        fewest = self._smallest.get(alike)
        if fewest is None or ask.min_members < fewest[0]:
            self._smallest[alike] = ask.min_members, shortage

    def known_shortage(self, ask: GangRequest, free: Amounts) -> Shortage | None:
        """Why it does not fit, if that is clear without a look at the nodes. `free` is what there is in all."""
        if not self._by_signature:
            return None
        return self._by_signature.get(fit_signature(ask)) or self._from_smaller(ask) or self._from_totals(ask, free)

    def _from_smaller(self, ask: GangRequest) -> Shortage | None:
        alike = uniform_key(ask)
        fewest, shortage = self._smallest.get(alike, (0, None)) if alike is not None else (0, None)
        if shortage is None or fewest > ask.min_members:
            return None
        some = f"{shortage.fitting_members} of {ask.min_members} fit: " if shortage.fitting_members else ""
        return Shortage(
            some + nodes_message(shortage.nodes_by_reason, self._node_count),
            shortage.nodes_by_reason,
            shortage.fitting_members,
        )

    def _from_totals(self, ask: GangRequest, free: Amounts) -> Shortage | None:
        if len(self._by_signature) < MAX_EXPLAINED or ask.min_members < member_count(ask):
            return None
        needed = requested_amounts(ask.pod_sets)
        name = lacking_resource(needed, free)
        if name is None:
            return None
        wanted, there = as_quantity(name, needed[name]), as_quantity(name, free.get(name, 0))
        return Shortage(f"{wanted} {name} needed, {there} free in all")


class FailedPreemptions:
    """Asks for which no room can be made: it depends on their queue, and on whether they may preempt."""

    def __init__(self) -> None:
        self._signatures: set[tuple[str, bool, FitSignature]] = set()
        self._smallest: dict[tuple[str, bool, tuple[PodShape, int]], int] = {}

    def __contains__(self, ask: GangRequest) -> bool:
        """Whether there was no way for an equal one, or for fewer of the same kind."""
        alike = uniform_key(ask)
        if alike is not None:
            fewest = self._smallest.get((ask.queue, ask.can_preempt, alike))
            if fewest is not None and fewest <= ask.min_members:
                return True
        return (ask.queue, ask.can_preempt, fit_signature(ask)) in self._signatures

    def add(self, ask: GangRequest) -> None:
        self._signatures.add((ask.queue, ask.can_preempt, fit_signature(ask)))
        alike = uniform_key(ask)
        if alike is not None:
            key = ask.queue, ask.can_preempt, alike
            self._smallest[key] = min(ask.min_members, self._smallest.get(key, ask.min_members))

    def clear(self) -> None:
        self._signatures.clear()
        self._smallest.clear()
