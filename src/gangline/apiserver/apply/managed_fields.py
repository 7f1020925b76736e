"""`metadata.managedFields`: which manager set which field last, updated on every write.

An entry is identified by manager, operation (Update, Apply), API version (for updates) and subresource. An updater
owns the fields that it changes, an applier owns the fields that it applies. This module reads, writes and caps
entries and tracks updates; server-side apply is in `apply.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import (
    FieldSet,
    decode_field_set,
    difference,
    has_field,
    intersection,
    path_set,
    recursive_difference,
    union,
)
from gangline.apiserver.apply.managed_kind import ManagedKind
from gangline.apiserver.apply.walker import Comparison, comparison, values_equal

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10
ANCIENT_CHANGES_MANAGER = "ancient-changes"
"""The manager that gets the fields of the oldest updaters beyond `MAX_UPDATERS`."""
MAX_MANAGER_BYTES = 128
"""The maximal length of a manager's name."""

_UNOWNED_FIELDS: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {}
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        },
    },
}

_SCALE_REPLICAS = path_set("f:spec", "f:replicas")


class ManagedFieldsEntry(msgspec.Struct, frozen=True):
    """The fields of an object that one manager owns."""

    manager: str
    operation: str
    api_version: str
    fields: FieldSet
    time: str = ""
    """RFC 3339, to the second; empty for a manager that owns fields without having changed one."""
    subresource: str = ""

    @property
    def identity(self) -> str:
        """The key of an entry. An applier has one entry for all API versions."""
        parts = {"manager": self.manager, "operation": self.operation}
        if self.operation == UPDATE:
            parts["apiVersion"] = self.api_version
        if self.subresource:
            parts["subresource"] = self.subresource
        return msgspec.json.encode(parts).decode()

    def with_fields(self, fields: FieldSet) -> "ManagedFieldsEntry":
        return msgspec.structs.replace(self, fields=fields)

    def to_json(self) -> JSON:
        entry: JSON = {"manager": self.manager} if self.manager else {}
        entry |= {"operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": self.fields}
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


EntriesByIdentity = dict[str, ManagedFieldsEntry]
"""Entries by their identity."""


def stored_entries(managed: Sequence[Any] | None) -> EntriesByIdentity:
    """The entries of a stored object. They were validated when they were written."""
    entries: EntriesByIdentity = {}
    for raw in managed or ():
        entry = _make_entry(raw, raw.get("fieldsV1") or {})
        entries[entry.identity] = entry
    return entries


def parse_entries(managed: Sequence[Any]) -> EntriesByIdentity:
    """The entries that a client sent. Raises `ValueError`, with kube-apiserver's message, for an invalid entry."""
    entries: EntriesByIdentity = {}
    for index, raw in enumerate(managed):
        _check_entry(raw, index)
        entry = _make_entry(raw, decode_field_set(raw.get("fieldsV1")))
        entries[entry.identity] = entry
    return entries


def _check_entry(raw: Any, index: int) -> None:
    if not isinstance(raw, dict) or raw.get("operation") not in (APPLY, UPDATE):
        raise ValueError("operation must be `Apply` or `Update`")
    if not raw.get("apiVersion"):
        raise ValueError("apiVersion must not be empty")
    kind = raw.get("fieldsType", "")
    if not kind:
        raise ValueError(f"missing fieldsType in managed fields entry {index}")
    if kind != "FieldsV1":
        raise ValueError(f'invalid fieldsType "{kind}" in managed fields entry {index}')


def _make_entry(raw: JSON, fields: FieldSet) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        manager=raw.get("manager") or "",
        operation=raw["operation"],
        api_version=raw["apiVersion"],
        fields=fields,
        time=raw.get("time") or "",
        subresource=raw.get("subresource") or "",
    )


def encode_entries(entries: Mapping[str, ManagedFieldsEntry]) -> list[JSON]:
    """The entries as JSON: appliers first, then by time, manager, API version and subresource."""
    ordered = sorted(
        entries.values(),
        key=lambda entry: (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource),
    )
    return [entry.to_json() for entry in ordered]


def manager_name(field_manager: str, user_agent: str) -> str:
    """The manager of a write: its `fieldManager`, else the User-Agent up to the first slash, else `unknown`.

    Of a User-Agent only printable characters are used, up to 128 bytes.
    """
    if field_manager:
        return field_manager
    name, size = [], 0
    for character in user_agent.split("/", 1)[0]:
        if character.isprintable():
            size += len(character.encode("utf-8", "replace"))
            if size > MAX_MANAGER_BYTES:
                break
            name.append(character)
    return "".join(name) or "unknown"


def updated_managed_fields(old: JSON | None, new: JSON, kind: ManagedKind, *, manager: str, now: str) -> list[JSON]:
    """The managedFields after a create, an update or a patch other than apply. Empty: the object must have none.

    `old` is the stored object, None on create; `new` is the client's object, defaulted and in the stored form,
    but before admission and before the server adds fields of its own: no manager owns those. The client may send
    `metadata.managedFields` in `new`: `[{}]` (and, except for custom kinds, `[]`) resets ownership, a valid list
    replaces it, anything else is ignored. Changes neither argument.
    """
    entries = _entries_before(old, new, kind)
    if old is not None and not entries:
        return []  # ownership is not tracked until the object is applied
    return encode_entries(capped_entries(entries_after_update(entries, old, new, kind, manager=manager, now=now)))


def _entries_before(old: JSON | None, new: JSON, kind: ManagedKind) -> EntriesByIdentity:
    """The entries before the write, after the client's own change of managedFields."""
    stored = ((old or {}).get("metadata") or {}).get("managedFields")
    if not kind.subresource:
        sent = (new.get("metadata") or {}).get("managedFields")
        if sent == [{}] or (sent == [] and not kind.custom):
            return {}
        if sent and sent != stored:
            try:
                return parse_entries(sent)
            except ValueError:
                return stored_entries(stored)
    return stored_entries(stored)


def entries_after_update(
    entries: EntriesByIdentity, old: JSON | None, new: JSON, kind: ManagedKind, *, manager: str, now: str
) -> EntriesByIdentity:
    """The entries after an update: the manager of the update now owns all changed fields, the others lose them.

    Entries stay the same if no field that can be owned has changed.
    """
    changes = writable_changes(old if old is not None else kind.zero_object, new, kind)
    remaining = without_changed_fields(entries, changes)
    gained = difference(changes.changed, _UNOWNED_FIELDS)
    if gained:
        own = ManagedFieldsEntry(manager or "unknown", UPDATE, kind.api_version, gained, now, kind.subresource)
        previous = remaining.get(own.identity)
        remaining[own.identity] = own.with_fields(union(gained, previous.fields)) if previous else own
    return remaining


def writable_changes(old: JSON, new: JSON, kind: ManagedKind) -> Comparison:
    """The difference of two objects without managedFields and without the fields that this kind of write resets."""
    changes = comparison(_without_managed_fields(old), _without_managed_fields(new), kind.walker)
    return Comparison(
        recursive_difference(changes.changed, kind.reset_fields),
        recursive_difference(changes.removed, kind.reset_fields),
    )


def _without_managed_fields(document: JSON) -> JSON:
    metadata = document.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return document
    return {**document, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def without_changed_fields(entries: EntriesByIdentity, changes: Comparison, *, but: str = "") -> EntriesByIdentity:
    """The entries without the changed and removed fields, except for the entry `but`. Empty entries are dropped."""
    remaining: EntriesByIdentity = {}
    for identity, entry in entries.items():
        if identity != but:
            fields = difference(difference(entry.fields, changes.changed), changes.removed)
            entry = entry.with_fields(fields)
        if entry.fields:
            remaining[identity] = entry
    return remaining


def conflicting_fields(entries: EntriesByIdentity, changes: Comparison, *, but: str) -> dict[str, FieldSet]:
    """By identity: the fields of other entries than `but` that would change."""
    conflicts = {}
    for identity, entry in entries.items():
        shared = intersection(entry.fields, changes.changed) if identity != but else {}
        if shared:
            conflicts[identity] = shared
    return conflicts


def ownable_entry(entry: ManagedFieldsEntry) -> ManagedFieldsEntry | None:
    """The entry without the fields that are never owned; None if no field is left."""
    fields = difference(entry.fields, _UNOWNED_FIELDS)
    return entry.with_fields(fields) if fields else None


def capped_entries(entries: EntriesByIdentity) -> EntriesByIdentity:
    """At most ten updaters: the oldest are merged into one entry per API version."""
    updaters = [identity for identity, entry in entries.items() if entry.operation == UPDATE]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return entries
    remaining = dict(entries)
    first: dict[str, str] = {}
    for identity in sorted(updaters, key=lambda updater: (entries[updater].time, updater)):
        if not excess:
            break
        entry = remaining[identity]
        if entry.api_version not in first:
            first[entry.api_version] = identity
            continue
        bucket = ManagedFieldsEntry(ANCIENT_CHANGES_MANAGER, UPDATE, entry.api_version, {}, entry.time)
        previous = remaining.get(bucket.identity) or remaining.pop(first[entry.api_version])
        del remaining[identity]
        remaining[bucket.identity] = bucket.with_fields(union(entry.fields, previous.fields))
        excess -= 1
    return remaining


def scaled_managed_fields(
    managed: Sequence[Any] | None, *, manager: str, api_version: str, path: Sequence[str], owned: bool
) -> list[JSON]:
    """The managedFields of an object after a manager has set its replicas, at this path of keys, through `/scale`.

    All others lose the field. The entry of the new owner has no time, as in Kubernetes; without `owned`, it has none.
    """
    entries = stored_entries(managed)
    if not entries:
        return encode_entries(entries)
    field = path_set(*path)
    own = ManagedFieldsEntry(manager or "unknown", UPDATE, api_version, field, subresource="scale")
    remaining: EntriesByIdentity = {}
    for identity, entry in entries.items():
        if identity != own.identity and has_field(entry.fields, *path):
            entry = entry.with_fields(difference(entry.fields, field))
        if entry.fields:
            remaining[identity] = entry
    if owned:
        remaining.setdefault(own.identity, own)
    return encode_entries(remaining)


def scale_managed_fields(managed: Sequence[Any] | None, *, path: Sequence[str]) -> list[JSON]:
    """The managedFields of an object's Scale: the owners of the replicas, which are at this path of keys."""
    return [
        msgspec.structs.replace(entry, api_version="autoscaling/v1", fields=_SCALE_REPLICAS).to_json()
        for entry in stored_entries(managed).values()
        if has_field(entry.fields, *path)
    ]


def parent_managed_fields(
    managed: Sequence[Any] | None, scale: Sequence[Any], *, api_version: str, path: Sequence[str]
) -> list[JSON]:
    """The managedFields of an object after its Scale got these.

    Entries of the owners of replicas have no time, as in Kubernetes.
    """
    field, remaining = path_set(*path), {}
    for identity, entry in stored_entries(managed).items():
        reduced = entry.with_fields(difference(entry.fields, field) if has_field(entry.fields, *path) else entry.fields)
        if reduced.fields:
            remaining[identity] = reduced
    for entry in stored_entries(scale).values():
        if has_field(entry.fields, "f:spec", "f:replicas"):
            own = msgspec.structs.replace(entry, api_version=api_version, fields=field, time="")
            previous = remaining.get(own.identity)
            remaining[own.identity] = previous.with_fields(union(field, previous.fields)) if previous else own
    return encode_entries(remaining)


def equal_ignoring_timestamps(old: JSON, new: JSON) -> bool:
    """Whether two objects differ at most in the times of managedFields: such a write changes nothing."""
    return values_equal(_without_timestamps(old), _without_timestamps(new))


def _without_timestamps(document: JSON) -> JSON:
    metadata = document.get("metadata") or {}
    managed = [
        {key: value for key, value in entry.items() if key != "time"} for entry in metadata.get("managedFields") or ()
    ]
    return {**document, "metadata": {**metadata, "managedFields": managed}}
