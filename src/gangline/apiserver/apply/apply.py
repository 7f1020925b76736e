"""Server-side apply: merge what a manager wants into what is there, and see whose fields that takes.

The manager owns what it applies. What it applied before and applies no longer goes, unless somebody else owns it. What
others own and would change is a conflict, unless forced.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.apply.check import misfits
from gangline.apiserver.apply.fieldset import Fields, difference, intersection, paths, union, without
from gangline.apiserver.apply.managed import (
    APPLY,
    UPDATE,
    Entries,
    Entry,
    conflicting,
    differing,
    encoded,
    entries_of,
    owned_by,
    reduced,
    taken,
)
from gangline.apiserver.apply.merge import merged, removed
from gangline.apiserver.apply.tracked import Tracked
from gangline.apiserver.apply.walker import Walker, compared, equal
from gangline.apiserver.errors import bad_request, internal
from gangline.apiserver.patch.json_patch import copied
from gangline.base.errors import GanglineError
from gangline.schema.go_text import json_text, quoted

BEFORE_FIRST_APPLY = "before-first-apply"
"""Owns all that was there when an object without owners is applied for the first time."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_NAMES = ("apiVersion", "kind")
_MAX_ANNOTATIONS = 256 * 1024


class Applied(NamedTuple):
    """What apply makes of an object."""

    object: JSON
    """Shares nothing with the arguments. Without managedFields, not defaulted, and with null where the client has."""
    managed: list[JSON]
    changed: bool
    """False when the live object already was as wanted; its managers may differ all the same."""


class Conflict(NamedTuple):
    """One field that another manager owns."""

    manager: str
    """As it is told: `"kubectl" using v1`."""
    field: str


class ApplyConflict(GanglineError):
    """Others own what would change: 409, reason Conflict, with a cause for each field."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_told(conflicts))

    @property
    def causes(self) -> list[JSON]:
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {each.manager}",
                "field": each.field,
            }
            for each in self.conflicts
        ]


def _told(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
    lines: list[str] = []
    for manager in dict.fromkeys(each.manager for each in conflicts):
        lines.append(f"conflicts with {manager}:")
        lines += (f"- {each.field}" for each in conflicts if each.manager == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def applied(
    live: JSON | None, wanted: JSON, tracked: Tracked, *, manager: str, now: str, force: bool = False
) -> Applied:
    """Apply `wanted` to what is stored, or create it where `live` is None. Changes neither.

    Raises ApplyConflict; Refused with 400 for an object of another kind or one that names managers, and with 500,
    as kube-apiserver does, for one that does not fit its type.
    """
    _check(wanted, tracked)
    entries = _starting(live, tracked, now)
    applier = _Applier(live, wanted, tracked, entries, manager, now)
    try:
        result = applier.run(force=force)
    except ApplyConflict as conflict:
        if manager != _KUBECTL or not applier.settle(conflict):
            raise
        result = applier.run(force=True)
    if manager == _KUBECTL:
        _sync_last_applied(result.object, wanted)
    return result


def _check(wanted: JSON, tracked: Tracked) -> None:
    written, kind = (str(wanted[name]) if isinstance(wanted.get(name), str) else "" for name in _NAMES)
    group, _, version = written.rpartition("/")
    if (written, kind) != (tracked.api_version, tracked.kind):
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    metadata = wanted.get("metadata") or {}
    if not isinstance(metadata, dict):
        metadata = {}  # and so it does not fit
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wrong = misfits(wanted, tracked.tree)
    if wrong:
        which = (
            f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {group}/{version}, Kind={kind}"
        )
        raise internal(f"failed to create typed patch object ({which}): {wrong}")


def _starting(live: JSON | None, tracked: Tracked, now: str) -> Entries:
    if live is None:
        return {}
    entries = entries_of((live.get("metadata") or {}).get("managedFields"))
    return entries or taken({}, None, live, tracked, manager=BEFORE_FIRST_APPLY, now=now)


class _Applier:
    """One apply, which may have to run twice."""

    def __init__(
        self, live: JSON | None, wanted: JSON, tracked: Tracked, entries: Entries, manager: str, now: str
    ) -> None:
        self._live, self._wanted, self._tracked = live, wanted, tracked
        self._entries, self._now = entries, now
        walker = tracked.walker
        claimed = without(walker.fields(wanted), tracked.reset)
        self._me = Entry(manager, APPLY, tracked.api_version, claimed, subresource=tracked.subresource)

    def run(self, *, force: bool) -> Applied:
        live, tracked, me = self._live, self._tracked, self._me
        last = self._entries.get(me.identity)
        entries = {**self._entries, me.identity: me}
        if live is None:
            result = copied(self._wanted)
            changed = True
        else:
            result = merged(live, self._wanted, tracked.walker)
            if last is not None and last.fields:
                result = _pruned(result, entries, last.fields, tracked.walker)
            made = differing(live, result, tracked)
            conflicts = {} if force else conflicting(entries, made, but=me.identity)
            if conflicts:
                raise ApplyConflict(_conflicts(conflicts, entries))
            entries = reduced(entries, made, but=me.identity)
            changed = not equal(live, result)
            result = copied(result)
        self._note(entries, last, changed)
        (result.get("metadata") or {}).pop("managedFields", None)
        return Applied(result, encoded(entries), changed)

    def _note(self, entries: Entries, last: Entry | None, changed: bool) -> None:
        """Put down what this manager owns now, and when, unless nothing has changed."""
        me = self._me
        mine = owned_by(me)
        if mine is None:
            entries.pop(me.identity, None)
        else:
            time = self._now if changed else last.time if last else ""
            entries[me.identity] = msgspec.structs.replace(mine, time=time)

    def settle(self, conflict: ApplyConflict) -> bool:
        """Whether a conflict of kubectl is only with what kubectl itself applied from the client's side before.

        Where some of it is, those conflicts are dropped from the error.
        """
        allowed = self._last_applied()
        if allowed is None:
            return False
        yielding = set(paths(allowed))
        conflict.conflicts = [each for each in conflict.conflicts if each.field not in yielding]
        conflict.args = (_told(conflict.conflicts),) if conflict.conflicts else conflict.args
        return not conflict.conflicts

    def _last_applied(self) -> Fields | None:
        """The fields that client-side apply has put there and that are still as it left them."""
        live, tracked = self._live or {}, self._tracked
        text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
        try:
            before = msgspec.json.decode(text or "")
        except (msgspec.DecodeError, TypeError):
            return None
        if not isinstance(before, dict) or before.get("apiVersion") != tracked.api_version:
            return None
        if misfits(before, tracked.tree):
            return None
        made = compared(before, live, tracked.walker)
        return difference(difference(tracked.walker.fields(before), made.changed), made.removed)


def _pruned(value: JSON, entries: Entries, last: Fields, walker: Walker) -> JSON:
    """The merged object less what its manager applied before and nobody owns now."""
    owned: Fields = {}
    for entry in entries.values():
        owned = union(owned, entry.fields)
    before = walker.named(last)
    there = walker.named(walker.fields(value))
    left = _fields(removed(value, before, walker), walker)
    # What others own comes back, with the objects it is in; then all that this manager never owned.
    kept = removed(value, difference(there, union(left, walker.named(owned))), walker)
    gone = difference(there, _fields(kept, walker))
    return removed(value, intersection(gone, before), walker) or {}


def _fields(value: JSON | None, walker: Walker) -> Fields:
    return walker.named(walker.fields(value or {}))


def _conflicts(found: Mapping[str, Fields], entries: Entries) -> list[Conflict]:
    return [
        Conflict(_described(entries[identity]), field)
        for identity, fields in sorted(found.items())
        for field in paths(fields)
    ]


def _described(entry: Entry) -> str:
    told = quoted(entry.manager)
    if entry.subresource:
        told += f' with subresource "{entry.subresource}"'
    return f"{told} using {entry.api_version}" if entry.operation == UPDATE else told


def _sync_last_applied(result: JSON, wanted: JSON) -> None:
    """As kubectl has moved from client-side to server-side apply: keep its annotation true."""
    annotations = (result.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    wanted = copied(wanted)
    metadata = wanted.get("metadata") or {}
    if metadata.get("annotations"):
        metadata["annotations"].pop(LAST_APPLIED, None)
    annotations[LAST_APPLIED] = json_text(wanted) + "\n"
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
