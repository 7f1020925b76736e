"""Who may not be asked to leave: whom a disruption budget keeps, and whose eviction was refused of late."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gangline.api.meta import JSON, Key, Object, Wire
from gangline.api.scheme import Resource
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.member import Member
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.pods.decode import IDENTITY
from gangline.scheduler.types.cycle import Limit

REFUSED = timedelta(seconds=30)
"""How long one whose eviction was refused is not asked again."""


class BudgetSpec(Wire, frozen=True):
    selector: JSON | None = None


class BudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0


class Budget(Object, frozen=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Budget)


class Budgets:
    """What budgets allow, and who refused lately. No I/O."""

    def __init__(self) -> None:
        # How many may leave, and of whom; of one that nobody can understand, nobody.
        self._known: dict[Key, tuple[int, LabelSelector]] = {}
        self._refused: dict[str, datetime] = {}
        self._covered: set[Gang] = set()

    def put(self, found: Budget) -> None:
        selector = _selector(found)
        if selector is None:
            self._known.pop(found.metadata.key, None)
        else:
            self._known[found.metadata.key] = max(found.status.disruptions_allowed, 0), selector

    def drop(self, key: Key) -> None:
        self._known.pop(key, None)

    def refuse(self, uid: str, now: datetime) -> None:
        """Its eviction was refused."""
        self._refused[uid] = now + REFUSED

    @property
    def until(self) -> datetime | None:
        """When the first of those who refused may be asked again."""
        return min(self._refused.values(), default=None)

    def protect(self, gangs: Gangs, now: datetime) -> None:
        """Tell all gangs which of their members must stay. Costs nothing where there are no budgets."""
        self._refused = {uid: until for uid, until in self._refused.items() if until > now}
        if not (self._known or self._refused or self._covered):
            return
        before, self._covered = self._covered, set()
        places = {key.namespace for key in self._known}
        touched = {gang for uid in self._refused if (gang := gangs.of(uid)) is not None}
        near = [gang for gang in gangs if gang.key.namespace in places]
        allowed = self._allowed(near)
        for gang in {*before, *touched, *near}:
            limits = self._limits(gang, allowed)
            kept = self._kept(gang, limits)
            gangs.protect(gang, kept, limits)
            if kept or limits:
                self._covered.add(gang)

    def _allowed(self, gangs: Iterable[Gang]) -> Mapping[Key, int]:
        """How many may leave of whom each budget covers, less those that were just asked to: it may not know of them."""
        asked = [member for gang in gangs for member in gang.members.values() if member.leaving]
        found = {}
        for key, (allowed, selector) in self._known.items():
            going = [
                each for each in asked if each.key.namespace == key.namespace and not each.facts.deleting
            ]
            found[key] = max(allowed - len(_covered(going, selector)), 0)
        return found

    def _limits(self, gang: Gang, allowed: Mapping[Key, int]) -> tuple[Limit, ...]:
        holders = gang.holders()
        found = []
        for key, (_, selector) in sorted(self._known.items()):
            if key.namespace == gang.key.namespace:
                covered = frozenset(member.uid for member in _covered(holders, selector))
                if covered:
                    found.append(Limit(key, allowed[key], covered))
        return tuple(found)

    def _kept(self, gang: Gang, limits: tuple[Limit, ...]) -> frozenset[str]:
        """Who must stay: of those whom a budget covers all but as many as may leave, the last of them.

        So a gang of which not all may leave is never ended in part: others would be refused when some have gone. Whom
        two budgets cover the server never lets go.
        """
        kept = {member.uid for member in gang.holders() if member.uid in self._refused}
        seen: set[str] = set()
        for limit in limits:
            kept |= seen & limit.covered
            seen |= limit.covered
            if len(limit.covered) > limit.allowed:
                covered = sorted((gang.members[uid] for uid in limit.covered), key=_by_name)
                kept.update(member.uid for member in covered[: len(covered) - limit.allowed])
        return frozenset(kept)


def _covered(members: Iterable[Member], selector: LabelSelector) -> list[Member]:
    """Whom a budget means."""
    # By shape, of which a gang has few, unless it asks for what tells its members apart.
    single = any(each.key in IDENTITY for each in selector.requirements)
    known: dict[int, bool] = {}

    def means(member: Member) -> bool:
        if single:
            return selector.matches(member.pod.metadata.labels)
        shape = member.shape
        if id(shape) not in known:
            known[id(shape)] = selector.matches(dict(shape.labels))
        return known[id(shape)]

    return list(filter(means, members))


def _by_name(member: Member) -> tuple[int, Key]:
    return len(member.key.name), member.key


def _selector(found: Budget) -> LabelSelector | None:
    """Which pods it covers; None if it cannot be understood."""
    try:
        return LabelSelector.from_json(found.spec.selector)
    except SelectorError:
        return None
