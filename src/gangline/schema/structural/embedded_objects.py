"""Resources inside resources: they have a kind, and metadata like any other.

`coerce` makes their metadata well formed, `validate_embedded` says what is wrong with what it holds.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from gangline.api import names
from gangline.base.errors import InputError
from gangline.schema.go_text import quoted
from gangline.schema.names import dns1035_label, dns_label, path_segment
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural.nodes import Node

_ANNOTATIONS_LIMIT = 256 * 1024
_OWNED_TEXTS = (("name", "must not be empty"), ("uid", "must not be empty"))
_KNOWN: dict[str, str] = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), "string"),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), "int64"),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), "time"),
    **dict.fromkeys(("labels", "annotations"), "map[string]string"),
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
    "managedFields": "[]v1.ManagedFieldsEntry",
}


class MetadataError(InputError):
    """Embedded metadata that cannot be read at all. The server answers 400 with this sentence."""


def coerce(value: Any, node: Node | None, path: str = "", *, root: bool = False) -> list[str]:
    """Drop unknown fields of embedded metadata, in place. Returns their paths. Raises `MetadataError`."""
    if node is None:
        return []
    dropped: list[str] = []
    if isinstance(value, dict):
        if node.embedded or root:
            dropped += _coerced(value, path)
        for name, part in value.items():
            child = node.properties.get(name)
            if child is not None:
                dropped += coerce(part, child, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                dropped += coerce(part, node.additional, f"{path}[{name}]")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            dropped += coerce(part, node.items, f"{path}[{index}]")
    return dropped


def _coerced(value: dict[str, Any], path: str) -> list[str]:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            raise _unreadable(f"{path}.{name}", value[name], "must be a string")
    metadata = value.get("metadata")
    if "metadata" not in value:
        return []
    where = f"{path}.metadata" if path else "metadata"
    if metadata is None:
        value["metadata"] = {}
        return []
    if not isinstance(metadata, dict):
        raise _unreadable(
            where,
            metadata,
            f"json: cannot unmarshal {_type_name(metadata)} into Go value of type v1.ObjectMeta",
        )
    return _coerced_metadata(metadata, where)


def _coerced_metadata(metadata: dict[str, Any], where: str) -> list[str]:
    unknown = [name for name in metadata if name not in _KNOWN]
    for name, part in list(metadata.items()):
        if name in unknown or part is None or part in ("", {}, []):
            # Go leaves out what is empty.
            del metadata[name]
        elif problem := _misfit(name, part):
            raise _unreadable(where, metadata, problem)
    return [f"{where}.{name}" for name in unknown]


def _misfit(name: str, value: Any) -> str:
    """What Go's decoder says about a value of the wrong type; empty when it is right."""
    wanted = _KNOWN[name]
    field = f"Go struct field ObjectMeta.{name}"
    match wanted:
        case "string" if not isinstance(value, str):
            return f"json: cannot unmarshal {_type_name(value)} into {field} of type {'types.UID' if name == 'uid' else wanted}"
        case "int64" if not isinstance(value, int) or isinstance(value, bool):
            shown = f"number {value}" if isinstance(value, float) else _type_name(value)
            return f"json: cannot unmarshal {shown} into {field} of type int64"
        case "time":
            return _time_misfit(value, field)
        case "map[string]string" if not isinstance(value, dict):
            return f"json: cannot unmarshal {_type_name(value)} into {field} of type {wanted}"
        case "map[string]string":
            wrong = [part for part in value.values() if not isinstance(part, str) and part is not None]
            return (
                f"json: cannot unmarshal {_type_name(wrong[0])} into {field} of type string" if wrong else ""
            )
        case "[]string" | "[]v1.OwnerReference" | "[]v1.ManagedFieldsEntry" if not isinstance(value, list):
            return f"json: cannot unmarshal {_type_name(value)} into {field} of type {wanted}"
    return ""


def _time_misfit(value: Any, field: str) -> str:
    if not isinstance(value, str):
        return f"json: cannot unmarshal {_type_name(value)} into {field} of type string"
    try:
        msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return f'parsing time {quoted(value)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted(value)} as "2006"'
    return ""


def _type_name(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def _unreadable(path: str, value: Any, detail: str) -> MetadataError:
    return MetadataError(str(Problem(ProblemKind.INVALID, path.removeprefix("."), value, detail)))


def validate_embedded(value: Any, node: Node | None, path: str = "", *, root: bool = False) -> list[Problem]:
    """What is wrong with kinds and metadata of embedded resources, here and below."""
    return list(_problems(value, node, path, root=root))


def _problems(value: Any, node: Node | None, path: str, *, root: bool = False) -> Iterator[Problem]:
    if node is None:
        return
    if isinstance(value, dict):
        if node.embedded or root:
            yield from _resource(value, f"{path}." if path else "")
        for name in sorted(value):
            child = node.properties.get(name)
            if child is not None:
                yield from _problems(value[name], child, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                yield from _problems(value[name], node.additional, f"{path}[{name}]")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _problems(part, node.items, f"{path}[{index}]")


def _resource(value: dict[str, Any], path: str) -> Iterator[Problem]:
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield Problem(ProblemKind.REQUIRED, f"{path}{name}")
    for name in ("apiVersion", "kind"):
        if name in value and (detail := _kind_mistake(name, value[name])):
            yield Problem(ProblemKind.INVALID, f"{path}{name}", value[name], detail)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        yield from _metadata(metadata, f"{path}metadata")


def _kind_mistake(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a string"
    if not value:
        return "must not be empty"
    if name == "apiVersion":
        return f"unexpected GroupVersion string: {value}" if value.count("/") > 1 else ""
    wrong = dns1035_label(value.lower())
    return f"may have mixed case, but should otherwise match: {','.join(wrong)}" if wrong else ""


def _metadata(metadata: dict[str, Any], path: str) -> Iterator[Problem]:
    for name, check in (("generateName", path_segment), ("name", path_segment), ("namespace", dns_label)):
        for detail in check(metadata[name]) if metadata.get(name) else ():
            yield Problem(ProblemKind.INVALID, f"{path}.{name}", metadata[name], detail)
    if metadata.get("generation", 0) < 0:
        detail = "must be greater than or equal to 0"
        yield Problem(ProblemKind.INVALID, f"{path}.generation", metadata["generation"], detail)
    yield from _labels(metadata.get("labels") or {}, f"{path}.labels")
    yield from _annotations(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from _owners(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    for finalizer in metadata.get("finalizers") or []:
        for detail in names.qualified_name(finalizer):
            yield Problem(ProblemKind.INVALID, f"{path}.finalizers", finalizer, detail)


def _labels(labels: dict[str, str], path: str) -> Iterator[Problem]:
    for key, text in sorted(labels.items()):
        for detail in names.qualified_name(key):
            yield Problem(ProblemKind.INVALID, path, key, detail)
        for detail in names.label_value(text or ""):
            yield Problem(ProblemKind.INVALID, path, text, detail)


def _annotations(annotations: dict[str, str], path: str) -> Iterator[Problem]:
    for key in sorted(annotations):
        for detail in names.qualified_name(key.lower()):
            yield Problem(ProblemKind.INVALID, path, key, detail)
    if (
        sum(len(key.encode()) + len((text or "").encode()) for key, text in annotations.items())
        > _ANNOTATIONS_LIMIT
    ):
        yield Problem(ProblemKind.TOO_LONG, path, "", f"may not be more than {_ANNOTATIONS_LIMIT} bytes")


def _owners(owners: list[dict[str, Any]], path: str) -> Iterator[Problem]:
    controllers = []
    for owner in owners:
        version = str(owner.get("apiVersion") or "").rpartition("/")[2]
        texts = (
            ("apiVersion", "version must not be empty", version),
            ("kind", "must not be empty", owner.get("kind")),
        )
        for name, detail, text in (
            *texts,
            *((name, detail, owner.get(name)) for name, detail in _OWNED_TEXTS),
        ):
            if not text:
                yield Problem(ProblemKind.INVALID, f"{path}.{name}", owner.get(name) or "", detail)
        if owner.get("controller") is True:
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
            if len(controllers) > 1:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controllers[0]} and {controllers[-1]}'
                )
                yield Problem(ProblemKind.INVALID, path, owners, detail)
