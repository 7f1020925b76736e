"""Embedded resources: objects inside of custom resources with a kind and metadata of their own.

`coerce_metadata` makes their metadata well formed, `validate_embedded` validates kind and metadata.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from gangline.api import names
from gangline.base.errors import InputError
from gangline.schema.go_text import json_type_name, quoted_text
from gangline.schema.names import dns1035_label_errors, dns_label_errors, path_segment_errors
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem, ProblemKind, invalid, required

_MAX_ANNOTATION_BYTES = 256 * 1024
_OWNER_FIELD_MESSAGES = (("name", "must not be empty"), ("uid", "must not be empty"))
_METADATA_TYPES: dict[str, str] = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), "string"),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), "int64"),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), "time"),
    **dict.fromkeys(("labels", "annotations"), "map[string]string"),
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
    "managedFields": "[]v1.ManagedFieldsEntry",
}


class MetadataError(InputError):
    """Embedded metadata that cannot be decoded. The server answers 400 with this message."""


def coerce_metadata(value: Any, node: SchemaNode | None, path: str = "", *, root: bool = False) -> list[str]:
    """Drop unknown fields of embedded metadata, in place. Returns their paths. Raises `MetadataError`."""
    if node is None:
        return []
    dropped: list[str] = []
    if isinstance(value, dict):
        if node.embedded or root:
            dropped += _coerce_resource(value, path)
        for name, part in value.items():
            child = node.properties.get(name)
            if child is not None:
                dropped += coerce_metadata(part, child, f"{path}.{name}" if path else name)
            elif node.additional_properties is not None:
                dropped += coerce_metadata(part, node.additional_properties, f"{path}[{name}]")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            dropped += coerce_metadata(part, node.items, f"{path}[{index}]")
    return dropped


def _coerce_resource(value: dict[str, Any], path: str) -> list[str]:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            raise _metadata_error(f"{path}.{name}", value[name], "must be a string")
    metadata = value.get("metadata")
    if "metadata" not in value:
        return []
    metadata_path = f"{path}.metadata" if path else "metadata"
    if metadata is None:
        value["metadata"] = {}
        return []
    if not isinstance(metadata, dict):
        raise _metadata_error(
            metadata_path,
            metadata,
            f"json: cannot unmarshal {json_type_name(metadata)} into Go value of type v1.ObjectMeta",
        )
    return _coerce_metadata(metadata, metadata_path)


def _coerce_metadata(metadata: dict[str, Any], path: str) -> list[str]:
    unknown = [name for name in metadata if name not in _METADATA_TYPES]
    for name, part in list(metadata.items()):
        if name in unknown or part is None or part in ("", {}, []):
            # Go omits empty fields.
            del metadata[name]
        elif problem := _type_mismatch(name, part):
            raise _metadata_error(path, metadata, problem)
    return [f"{path}.{name}" for name in unknown]


def _type_mismatch(name: str, value: Any) -> str:
    """What Go's decoder reports about a value of the wrong type; empty when the type is right."""
    expected = _METADATA_TYPES[name]
    field = f"Go struct field ObjectMeta.{name}"
    match expected:
        case "string" if not isinstance(value, str):
            return f"json: cannot unmarshal {json_type_name(value)} into {field} of type {'types.UID' if name == 'uid' else expected}"
        case "int64" if not isinstance(value, int) or isinstance(value, bool):
            actual = f"number {value}" if isinstance(value, float) else json_type_name(value)
            return f"json: cannot unmarshal {actual} into {field} of type int64"
        case "time":
            return _time_mismatch(value, field)
        case "map[string]string" if not isinstance(value, dict):
            return f"json: cannot unmarshal {json_type_name(value)} into {field} of type {expected}"
        case "map[string]string":
            mismatched = [part for part in value.values() if not isinstance(part, str) and part is not None]
            return (
                f"json: cannot unmarshal {json_type_name(mismatched[0])} into {field} of type string"
                if mismatched
                else ""
            )
        case "[]string" | "[]v1.OwnerReference" | "[]v1.ManagedFieldsEntry" if not isinstance(value, list):
            return f"json: cannot unmarshal {json_type_name(value)} into {field} of type {expected}"
    return ""


def _time_mismatch(value: Any, field: str) -> str:
    if not isinstance(value, str):
        return f"json: cannot unmarshal {json_type_name(value)} into {field} of type string"
    try:
        msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return f'parsing time {quoted_text(value)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted_text(value)} as "2006"'
    return ""


def _metadata_error(path: str, value: Any, detail: str) -> MetadataError:
    return MetadataError(str(invalid(path.removeprefix("."), value, detail)))


def validate_embedded(value: Any, node: SchemaNode | None, path: str = "", *, root: bool = False) -> list[FieldProblem]:
    """Problems in kinds and metadata of embedded resources, at any depth."""
    return list(_embedded_problems(value, node, path, root=root))


def _embedded_problems(value: Any, node: SchemaNode | None, path: str, *, root: bool = False) -> Iterator[FieldProblem]:
    if node is None:
        return
    if isinstance(value, dict):
        if node.embedded or root:
            yield from _resource_problems(value, f"{path}." if path else "")
        for name in sorted(value):
            child = node.properties.get(name)
            if child is not None:
                yield from _embedded_problems(value[name], child, f"{path}.{name}" if path else name)
            elif node.additional_properties is not None:
                yield from _embedded_problems(value[name], node.additional_properties, f"{path}[{name}]")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _embedded_problems(part, node.items, f"{path}[{index}]")


def _resource_problems(value: dict[str, Any], path: str) -> Iterator[FieldProblem]:
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield required(f"{path}{name}")
    for name in ("apiVersion", "kind"):
        if name in value and (detail := _type_meta_error(name, value[name])):
            yield invalid(f"{path}{name}", value[name], detail)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        yield from _metadata_problems(metadata, f"{path}metadata")


def _type_meta_error(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a string"
    if not value:
        return "must not be empty"
    if name == "apiVersion":
        return f"unexpected GroupVersion string: {value}" if value.count("/") > 1 else ""
    errors = dns1035_label_errors(value.lower())
    return f"may have mixed case, but should otherwise match: {','.join(errors)}" if errors else ""


def _metadata_problems(metadata: dict[str, Any], path: str) -> Iterator[FieldProblem]:
    for name, check in (
        ("generateName", path_segment_errors),
        ("name", path_segment_errors),
        ("namespace", dns_label_errors),
    ):
        for detail in check(metadata[name]) if metadata.get(name) else ():
            yield invalid(f"{path}.{name}", metadata[name], detail)
    if metadata.get("generation", 0) < 0:
        detail = "must be greater than or equal to 0"
        yield invalid(f"{path}.generation", metadata["generation"], detail)
    yield from _label_problems(metadata.get("labels") or {}, f"{path}.labels")
    yield from _annotation_problems(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from _owner_problems(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    for finalizer in metadata.get("finalizers") or []:
        for detail in names.qualified_name_problems(finalizer):
            yield invalid(f"{path}.finalizers", finalizer, detail)


def _label_problems(labels: dict[str, str], path: str) -> Iterator[FieldProblem]:
    for key, text in sorted(labels.items()):
        for detail in names.qualified_name_problems(key):
            yield invalid(path, key, detail)
        for detail in names.label_value_problems(text or ""):
            yield invalid(path, text, detail)


def _annotation_problems(annotations: dict[str, str], path: str) -> Iterator[FieldProblem]:
    for key in sorted(annotations):
        for detail in names.qualified_name_problems(key.lower()):
            yield invalid(path, key, detail)
    if sum(len(key.encode()) + len((text or "").encode()) for key, text in annotations.items()) > _MAX_ANNOTATION_BYTES:
        yield FieldProblem(ProblemKind.TOO_LONG, path, "", f"may not be more than {_MAX_ANNOTATION_BYTES} bytes")


def _owner_problems(owners: list[dict[str, Any]], path: str) -> Iterator[FieldProblem]:
    controllers = []
    for owner in owners:
        version = str(owner.get("apiVersion") or "").rpartition("/")[2]
        texts = (("apiVersion", "version must not be empty", version), ("kind", "must not be empty", owner.get("kind")))
        for name, detail, text in (
            *texts,
            *((name, detail, owner.get(name)) for name, detail in _OWNER_FIELD_MESSAGES),
        ):
            if not text:
                yield invalid(f"{path}.{name}", owner.get(name) or "", detail)
        if owner.get("controller") is True:
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
            if len(controllers) > 1:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controllers[0]} and {controllers[-1]}'
                )
                yield invalid(path, owners, detail)
