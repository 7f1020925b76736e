"""The names of a CRD that are accepted: those that no other CRD of its group has."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.api.meta import JSON

_RESOURCE_NAMES = (("plural", "PluralConflict"), ("singular", "SingularConflict"))
_KIND_NAMES = (("kind", "KindConflict"), ("listKind", "ListKindConflict"))


class NamesDecision(msgspec.Struct, frozen=True):
    """The names that a CRD gets, and why it does not get all. Of several conflicts the last one is reported."""

    accepted: JSON
    reason: str = ""
    message: str = ""


def names_only(crd: JSON) -> JSON:
    """The group and the names of a CRD, in its form."""
    names = {"group": crd["spec"]["group"], "names": crd["spec"]["names"]}
    return {"spec": names, "status": {"acceptedNames": _accepted_names(crd)}}


def decide_names(crd: JSON, others: Iterable[JSON]) -> NamesDecision:
    """Which names of a CRD can be accepted beside those of others, which may include its own."""
    group, wanted, before = crd["spec"]["group"], crd["spec"]["names"], _accepted_names(crd)
    same_group = [_accepted_names(other) for other in others if other["spec"]["group"] == group]
    resources = {name for names in same_group for name in _resource_names(names)}
    kinds = {names.get(key, "") for names in same_group for key, _ in _KIND_NAMES}
    accepted, conflicts = dict(before), list[tuple[str, str]]()

    def decide(key: str, reason: str, taken: set[str]) -> None:
        name = wanted.get(key, "")
        if name != before.get(key, "") and name in taken:
            conflicts.append((reason, _in_use(name)))
        else:
            _set(accepted, key, name)

    for key, reason in _RESOURCE_NAMES:
        decide(key, reason, resources)
    short_names, old_short_names = wanted.get("shortNames") or [], before.get("shortNames") or []
    taken = [_in_use(name) for name in short_names if name not in old_short_names and name in resources]
    if taken:
        conflicts.append(("ShortNamesConflict", taken[0] if len(taken) == 1 else f"[{', '.join(taken)}]"))
    else:
        _set(accepted, "shortNames", short_names)
    for key, reason in _KIND_NAMES:
        decide(key, reason, kinds)
    _set(accepted, "categories", wanted.get("categories"))
    return NamesDecision(accepted, *conflicts[-1]) if conflicts else NamesDecision(accepted)


def _accepted_names(crd: JSON) -> JSON:
    names: JSON = (crd.get("status") or {}).get("acceptedNames") or {}
    return names


def _resource_names(names: JSON) -> list[str]:
    return [names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or [])]


def _set(names: JSON, key: str, value: Any) -> None:
    if value:
        names[key] = value
    else:
        names.pop(key, None)


def _in_use(name: str) -> str:
    return f'"{name}" is already in use'
