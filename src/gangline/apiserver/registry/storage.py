"""The stored form of objects: their path, their version, their bytes."""

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import bad_request
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreRecord
from gangline.schema.go_text import quoted_text


def check_name(name: str) -> None:
    """Check that a name can be part of a path. Raises `StatusError` (400)."""
    if name in (".", ".."):
        raise bad_request(f"Name parameter invalid: {quoted_text(name)}: may not be '{name}'")
    problems = [f"may not contain '{character}'" for character in "/%" if character in name]
    if problems:
        raise bad_request(f"Name parameter invalid: {quoted_text(name)}: {';'.join(problems)}")


def storage_path(served_kind: ServedKind, key: Key) -> str:
    """Where an object is stored. Raises `StatusError` (400) for a name that can be no part of a path."""
    check_name(key.name)
    resource = served_kind.resource
    namespace = key.namespace if resource.namespaced else ""
    return object_path(served_kind.storage_group, resource.plural, namespace, key.name)


def decode_record(record: StoreRecord, served_kind: ServedKind | None = None) -> JSON:
    """A new copy of the stored object, free to be changed; with a served kind, converted to its version."""
    obj: JSON = msgspec.json.decode(record.data)
    return obj if served_kind is None or served_kind.from_storage is None else served_kind.from_storage(obj)


def storage_form(served_kind: ServedKind, obj: JSON) -> JSON:
    """The object converted to the version it is stored in."""
    return with_kind_first(obj if served_kind.to_storage is None else served_kind.to_storage(obj))


def encode_object(obj: JSON) -> bytes:
    return msgspec.json.encode(with_kind_first(obj))


def with_kind_first(obj: JSON) -> JSON:
    """The object with kind and apiVersion first: a list removes both from its items by cutting off that many bytes."""
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], **obj}
