"""Who has to give way: as few gangs as possible, members beyond a gang's least before any whole gang, none in vain.

Everything here is asked of a what-if (`fits`) before anything is decided, so nobody leaves unless the gang that asks
then has its places. A gang of which some must stay (system-critical, or a disruption budget is used up) is never
ended.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

import msgspec

from gangline.scheduler.types.cycle import BoundPod, GangAllocation, GangRequest, Placement

MAX_SINGLE_TRIALS = 16
"""How many gangs are tried one by one as the only one to end."""

_UID, _CREATED, _PRIORITY = attrgetter("uid"), attrgetter("created"), attrgetter("priority")

FitCheck: TypeAlias = Callable[[Sequence["VictimSet"]], Placement | None]
"""Where the asking gang would go if these left; None: nowhere."""


class VictimSet(msgspec.Struct, frozen=True):
    """Members of one gang that leave together or not at all."""

    allocation: GangAllocation
    pods: tuple[BoundPod, ...]
    # Nothing remains of the gang, or too little to go on.
    ends_gang: bool


class PreemptionPlan(msgspec.Struct, frozen=True):
    """Who leaves, and where the asking gang goes then."""

    victim_sets: tuple[VictimSet, ...]
    placement: Placement

    @property
    def victims(self) -> tuple[BoundPod, ...]:
        """Each once, gang by gang."""
        return tuple({member.uid: member for bundle in self.victim_sets for member in bundle.pods}.values())


def lower_priority(holdings: Iterable[GangAllocation], ask: GangRequest) -> list[GangAllocation]:
    """The gangs that have to give way to this one: strictly less important, and not itself."""
    return [holding for holding in holdings if holding.priority < ask.priority and holding.uid != ask.uid]


def preemption_plan(holdings: Iterable[GangAllocation], fits: FitCheck, gone: Collection[str]) -> PreemptionPlan | None:
    """The cheapest way to make room, as far as we look; None: there is none, so nobody has to leave.

    First only members that their gangs can do without. Then whole gangs: none more important than must be, one if
    one is enough (the smallest such), else few. Of the result nothing can be left out. `gone` have left already.
    """
    ordered = eviction_order(holdings)
    spare = list(chain.from_iterable(_surplus_members(holding, gone) for holding in ordered))
    if spare and fits(spare) is not None:
        return _checked_plan(fits, _minimal_sets(fits, [], spare))
    whole = [bundle for holding in ordered if (bundle := _whole_gang(holding, gone))]
    ending = _single_gang(fits, spare, _lowest_priority(whole)) or _several_gangs(fits, spare, whole)
    return _checked_plan(fits, [*_minimal_sets(fits, ending, spare), *ending]) if ending else None


def _checked_plan(fits: FitCheck, chosen: Sequence[VictimSet]) -> PreemptionPlan | None:
    placement = fits(chosen)
    return PreemptionPlan(tuple(chosen), placement) if placement is not None else None


def _single_gang(fits: FitCheck, spare: Sequence[VictimSet], whole: Iterable[VictimSet]) -> list[VictimSet]:
    """The smallest gang that is enough, if one is."""
    for bundle in sorted(whole, key=lambda bundle: len(bundle.pods))[:MAX_SINGLE_TRIALS]:
        if fits([*spare, bundle]) is not None:
            return [bundle]
    return []


def _several_gangs(fits: FitCheck, spare: Sequence[VictimSet], whole: Sequence[VictimSet]) -> list[VictimSet]:
    """Gangs that are enough together, none more important than must be; none if even all of them are not."""
    if fits([*spare, *whole]) is None:
        return []
    enough = _up_to_priority(whole, _needed_priority(fits, spare, whole))
    # Of the least important alone, one was not enough: that has been tried.
    one = _single_gang(fits, spare, enough) if len(enough) > len(_lowest_priority(whole)) else []
    largest = sorted(enough, key=lambda bundle: (bundle.allocation.priority, -len(bundle.pods)))
    return one or _minimal_sets(fits, spare, largest)


def _needed_priority(fits: FitCheck, spare: Sequence[VictimSet], whole: Sequence[VictimSet]) -> int:
    """The lowest importance up to which all gangs together are enough."""
    levels = sorted({bundle.allocation.priority for bundle in whole})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if fits([*spare, *_up_to_priority(whole, levels[middle])]) is None:
            low = middle + 1
        else:
            high = middle
    return levels[high]


def _lowest_priority(whole: Sequence[VictimSet]) -> list[VictimSet]:
    return _up_to_priority(whole, min((bundle.allocation.priority for bundle in whole), default=0))


def _up_to_priority(whole: Iterable[VictimSet], priority: int) -> list[VictimSet]:
    return [bundle for bundle in whole if bundle.allocation.priority <= priority]


def _minimal_sets(fits: FitCheck, given: Sequence[VictimSet], bundles: Sequence[VictimSet]) -> list[VictimSet]:
    """Of these the ones without which it does not fit, earlier ones preferred (the QuickXplain algorithm).

    With all of them it must fit. Takes about as many questions as bundles are needed, times the logarithm of how
    many there are; and every step keeps a set that was seen to fit, so it holds also where less can be more.
    """
    if fits(given) is not None:
        return []
    if len(bundles) <= 1:
        return list(bundles)
    middle = len(bundles) // 2
    first, second = bundles[:middle], bundles[middle:]
    late = _minimal_sets(fits, [*given, *first], second)
    early = _minimal_sets(fits, [*given, *late], first)
    return [*early, *late]


def _surplus_members(holding: GangAllocation, gone: Collection[str]) -> Iterator[VictimSet]:
    """Members the gang can do without, one by one, the last first."""
    if len(holding.pods) <= holding.min_members:
        return
    staying = _staying_pods(holding, gone)
    surplus = len(staying) - holding.min_members
    roles = _surplus_by_role(holding, staying)
    for member in sorted(staying, key=lambda member: (len(member.key.name), member.key), reverse=True):
        role = holding.role_by_uid.get(member.uid, "")
        if surplus > 0 and roles.get(role, 1) > 0 and member.uid not in holding.protected_uids:
            surplus -= 1
            roles[role] = roles.get(role, len(staying)) - 1
            yield VictimSet(holding, (member,), ends_gang=False)


def _surplus_by_role(holding: GangAllocation, staying: Collection[BoundPod]) -> dict[str, int]:
    roles = [holding.role_by_uid.get(member.uid, "") for member in staying]
    return {role: roles.count(role) - least for role, least in holding.min_by_role.items()}


def _whole_gang(holding: GangAllocation, gone: Collection[str]) -> VictimSet | None:
    staying = _staying_pods(holding, gone)
    if not staying or any(member.uid in holding.protected_uids for member in staying):
        return None
    return VictimSet(holding, staying, ends_gang=True)


def _staying_pods(holding: GangAllocation, gone: Collection[str]) -> tuple[BoundPod, ...]:
    return tuple(member for member in holding.pods if not member.terminating and member.uid not in gone)


def eviction_order(holdings: Iterable[GangAllocation]) -> list[GangAllocation]:
    """The least important first, of these the youngest, then the lowest uid."""
    # Sorting keeps what was sorted before. Thrice without a key made for every gang is faster than once with it.
    found = sorted(holdings, key=_UID)
    found.sort(key=_CREATED, reverse=True)
    found.sort(key=_PRIORITY)
    return found


def victims_by_queue(bundles: Iterable[VictimSet]) -> Mapping[str, list[BoundPod]]:
    """Who leaves, by the queue it counts for, each once."""
    leaving: dict[str, dict[str, BoundPod]] = {}
    for bundle in bundles:
        leaving.setdefault(bundle.allocation.queue, {}).update({member.uid: member for member in bundle.pods})
    return {queue: list(members.values()) for queue, members in leaving.items()}
