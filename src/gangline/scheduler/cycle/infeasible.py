"""Requests known not to fit, so that nothing is tried twice in a cycle: free capacity only shrinks."""

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
"""Everything that decides whether a request fits."""

MAX_EXPLAINED = 64
"""For this many different requests the reason is worked out node by node; for the others from totals, if these suffice."""


def fit_signature(request: GangRequest) -> FitSignature:
    return (
        request.pod_sets,
        request.min_members,
        tuple(sorted(request.min_by_role.items())),
        request.topology,
        request.current_nodes,
        request.priority,
    )


def uniform_key(request: GangRequest) -> tuple[PodShape, int] | None:
    """Shape and priority if all members are alike, so that more do not fit where fewer did not; else None."""
    if len(request.pod_sets) != 1 or request.topology is not None or not request.min_members:
        return None
    return request.pod_sets[0].shape, request.priority


class InfeasibleCache:
    """Requests that did not fit, and why."""

    def __init__(self, node_count: int) -> None:
        self._node_count = node_count
        self._by_signature: dict[FitSignature, Shortage] = {}
        # Shape and priority -> the fewest members that did not fit.
        self._smallest: dict[tuple[PodShape, int], tuple[int, Shortage]] = {}

    def record(self, request: GangRequest, shortage: Shortage) -> None:
        self._by_signature[fit_signature(request)] = shortage
        key = uniform_key(request)
        if key is None or shortage.unsupported:
            return
        fewest = self._smallest.get(key)
        if fewest is None or request.min_members < fewest[0]:
            self._smallest[key] = request.min_members, shortage

    def known_shortage(self, request: GangRequest, free: Amounts) -> Shortage | None:
        """Why the request does not fit, if that is known without looking at nodes. `free`: totals over all nodes."""
        if not self._by_signature:
            return None
        return (
            self._by_signature.get(fit_signature(request))
            or self._from_smaller(request)
            or self._from_totals(request, free)
        )

    def _from_smaller(self, request: GangRequest) -> Shortage | None:
        key = uniform_key(request)
        fewest, shortage = self._smallest.get(key, (0, None)) if key is not None else (0, None)
        if shortage is None or fewest > request.min_members:
            return None
        prefix = f"{shortage.fitting_members} of {request.min_members} fit: " if shortage.fitting_members else ""
        return Shortage(
            prefix + nodes_message(shortage.nodes_by_reason, self._node_count),
            shortage.nodes_by_reason,
            shortage.fitting_members,
        )

    def _from_totals(self, request: GangRequest, free: Amounts) -> Shortage | None:
        if len(self._by_signature) < MAX_EXPLAINED or request.min_members < member_count(request):
            return None
        needed = requested_amounts(request.pod_sets)
        name = lacking_resource(needed, free)
        if name is None:
            return None
        requested, available = as_quantity(name, needed[name]), as_quantity(name, free.get(name, 0))
        return Shortage(f"{requested} {name} needed, {available} free in all")


class FailedPreemptions:
    """Requests for which no preemption helps. That depends on their queue, and on whether they may preempt."""

    def __init__(self) -> None:
        self._signatures: set[tuple[str, bool, FitSignature]] = set()
        self._smallest: dict[tuple[str, bool, tuple[PodShape, int]], int] = {}

    def __contains__(self, request: GangRequest) -> bool:
        """Whether preemption failed for an equal request, or for fewer members of the same shape."""
        key = uniform_key(request)
        if key is not None:
            fewest = self._smallest.get((request.queue, request.can_preempt, key))
            if fewest is not None and fewest <= request.min_members:
                return True
        return (request.queue, request.can_preempt, fit_signature(request)) in self._signatures

    def add(self, request: GangRequest) -> None:
        self._signatures.add((request.queue, request.can_preempt, fit_signature(request)))
        uniform = uniform_key(request)
        if uniform is not None:
            key = request.queue, request.can_preempt, uniform
            self._smallest[key] = min(request.min_members, self._smallest.get(key, request.min_members))

    def clear(self) -> None:
        self._signatures.clear()
        self._smallest.clear()
