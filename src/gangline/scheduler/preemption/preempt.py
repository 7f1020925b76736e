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

from gangline.scheduler.types.cycle import Ask, Holding, Placement, Resident

SINGLES = 16
"""How many gangs are tried one by one as the only one to end."""

_UID, _CREATED, _PRIORITY = attrgetter("uid"), attrgetter("created"), attrgetter("priority")

Fits: TypeAlias = Callable[[Sequence["Bundle"]], Placement | None]
"""Where the asking gang would go if these left; None: nowhere."""


class Bundle(msgspec.Struct, frozen=True):
    """Members of one gang that leave together or not at all."""

    holding: Holding
    members: tuple[Resident, ...]
    # Nothing remains of the gang, or too little to go on.
    whole: bool


class Clearing(msgspec.Struct, frozen=True):
    """Who leaves, and where the asking gang goes then."""

    bundles: tuple[Bundle, ...]
    placement: Placement

    @property
    def victims(self) -> tuple[Resident, ...]:
        """Each once, gang by gang."""
        return tuple({member.uid: member for bundle in self.bundles for member in bundle.members}.values())


def lower(holdings: Iterable[Holding], ask: Ask) -> list[Holding]:
    """The gangs that have to give way to this one: strictly less important, and not itself."""
    return [holding for holding in holdings if holding.priority < ask.priority and holding.uid != ask.uid]


def clear(holdings: Iterable[Holding], fits: Fits, gone: Collection[str]) -> Clearing | None:
    """The cheapest way to make room, as far as we look; None: there is none, so nobody has to leave.

    First only members that their gangs can do without. Then whole gangs: none more important than must be, one if
    one is enough (the smallest such), else few. Of the result nothing can be left out. `gone` have left already.
    """
    ordered = by_dispensability(holdings)
    spare = list(chain.from_iterable(_spare(holding, gone) for holding in ordered))
    if spare and fits(spare) is not None:
        return _cleared(fits, _needed(fits, [], spare))
    whole = [bundle for holding in ordered if (bundle := _whole(holding, gone))]
    ending = _one(fits, spare, _lowest(whole)) or _several(fits, spare, whole)
    return _cleared(fits, [*_needed(fits, ending, spare), *ending]) if ending else None


def _cleared(fits: Fits, chosen: Sequence[Bundle]) -> Clearing | None:
    placement = fits(chosen)
    return Clearing(tuple(chosen), placement) if placement is not None else None


def _one(fits: Fits, spare: Sequence[Bundle], whole: Iterable[Bundle]) -> list[Bundle]:
    """The smallest gang that is enough, if one is."""
    for bundle in sorted(whole, key=lambda bundle: len(bundle.members))[:SINGLES]:
        if fits([*spare, bundle]) is not None:
            return [bundle]
    return []


def _several(fits: Fits, spare: Sequence[Bundle], whole: Sequence[Bundle]) -> list[Bundle]:
    """Gangs that are enough together, none more important than must be; none if even all of them are not."""
    if fits([*spare, *whole]) is None:
        return []
    enough = _upto(whole, _importance(fits, spare, whole))
    # Of the least important alone, one was not enough: that has been tried.
    one = _one(fits, spare, enough) if len(enough) > len(_lowest(whole)) else []
    largest = sorted(enough, key=lambda bundle: (bundle.holding.priority, -len(bundle.members)))
    return one or _needed(fits, spare, largest)


def _importance(fits: Fits, spare: Sequence[Bundle], whole: Sequence[Bundle]) -> int:
    """The lowest importance up to which all gangs together are enough."""
    levels = sorted({bundle.holding.priority for bundle in whole})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if fits([*spare, *_upto(whole, levels[middle])]) is None:
            low = middle + 1
        else:
            high = middle
    return levels[high]


def _lowest(whole: Sequence[Bundle]) -> list[Bundle]:
    return _upto(whole, min((bundle.holding.priority for bundle in whole), default=0))


def _upto(whole: Iterable[Bundle], priority: int) -> list[Bundle]:
    return [bundle for bundle in whole if bundle.holding.priority <= priority]


def _needed(fits: Fits, given: Sequence[Bundle], bundles: Sequence[Bundle]) -> list[Bundle]:
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
    late = _needed(fits, [*given, *first], second)
    early = _needed(fits, [*given, *late], first)
    return [*early, *late]


def _spare(holding: Holding, gone: Collection[str]) -> Iterator[Bundle]:
    """Members the gang can do without, one by one, the last first."""
    if len(holding.members) <= holding.least:
        return
    staying = _staying(holding, gone)
    surplus = len(staying) - holding.least
    roles = _surplus_by_role(holding, staying)
    for member in sorted(staying, key=lambda member: (len(member.key.name), member.key), reverse=True):
        role = holding.role_of.get(member.uid, "")
        if surplus > 0 and roles.get(role, 1) > 0 and member.uid not in holding.protected:
            surplus -= 1
            roles[role] = roles.get(role, len(staying)) - 1
            yield Bundle(holding, (member,), whole=False)


def _surplus_by_role(holding: Holding, staying: Collection[Resident]) -> dict[str, int]:
    roles = [holding.role_of.get(member.uid, "") for member in staying]
    return {role: roles.count(role) - least for role, least in holding.roles.items()}


def _whole(holding: Holding, gone: Collection[str]) -> Bundle | None:
    staying = _staying(holding, gone)
    if not staying or any(member.uid in holding.protected for member in staying):
        return None
    return Bundle(holding, staying, whole=True)


def _staying(holding: Holding, gone: Collection[str]) -> tuple[Resident, ...]:
    return tuple(member for member in holding.members if not member.terminating and member.uid not in gone)


def by_dispensability(holdings: Iterable[Holding]) -> list[Holding]:
    """The least important first, of these the youngest, then the lowest uid."""
    # Sorting keeps what was sorted before. Thrice without a key made for every gang is faster than once with it.
    found = sorted(holdings, key=_UID)
    found.sort(key=_CREATED, reverse=True)
    found.sort(key=_PRIORITY)
    return found


def by_queue(bundles: Iterable[Bundle]) -> Mapping[str, list[Resident]]:
    """Who leaves, by the queue it counts for, each once."""
    leaving: dict[str, dict[str, Resident]] = {}
    for bundle in bundles:
        leaving.setdefault(bundle.holding.queue, {}).update({member.uid: member for member in bundle.members})
    return {queue: list(members.values()) for queue, members in leaving.items()}
