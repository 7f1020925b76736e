"""Which pods must not be evicted: those a disruption budget protects, and those whose eviction was just refused."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gangline.api.meta import JSON, ApiStruct, Key, Object
from gangline.api.scheme import Resource
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import GangMember
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import IDENTITY_LABELS
from gangline.scheduler.types.cycle import BudgetLimit
from gangline.scheduler.types.tracked import TrackedObjects, key_of

REFUSAL_COOLDOWN = timedelta(seconds=30)
"""How long a pod whose eviction was refused is not evicted again."""


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    selector: JSON | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    disruptions_allowed: int = 0


class PodDisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


DISRUPTION_BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget)


class DisruptionBudgets:
    """Disruption budgets and recent refusals. No I/O."""

    def __init__(self) -> None:
        self.budgets = TrackedObjects[Key, PodDisruptionBudget, tuple[int, LabelSelector]](key_of, _budget_fields)
        self._refused_until: dict[str, datetime] = {}
        self._covered_gangs: set[GangInfo] = set()

    def record_refusal(self, uid: str, now: datetime) -> None:
        """The eviction of this pod was refused."""
        self._refused_until[uid] = now + REFUSAL_COOLDOWN

    @property
    def next_retry_at(self) -> datetime | None:
        """When the first refused pod may be evicted again."""
        return min(self._refused_until.values(), default=None)

    def protect_members(self, gangs: GangRegistry, now: datetime) -> None:
        """Set on all gangs which members are protected. Costs nothing where there are no budgets."""
        self._refused_until = {uid: until for uid, until in self._refused_until.items() if until > now}
        if not (self.budgets.fields or self._refused_until or self._covered_gangs):
            return
        before, self._covered_gangs = self._covered_gangs, set()
        namespaces = {key.namespace for key in self.budgets.fields}
        refused_gangs = {gang for uid in self._refused_until if (gang := gangs.gang_of_pod(uid)) is not None}
        candidates = [gang for gang in gangs if gang.key.namespace in namespaces]
        allowed = self._allowed_disruptions(candidates)
        for gang in {*before, *refused_gangs, *candidates}:
            limits = self._budget_limits(gang, allowed)
            protected = self._protected_uids(gang, limits)
            gangs.protect(gang, protected, limits)
            if protected or limits:
                self._covered_gangs.add(gang)

    def _allowed_disruptions(self, gangs: Iterable[GangInfo]) -> Mapping[Key, int]:
        """Allowed disruptions of each budget, less evictions just requested, which the budget may not count yet."""
        evicting_members = [member for gang in gangs for member in gang.members.by_uid.values() if member.evicting]
        allowed_by_budget = {}
        for key, (allowed, selector) in self.budgets.fields.items():
            evicting = [
                each for each in evicting_members if each.key.namespace == key.namespace and not each.status.deleting
            ]
            allowed_by_budget[key] = max(allowed - len(_covered_members(evicting, selector)), 0)
        return allowed_by_budget

    def _budget_limits(self, gang: GangInfo, allowed: Mapping[Key, int]) -> tuple[BudgetLimit, ...]:
        placed = gang.members.placed()
        limits = []
        for key, (_, selector) in sorted(self.budgets.fields.items()):
            if key.namespace == gang.key.namespace:
                covered = frozenset(member.uid for member in _covered_members(placed, selector))
                if covered:
                    limits.append(BudgetLimit(key, allowed[key], covered))
        return tuple(limits)

    def _protected_uids(self, gang: GangInfo, limits: tuple[BudgetLimit, ...]) -> frozenset[str]:
        """The members that must stay: for each budget all covered members but as many as may leave, the last ones.

        A gang of which not all may leave is therefore never evicted in part: the server would refuse after some had
        left. The server never evicts a pod that two budgets cover.
        """
        protected = {member.uid for member in gang.members.placed() if member.uid in self._refused_until}
        covered_before: set[str] = set()
        for limit in limits:
            protected |= covered_before & limit.covered
            covered_before |= limit.covered
            if len(limit.covered) > limit.allowed:
                covered = sorted((gang.members.by_uid[uid] for uid in limit.covered), key=_name_order)
                protected.update(member.uid for member in covered[: len(covered) - limit.allowed])
        return frozenset(protected)


def _covered_members(members: Iterable[GangMember], selector: LabelSelector) -> list[GangMember]:
    """The members that a budget covers."""
    # Matched once per shape, of which a gang has few, unless the selector uses identity labels.
    per_pod = any(requirement.key in IDENTITY_LABELS for requirement in selector.requirements)
    matches_by_shape: dict[int, bool] = {}

    def is_covered(member: GangMember) -> bool:
        if per_pod:
            return selector.matches(member.pod.metadata.labels)
        shape = member.shape
        if id(shape) not in matches_by_shape:
            matches_by_shape[id(shape)] = selector.matches(dict(shape.labels))
        return matches_by_shape[id(shape)]

    return list(filter(is_covered, members))


def _name_order(member: GangMember) -> tuple[int, Key]:
    return len(member.key.name), member.key


def _budget_fields(budget: PodDisruptionBudget) -> tuple[int, LabelSelector]:
    """The allowed disruptions, and the selector of the covered pods. An invalid selector covers none."""
    try:
        selector = LabelSelector.from_json(budget.spec.selector)
    except SelectorError:
        selector = LabelSelector(never=True)
    return max(budget.status.disruptions_allowed, 0), selector
