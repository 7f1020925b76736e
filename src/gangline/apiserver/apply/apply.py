"""Server-side apply: merge a manager's configuration into the live object, and update the owners of its fields.

The manager owns the fields that it applies. A field that it applied before and no longer applies is removed, unless
another manager owns it. Changing a field that another manager owns is a conflict, unless forced.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import (
    FieldSet,
    difference,
    field_paths,
    intersection,
    recursive_difference,
    union,
)
from gangline.apiserver.apply.managed_fields import (
    APPLY,
    UPDATE,
    EntriesByIdentity,
    ManagedFieldsEntry,
    conflicting_fields,
    encode_entries,
    entries_after_update,
    ownable_entry,
    stored_entries,
    without_changed_fields,
    writable_changes,
)
from gangline.apiserver.apply.managed_kind import ManagedKind
from gangline.apiserver.apply.merge import merged_value, value_without_fields
from gangline.apiserver.apply.schema_errors import schema_errors
from gangline.apiserver.apply.walker import Walker, comparison, values_equal
from gangline.apiserver.errors import bad_request, untyped_error
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.base.errors import GanglineError
from gangline.schema.go_text import json_text, quoted_text

BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager that owns all existing fields when an object without managedFields is first applied."""

LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL_MANAGER = "kubectl"
_TYPE_FIELDS = ("apiVersion", "kind")
_MAX_ANNOTATION_BYTES = 256 * 1024


class ApplyResult(NamedTuple):
    """The result of an apply."""

    object: JSON
    """The new object, which shares nothing with the arguments. It has no managedFields and no defaults, and null
    where the configuration has null."""
    managed_fields: list[JSON]
    changed: bool
    """False if the live object already had the applied values. The managedFields may differ all the same."""


class FieldConflict(NamedTuple):
    """A field that another manager owns."""

    manager: str
    """The manager as messages name it: `"kubectl" using v1`."""
    field: str


class ApplyConflict(GanglineError):
    """Other managers own fields that would change: 409, reason Conflict, with a cause for each field."""

    def __init__(self, conflicts: list[FieldConflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_conflict_message(conflicts))

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


def _conflict_message(conflicts: list[FieldConflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
    lines: list[str] = []
    for manager in dict.fromkeys(each.manager for each in conflicts):
        lines.append(f"conflicts with {manager}:")
        lines += (f"- {each.field}" for each in conflicts if each.manager == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def server_side_apply(
    live: JSON | None, wanted: JSON, tracked: ManagedKind, *, manager: str, now: str, force: bool = False
) -> ApplyResult:
    """Apply a configuration to the live object, or create the object if `live` is None. Changes neither argument.

    Raises `ApplyConflict`; `StatusError` with 400 for a configuration of another kind or with managedFields, and
    with 500, as in kube-apiserver, for one that does not match its type.
    """
    _check_configuration(wanted, tracked)
    entries = _initial_entries(live, tracked, now)
    applier = _Applier(live, wanted, tracked, entries, manager, now)
    try:
        result = applier.run(force=force)
    except ApplyConflict as conflict:
        if manager != _KUBECTL_MANAGER or not applier.resolve_kubectl_conflicts(conflict):
            raise
        result = applier.run(force=True)
    if manager == _KUBECTL_MANAGER:
        _sync_last_applied(result.object, wanted)
    return result


def _check_configuration(wanted: JSON, tracked: ManagedKind) -> None:
    written, kind = (str(wanted[name]) if isinstance(wanted.get(name), str) else "" for name in _TYPE_FIELDS)
    group, _, version = written.rpartition("/")
    if (written, kind) != (tracked.api_version, tracked.kind):
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    metadata = wanted.get("metadata") or {}
    if not isinstance(metadata, dict):
        metadata = {}  # `schema_errors` reports the wrong type
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wrong = schema_errors(wanted, tracked.tree)
    if wrong:
        which = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {group}/{version}, Kind={kind}"
        raise untyped_error(f"failed to create typed patch object ({which}): {wrong}")


def _initial_entries(live: JSON | None, tracked: ManagedKind, now: str) -> EntriesByIdentity:
    if live is None:
        return {}
    entries = stored_entries((live.get("metadata") or {}).get("managedFields"))
    return entries or entries_after_update({}, None, live, tracked, manager=BEFORE_FIRST_APPLY, now=now)


class _Applier:
    """One apply, which may have to run twice."""

    def __init__(
        self,
        live: JSON | None,
        wanted: JSON,
        tracked: ManagedKind,
        entries: EntriesByIdentity,
        manager: str,
        now: str,
    ) -> None:
        self._live, self._config, self._managed_kind = live, wanted, tracked
        self._entries, self._now = entries, now
        walker = tracked.walker
        claimed = recursive_difference(walker.applied_fields(wanted), tracked.reset_fields)
        self._own_entry = ManagedFieldsEntry(
            manager, APPLY, tracked.api_version, claimed, subresource=tracked.subresource
        )

    def run(self, *, force: bool) -> ApplyResult:
        live, tracked, me = self._live, self._managed_kind, self._own_entry
        last = self._entries.get(me.identity)
        entries = {**self._entries, me.identity: me}
        if live is None:
            result = deep_copy(self._config)
            changed = True
        else:
            result = merged_value(live, self._config, tracked.walker)
            if last is not None and last.fields:
                result = _pruned_object(result, entries, last.fields, tracked.walker)
            made = writable_changes(live, result, tracked)
            conflicts = {} if force else conflicting_fields(entries, made, but=me.identity)
            if conflicts:
                raise ApplyConflict(_field_conflicts(conflicts, entries))
            entries = without_changed_fields(entries, made, but=me.identity)
            changed = not values_equal(live, result)
            result = deep_copy(result)
        self._record_ownership(entries, last, changed)
        (result.get("metadata") or {}).pop("managedFields", None)
        return ApplyResult(result, encode_entries(entries), changed)

    def _record_ownership(self, entries: EntriesByIdentity, last: ManagedFieldsEntry | None, changed: bool) -> None:
        """Record the fields that this manager owns now, with a new time if the object changed."""
        me = self._own_entry
        mine = ownable_entry(me)
        if mine is None:
            entries.pop(me.identity, None)
        else:
            time = self._now if changed else last.time if last else ""
            entries[me.identity] = msgspec.structs.replace(mine, time=time)

    def resolve_kubectl_conflicts(self, conflict: ApplyConflict) -> bool:
        """Whether a conflict of kubectl is only with fields that kubectl itself set before by client-side apply.

        Such conflicts are removed from the error.
        """
        allowed = self._last_applied_fields()
        if allowed is None:
            return False
        yielding = set(field_paths(allowed))
        conflict.conflicts = [each for each in conflict.conflicts if each.field not in yielding]
        conflict.args = (_conflict_message(conflict.conflicts),) if conflict.conflicts else conflict.args
        return not conflict.conflicts

    def _last_applied_fields(self) -> FieldSet | None:
        """The fields that client-side apply has set and that still have its values."""
        live, tracked = self._live or {}, self._managed_kind
        text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED_ANNOTATION)
        try:
            before = msgspec.json.decode(text or "")
        except (msgspec.DecodeError, TypeError):
            return None
        if not isinstance(before, dict) or before.get("apiVersion") != tracked.api_version:
            return None
        if schema_errors(before, tracked.tree):
            return None
        made = comparison(before, live, tracked.walker)
        return difference(difference(tracked.walker.applied_fields(before), made.changed), made.removed)


def _pruned_object(value: JSON, entries: EntriesByIdentity, last: FieldSet, walker: Walker) -> JSON:
    """The merged object without the fields that its manager applied before and that no manager owns now."""
    owned: FieldSet = {}
    for entry in entries.values():
        owned = union(owned, entry.fields)
    before = walker.with_named_members(last)
    there = walker.with_named_members(walker.applied_fields(value))
    left = _named_fields(value_without_fields(value, before, walker), walker)
    # Restore the fields that others own, with the objects around them; then all fields that this manager never owned.
    kept = value_without_fields(value, difference(there, union(left, walker.with_named_members(owned))), walker)
    gone = difference(there, _named_fields(kept, walker))
    return value_without_fields(value, intersection(gone, before), walker) or {}


def _named_fields(value: JSON | None, walker: Walker) -> FieldSet:
    return walker.with_named_members(walker.applied_fields(value or {}))


def _field_conflicts(found: Mapping[str, FieldSet], entries: EntriesByIdentity) -> list[FieldConflict]:
    return [
        FieldConflict(_manager_description(entries[identity]), field)
        for identity, fields in sorted(found.items())
        for field in field_paths(fields)
    ]


def _manager_description(entry: ManagedFieldsEntry) -> str:
    told = quoted_text(entry.manager)
    if entry.subresource:
        told += f' with subresource "{entry.subresource}"'
    return f"{told} using {entry.api_version}" if entry.operation == UPDATE else told


def _sync_last_applied(result: JSON, wanted: JSON) -> None:
    """Update the annotation of client-side apply, so that kubectl can switch back from server-side apply."""
    annotations = (result.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(LAST_APPLIED_ANNOTATION):
        return
    wanted = deep_copy(wanted)
    metadata = wanted.get("metadata") or {}
    if metadata.get("annotations"):
        metadata["annotations"].pop(LAST_APPLIED_ANNOTATION, None)
    annotations[LAST_APPLIED_ANNOTATION] = json_text(wanted) + "\n"
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATION_BYTES:
        del annotations[LAST_APPLIED_ANNOTATION]
