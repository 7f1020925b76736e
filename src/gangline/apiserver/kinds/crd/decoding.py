"""Checks the parts of a CRD's schema that our type trees do not type, `items` and others, as Go's decoder does."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.errors import bad_request
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import type_errors
from gangline.schema.typed.types import TypeNode

_DECODE_ERROR_PREFIX = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
_OPEN_KEYWORDS = ("items", "additionalProperties")
"""Keywords that hold a schema, a list of schemas or a boolean."""

_KEYWORD_TYPES: dict[str, type] = {
    **dict.fromkeys(("type", "format", "pattern", "description", "title"), str),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), str),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "enum", "required", "x-kubernetes-validations"), list),
    **dict.fromkeys(("maxItems", "minItems", "maxLength", "minLength", "maxProperties"), int),
    "x-kubernetes-list-map-keys": list,
    "properties": dict,
}
"""The types of the keywords that validation reads."""
_NESTED_KEYWORDS = frozenset({*_OPEN_KEYWORDS, "not", "allOf", "anyOf", "oneOf", "properties"})


@cache
def _schema_type() -> TypeNode:
    node: TypeNode | None = builtin_type("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    for name in ("spec", "versions", "", "schema", "openAPIV3Schema"):
        assert node is not None
        node = node.field_type(name) if name else node.element
    assert node is not None
    return node


def normalize_crd_spec(spec: JSON) -> None:
    """Normalize a CRD's spec in place, as Go decodes it: null items become `{}`, unknown keywords are dropped.

    Raises `StatusError` (400).
    """
    for version in _fill_nulls(spec, "versions"):
        version.setdefault("name", "")
        if version.get("deprecated") is False:
            del version["deprecated"]
        _fill_nulls(version, "additionalPrinterColumns")
        _fill_nulls(version, "selectableFields")
        root = (version.get("schema") or {}).get("openAPIV3Schema")
        if isinstance(root, dict):
            _check_open_schemas(root)


def _fill_nulls(parent: JSON, name: str) -> list[JSON]:
    """The list in a field, with nulls replaced by empty objects in place, as Go reads them."""
    items = parent.get(name)
    if not isinstance(items, list):
        return []
    items[:] = [{} if item is None else item for item in items]
    return items


def _check_open_schemas(root: JSON) -> None:
    # Iterative, and with few checks per schema, because definitions are large: a pod template alone has some 1,400 schemas.
    known = _schema_type().fields.keys()
    pending: list[tuple[Any, JSON]] = [(root, root)]  # A schema, and the schema from which its errors are reported.
    while pending:
        part, host = pending.pop()
        if not isinstance(part, dict) or not _types_match(part) or not _rules_match(part):
            errors = type_errors(host, _schema_type())
            raise bad_request(_DECODE_ERROR_PREFIX + (errors[0] if errors else "a schema must be an object"))
        for name in part.keys() - known:
            del part[name]
        if _NESTED_KEYWORDS.isdisjoint(part):
            continue
        for name in _OPEN_KEYWORDS:
            inner = part.get(name)
            if isinstance(inner, dict):
                pending.append((inner, inner))
            elif inner is not None and not isinstance(inner, list | bool):
                del part[name]
        pending += [(inner, host) for inner in _subschemas(part)]


def _types_match(part: JSON) -> bool:
    for name, value in part.items():
        if name in _KEYWORD_TYPES and value is not None and not isinstance(value, _KEYWORD_TYPES[name]):
            return False
    return True


def _rules_match(part: JSON) -> bool:
    if not part.get("x-kubernetes-validations"):
        return True
    return all(isinstance(rule, dict) for rule in _fill_nulls(part, "x-kubernetes-validations"))


def _subschemas(part: JSON) -> Iterator[Any]:
    """The schemas directly inside, except those of open keywords. Nulls become empty schemas, as Go reads them."""
    if part.get("not") is not None:
        yield part["not"]
    for name in ("allOf", "anyOf", "oneOf"):
        yield from _fill_nulls(part, name)
    properties = part.get("properties") or {}
    for name, inner in properties.items():
        if inner is None:
            inner = properties[name] = {}
        yield inner
