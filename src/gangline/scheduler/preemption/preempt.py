"""Preemption: evict as few gangs as possible, surplus members before whole gangs, and nothing in vain.

Every plan is checked with a what-if (`fits`), so pods are evicted only if the preempting gang then fits. A gang with
protected pods (system-critical, or their disruption budget is exhausted) is never evicted whole.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

import msgspec

from gangline.scheduler.types.cycle import BoundPod, GangAllocation, GangRequest, Placement

MAX_SINGLE_TRIALS = 16
"""How many gangs are tried one by one as the only gang to evict."""

_UID, _CREATED, _PRIORITY = attrgetter("uid"), attrgetter("created"), attrgetter("priority")

FitCheck: TypeAlias = Callable[[Sequence["VictimSet"]], Placement | None]
"""The placement of the preempting gang if these pods were evicted; None if it does not fit."""


class VictimSet(msgspec.Struct, frozen=True):
    """Pods of one gang that are evicted together or not at all."""

    allocation: GangAllocation
    pods: tuple[BoundPod, ...]
    # The gang cannot go on without these pods.
    ends_gang: bool


class PreemptionPlan(msgspec.Struct, frozen=True):
    """The pods to evict, and the placement of the preempting gang after that."""

    victim_sets: tuple[VictimSet, ...]
    placement: Placement

    @property
    def victims(self) -> tuple[BoundPod, ...]:
        """Every pod once, gang by gang."""
        return tuple({member.uid: member for victim_set in self.victim_sets for member in victim_set.pods}.values())


def lower_priority(allocations: Iterable[GangAllocation], request: GangRequest) -> list[GangAllocation]:
    """The allocations that the request may preempt: of strictly lower priority, and not its own."""
    return [
        allocation
        for allocation in allocations
        if allocation.priority < request.priority and allocation.uid != request.uid
    ]


def preemption_plan(
    allocations: Iterable[GangAllocation], fits: FitCheck, removed: Collection[str]
) -> PreemptionPlan | None:
    """The cheapest plan found; None if no eviction makes the request fit.

    First surplus members only. Then whole gangs: none of higher priority than necessary, a single gang if one is enough
    (the smallest such), else few. No victim of the plan can be spared. `removed`: uids of pods that are leaving
    already.
    """
    ordered = eviction_order(allocations)
    surplus_sets = list(chain.from_iterable(_surplus_members(allocation, removed) for allocation in ordered))
    if surplus_sets and fits(surplus_sets) is not None:
        return _checked_plan(fits, _minimal_sets(fits, [], surplus_sets))
    gang_sets = [victim_set for allocation in ordered if (victim_set := _whole_gang(allocation, removed))]
    ending_sets = _single_gang(fits, surplus_sets, _lowest_priority(gang_sets))
    ending_sets = ending_sets or _several_gangs(fits, surplus_sets, gang_sets)
    return _checked_plan(fits, [*_minimal_sets(fits, ending_sets, surplus_sets), *ending_sets]) if ending_sets else None


def _checked_plan(fits: FitCheck, victim_sets: Sequence[VictimSet]) -> PreemptionPlan | None:
    placement = fits(victim_sets)
    return PreemptionPlan(tuple(victim_sets), placement) if placement is not None else None


def _single_gang(fits: FitCheck, surplus_sets: Sequence[VictimSet], gang_sets: Iterable[VictimSet]) -> list[VictimSet]:
    """The smallest gang that is enough, if one is."""
    for victim_set in sorted(gang_sets, key=lambda victim_set: len(victim_set.pods))[:MAX_SINGLE_TRIALS]:
        if fits([*surplus_sets, victim_set]) is not None:
            return [victim_set]
    return []


def _several_gangs(
    fits: FitCheck, surplus_sets: Sequence[VictimSet], gang_sets: Sequence[VictimSet]
) -> list[VictimSet]:
    """Gangs that are enough together, none of higher priority than necessary; empty if even all are not enough."""
    if fits([*surplus_sets, *gang_sets]) is None:
        return []
    candidates = _up_to_priority(gang_sets, _needed_priority(fits, surplus_sets, gang_sets))
    # A single gang of the lowest priority has been tried already.
    single = _single_gang(fits, surplus_sets, candidates) if len(candidates) > len(_lowest_priority(gang_sets)) else []
    largest = sorted(candidates, key=lambda victim_set: (victim_set.allocation.priority, -len(victim_set.pods)))
    return single or _minimal_sets(fits, surplus_sets, largest)


def _needed_priority(fits: FitCheck, surplus_sets: Sequence[VictimSet], gang_sets: Sequence[VictimSet]) -> int:
    """The lowest priority up to which all gangs together are enough."""
    levels = sorted({victim_set.allocation.priority for victim_set in gang_sets})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if fits([*surplus_sets, *_up_to_priority(gang_sets, levels[middle])]) is None:
            low = middle + 1
        else:
            high = middle
    return levels[high]


def _lowest_priority(gang_sets: Sequence[VictimSet]) -> list[VictimSet]:
    return _up_to_priority(gang_sets, min((victim_set.allocation.priority for victim_set in gang_sets), default=0))


def _up_to_priority(gang_sets: Iterable[VictimSet], priority: int) -> list[VictimSet]:
    return [victim_set for victim_set in gang_sets if victim_set.allocation.priority <= priority]


def _minimal_sets(fits: FitCheck, fixed: Sequence[VictimSet], victim_sets: Sequence[VictimSet]) -> list[VictimSet]:
    """The sets without which the request does not fit, earlier ones preferred (the QuickXplain algorithm).

    With all of them it must fit. Takes about as many checks as sets are needed, times the logarithm of their number.
    Every step keeps a combination that was checked to fit, so the result holds even where evicting less fits better.
    """
    if fits(fixed) is not None:
        return []
    if len(victim_sets) <= 1:
        return list(victim_sets)
    middle = len(victim_sets) // 2
    first, second = victim_sets[:middle], victim_sets[middle:]
    needed_second = _minimal_sets(fits, [*fixed, *first], second)
    needed_first = _minimal_sets(fits, [*fixed, *needed_second], first)
    return [*needed_first, *needed_second]


def _surplus_members(allocation: GangAllocation, removed: Collection[str]) -> Iterator[VictimSet]:
    """Members above the gang's minimum, one by one, the last first."""
    if len(allocation.pods) <= allocation.min_members:
        return
    staying = _staying_pods(allocation, removed)
    surplus = len(staying) - allocation.min_members
    roles = _surplus_by_role(allocation, staying)
    for member in sorted(staying, key=lambda member: (len(member.key.name), member.key), reverse=True):
        role = allocation.role_by_uid.get(member.uid, "")
        if surplus > 0 and roles.get(role, 1) > 0 and member.uid not in allocation.protected_uids:
            surplus -= 1
            roles[role] = roles.get(role, len(staying)) - 1
            yield VictimSet(allocation, (member,), ends_gang=False)


def _surplus_by_role(allocation: GangAllocation, staying: Collection[BoundPod]) -> dict[str, int]:
    roles = [allocation.role_by_uid.get(member.uid, "") for member in staying]
    return {role: roles.count(role) - minimum for role, minimum in allocation.min_by_role.items()}


def _whole_gang(allocation: GangAllocation, removed: Collection[str]) -> VictimSet | None:
    staying = _staying_pods(allocation, removed)
    if not staying or any(member.uid in allocation.protected_uids for member in staying):
        return None
    return VictimSet(allocation, staying, ends_gang=True)


def _staying_pods(allocation: GangAllocation, removed: Collection[str]) -> tuple[BoundPod, ...]:
    return tuple(member for member in allocation.pods if not member.terminating and member.uid not in removed)


def eviction_order(allocations: Iterable[GangAllocation]) -> list[GangAllocation]:
    """Lowest priority first, of these the youngest, then the lowest uid."""
    # Sorting is stable. Three sorts without a tuple for every gang are faster than one with it.
    ordered = sorted(allocations, key=_UID)
    ordered.sort(key=_CREATED, reverse=True)
    ordered.sort(key=_PRIORITY)
    return ordered


def victims_by_queue(victim_sets: Iterable[VictimSet]) -> Mapping[str, list[BoundPod]]:
    """The victims of each queue, each once."""
    victims: dict[str, dict[str, BoundPod]] = {}
    for victim_set in victim_sets:
        victims.setdefault(victim_set.allocation.queue, {}).update({member.uid: member for member in victim_set.pods})
    return {queue: list(members.values()) for queue, members in victims.items()}
