"""Quotas and their usage: which quotas an object is charged to, and what a write adds to them."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gangline.api.meta import JSON
from gangline.api.quantity import ZERO, Quantity, add_resources
from gangline.apiserver.admission.quota.items import GroupResource, QuotaItem, matching_resources
from gangline.apiserver.kinds.machinery.pod_amounts import Amounts, parse_amounts

_VALUE_SCOPES = frozenset({"PriorityClass", "VolumeAttributesClass"})


class QuotaViolation(Exception):
    """A write that a quota does not allow. The message is for the client."""


class QuotaState(msgspec.Struct, frozen=True):
    """A quota as the last recount left it: its limits and what is used of them."""

    name: str
    hard: Amounts
    used: Amounts
    selectors: tuple[JSON, ...] = ()
    """The scopes that an object must be in, as scope selector requirements."""

    def matches(self, resource: GroupResource, item: QuotaItem) -> bool:
        """Whether an object is charged to the quota."""
        return bool(matching_resources(resource, self.hard)) and is_in_scopes(item, self.selectors)


class QuotaCharge(msgspec.Struct, frozen=True):
    """What a write adds to what is used of the quotas that count its object."""

    resource: GroupResource
    new: QuotaItem
    old: QuotaItem | None
    """The stored object of an update."""
    now: datetime
    unlimited: bool = False
    """Whether the usage may exceed the limits, because it is a fact, not a wish: a change of a status."""

    def charged(self, quotas: Iterable[QuotaState]) -> dict[str, Amounts]:
        """What is used of each quota after the write, by the quota's name; only of quotas that it changes.

        Raises `QuotaViolation`.
        """
        matching = [quota for quota in quotas if quota.matches(self.resource, self.new)]
        for quota in matching:
            self._check_complete(quota)
        after = {quota.name: (quota, self._used_after(quota)) for quota in matching}
        return {name: used for name, (quota, used) in after.items() if used != quota.used}

    def _check_complete(self, quota: QuotaState) -> None:
        names = matching_resources(self.resource, quota.hard)
        if missing := sorted(names & self.new.missing.keys()):
            what = "; ".join(f"{name} for: {','.join(self.new.missing[name])}" for name in missing)
            raise QuotaViolation(f"failed quota: {quota.name}: must specify {what}")
        if not names <= quota.used.keys():
            raise QuotaViolation(f"status unknown for quota: {quota.name}, resources: {','.join(sorted(names))}")

    def _used_after(self, quota: QuotaState) -> Amounts:
        requested = {name: amount for name, amount in self._growth(quota).items() if amount and name in quota.hard}
        used = add_resources(quota.used, requested)
        exceeded = [name for name in requested if used[name] > quota.hard[name]]
        if exceeded and not self.unlimited:
            raise QuotaViolation(
                f"exceeded quota: {quota.name}, requested: {amounts_text(requested, exceeded)}, "
                f"used: {amounts_text(quota.used, exceeded)}, limited: {amounts_text(quota.hard, exceeded)}"
            )
        return used

    def _growth(self, quota: QuotaState) -> Amounts:
        usage = self.new.usage(self.now)
        if self.old is None or not quota.matches(self.resource, self.old):
            return usage
        before = self.old.usage(self.now)
        return {name: max(amount - before.get(name, ZERO), ZERO) for name, amount in usage.items()}


def quota_state(quota: JSON) -> QuotaState:
    """The enforced limits of a ResourceQuota: those of its status, which a controller fills."""
    status = quota.get("status") or {}
    return QuotaState(
        quota["metadata"]["name"],
        parse_amounts(status.get("hard")),
        parse_amounts(status.get("used")),
        scope_selectors(quota),
    )


def scope_selectors(quota: JSON) -> tuple[JSON, ...]:
    """The scopes of a ResourceQuota as scope selector requirements."""
    spec = quota["spec"]
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return (*scopes, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ()))


def is_in_scopes(item: QuotaItem, selectors: Iterable[JSON]) -> bool:
    """Whether an object is in all scopes."""
    return all(_is_in_scope(item, selector) for selector in selectors)


def _is_in_scope(item: QuotaItem, selector: JSON) -> bool:
    scope, operator = selector.get("scopeName", ""), selector.get("operator", "")
    if scope not in _VALUE_SCOPES or operator == "Exists":
        return scope in item.scopes
    values = item.scope_values.get(scope)
    if values is None:
        return False
    wanted = set(selector.get("values") or ())
    match operator:
        case "In":
            return bool(values & wanted)
        case "NotIn":
            return not values or bool(values - wanted)
        case _:
            return not values


def used_amounts(
    quota: JSON, items: Mapping[GroupResource, Iterable[QuotaItem]], counts: Mapping[GroupResource, int], now: datetime
) -> Amounts:
    """What is used of a ResourceQuota: `items` are the objects of its namespace, `counts` those that are only counted."""
    hard, selectors = parse_amounts(quota["spec"].get("hard")), scope_selectors(quota)
    used = parse_amounts((quota.get("status") or {}).get("used"))
    used = {name: amount for name, amount in used.items() if name in hard}
    counted: dict[str, Quantity] = {}
    for resource, members in items.items():
        names = matching_resources(resource, hard)
        if not names:
            continue
        counted = {**dict.fromkeys(names, ZERO), **counted}
        for item in members:
            if is_in_scopes(item, selectors):
                usage = item.usage(now)
                counted = add_resources(counted, {name: usage[name] for name in names & usage.keys()})
    for resource, number in counts.items():
        for name in matching_resources(resource, hard):
            counted[name] = ZERO if selectors else Quantity(number * 10**9)
    return {**used, **counted}


def amounts_text(amounts: Amounts, names: Iterable[str]) -> str:
    """Some amounts as error messages show them."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))
