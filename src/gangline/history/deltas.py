"""Merge patches between versions of an object. Pure; unchanged parts are shared, never copied."""

from typing import Any

from gangline.api.meta import JSON

_ABSENT = object()


def patch_between(before: JSON, after: JSON) -> JSON | None:
    """The merge patch that turns `before` into `after`; None if no merge patch can: a null would have to be set."""
    patch: JSON = {}
    for name in before.keys() - after.keys():
        patch[name] = None
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        if old is value:
            continue
        if value.__class__ is dict and old.__class__ is dict:
            nested = patch_between(old, value)
            if nested is None:
                return None
            if nested:
                patch[name] = nested
        elif value != old or value.__class__ is not old.__class__:
            if _has_null(value):
                return None
            patch[name] = value
    return patch


def patched(before: JSON, patch: JSON) -> JSON:
    """The object after a patch of `patch_between`."""
    after = dict(before)
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        elif value.__class__ is dict and (old := after.get(name)).__class__ is dict:
            after[name] = patched(old, value)
        else:
            after[name] = value
    return after


def _has_null(value: Any) -> bool:
    """Whether a merge would drop a null from a new value. Nulls in lists stay."""
    if value is None:
        return True
    return value.__class__ is dict and any(map(_has_null, value.values()))
