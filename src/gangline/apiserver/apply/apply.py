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
            {"reason": "FieldManagerConflict", "message": f"conflict with {item.manager}", "field": item.field}
            for item in self.conflicts
        ]


def _conflict_message(conflicts: list[FieldConflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
    lines: list[str] = []
    for manager in dict.fromkeys(item.manager for item in conflicts):
        lines.append(f"conflicts with {manager}:")
        lines += (f"- {item.field}" for item in conflicts if item.manager == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def server_side_apply(
    live: JSON | None, config: JSON, kind: ManagedKind, *, manager: str, now: str, force: bool = False
) -> ApplyResult:
    """Apply a configuration to the live object, or create the object if `live` is None. Changes neither argument.

    Raises `ApplyConflict`; `StatusError` with 400 for a configuration of another kind or with managedFields, and
    with 500, as in kube-apiserver, for one that does not match its type.
    """
    _check_configuration(config, kind)
    entries = _initial_entries(live, kind, now)
    applier = _Applier(live, config, kind, entries, manager, now)
    try:
        result = applier.run(force=force)
    except ApplyConflict as conflict:
        if manager != _KUBECTL_MANAGER or not applier.resolve_kubectl_conflicts(conflict):
            raise
        result = applier.run(force=True)
    if manager == _KUBECTL_MANAGER:
        _sync_last_applied(result.object, config)
    return result


def _check_configuration(config: JSON, managed_kind: ManagedKind) -> None:
    api_version, kind = (str(config[name]) if isinstance(config.get(name), str) else "" for name in _TYPE_FIELDS)
    group, _, version = api_version.rpartition("/")
    if (api_version, kind) != (managed_kind.api_version, managed_kind.kind):
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    metadata = config.get("metadata") or {}
    if not isinstance(metadata, dict):
        metadata = {}  # `schema_errors` reports the wrong type
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    errors = schema_errors(config, managed_kind.tree)
    if errors:
        namespace, name = (
            value if isinstance(value := metadata.get(key), str) else "" for key in ("namespace", "name")
        )
        subject = f"{namespace}/{name}; {group}/{version}, Kind={kind}"
        raise untyped_error(f"failed to create typed patch object ({subject}): {errors}")


def _initial_entries(live: JSON | None, kind: ManagedKind, now: str) -> EntriesByIdentity:
    if live is None:
        return {}
    entries = stored_entries((live.get("metadata") or {}).get("managedFields"))
    return entries or entries_after_update({}, None, live, kind, manager=BEFORE_FIRST_APPLY, now=now)


class _Applier:
    """One apply, which may have to run twice."""

    def __init__(
        self, live: JSON | None, config: JSON, kind: ManagedKind, entries: EntriesByIdentity, manager: str, now: str
    ) -> None:
        self._live, self._config, self._managed_kind = live, config, kind
        self._entries, self._now = entries, now
        walker = kind.walker
        fields = recursive_difference(walker.applied_fields(config), kind.reset_fields)
        self._own_entry = ManagedFieldsEntry(manager, APPLY, kind.api_version, fields, subresource=kind.subresource)

    def run(self, *, force: bool) -> ApplyResult:
        live, kind, own = self._live, self._managed_kind, self._own_entry
        previous = self._entries.get(own.identity)
        entries = {**self._entries, own.identity: own}
        if live is None:
            result = deep_copy(self._config)
            changed = True
        else:
            result = merged_value(live, self._config, kind.walker)
            if previous is not None and previous.fields:
                result = _pruned_object(result, entries, previous.fields, kind.walker)
            changes = writable_changes(live, result, kind)
            conflicts = {} if force else conflicting_fields(entries, changes, but=own.identity)
            if conflicts:
                raise ApplyConflict(_field_conflicts(conflicts, entries))
            entries = without_changed_fields(entries, changes, but=own.identity)
            changed = not values_equal(live, result)
            result = deep_copy(result)
        self._record_ownership(entries, previous, changed)
        (result.get("metadata") or {}).pop("managedFields", None)
        return ApplyResult(result, encode_entries(entries), changed)

    def _record_ownership(self, entries: EntriesByIdentity, previous: ManagedFieldsEntry | None, changed: bool) -> None:
        """Record the fields that this manager owns now, with a new time if the object changed."""
        own = self._own_entry
        ownable = ownable_entry(own)
        if ownable is None:
            entries.pop(own.identity, None)
        else:
            time = self._now if changed else previous.time if previous else ""
            entries[own.identity] = msgspec.structs.replace(ownable, time=time)

    def resolve_kubectl_conflicts(self, conflict: ApplyConflict) -> bool:
        """Whether a conflict of kubectl is only with fields that kubectl itself set before by client-side apply.

        Such conflicts are removed from the error.
        """
        last_applied = self._last_applied_fields()
        if last_applied is None:
            return False
        last_applied_paths = set(field_paths(last_applied))
        conflict.conflicts = [item for item in conflict.conflicts if item.field not in last_applied_paths]
        conflict.args = (_conflict_message(conflict.conflicts),) if conflict.conflicts else conflict.args
        return not conflict.conflicts

    def _last_applied_fields(self) -> FieldSet | None:
        """The fields that client-side apply has set and that still have its values."""
        live, kind = self._live or {}, self._managed_kind
        text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED_ANNOTATION)
        try:
            config = msgspec.json.decode(text or "")
        except (msgspec.DecodeError, TypeError):
            return None
        if not isinstance(config, dict) or config.get("apiVersion") != kind.api_version:
            return None
        if schema_errors(config, kind.tree):
            return None
        changes = comparison(config, live, kind.walker)
        return difference(difference(kind.walker.applied_fields(config), changes.changed), changes.removed)


def _pruned_object(value: JSON, entries: EntriesByIdentity, last: FieldSet, walker: Walker) -> JSON:
    """The merged object without the fields that its manager applied before and that no manager owns now."""
    owned: FieldSet = {}
    for entry in entries.values():
        owned = union(owned, entry.fields)
    previous = walker.with_named_members(last)
    present = walker.with_named_members(walker.applied_fields(value))
    remaining = _named_fields(value_without_fields(value, previous, walker), walker)
    # Restore the fields that others own, with the objects around them; then all fields that this manager never owned.
    restored = value_without_fields(
        value, difference(present, union(remaining, walker.with_named_members(owned))), walker
    )
    dropped = difference(present, _named_fields(restored, walker))
    return value_without_fields(value, intersection(dropped, previous), walker) or {}


def _named_fields(value: JSON | None, walker: Walker) -> FieldSet:
    return walker.with_named_members(walker.applied_fields(value or {}))


def _field_conflicts(conflicts: Mapping[str, FieldSet], entries: EntriesByIdentity) -> list[FieldConflict]:
    return [
        FieldConflict(_manager_description(entries[identity]), field)
        for identity, fields in sorted(conflicts.items())
        for field in field_paths(fields)
    ]


def _manager_description(entry: ManagedFieldsEntry) -> str:
    text = quoted_text(entry.manager)
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    return f"{text} using {entry.api_version}" if entry.operation == UPDATE else text


def _sync_last_applied(result: JSON, config: JSON) -> None:
    """Update the annotation of client-side apply, so that kubectl can switch back from server-side apply."""
    annotations = (result.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(LAST_APPLIED_ANNOTATION):
        return
    config = deep_copy(config)
    metadata = config.get("metadata") or {}
    if metadata.get("annotations"):
        metadata["annotations"].pop(LAST_APPLIED_ANNOTATION, None)
    annotations[LAST_APPLIED_ANNOTATION] = json_text(config) + "\n"
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATION_BYTES:
        del annotations[LAST_APPLIED_ANNOTATION]
