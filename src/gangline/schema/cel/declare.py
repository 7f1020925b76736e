"""Types of schemas: what `self` is to a rule, and how large it can get."""

import re
from typing import Any

import msgspec

from gangline.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
)
from gangline.schema.node import Node

LARGEST_REQUEST = 3 * 1024 * 1024
_RESERVED_WORDS = (
    "true false null in as break const continue else for function if import let loop package namespace return"
    " var void while"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_META_TEXT = {"type": "string"}
META_SCHEMA: dict[str, Any] = {
    "kind": _META_TEXT,
    "apiVersion": _META_TEXT,
    "metadata": {"type": "object", "properties": {"name": _META_TEXT, "generateName": _META_TEXT}},
}


def escaped(name: str) -> str | None:
    """The name of a field in an expression: `x-y` is `x__dash__y`. None when it cannot be written."""
    if not name or name[0].isdigit() or re.search(r"[^a-zA-Z0-9_./-]", name):
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[-./]", lambda found: _ESCAPES[found[0]], name)


def unescaped(name: str) -> str | None:
    """The field an expression means. None when the escape is not one."""
    if "__" not in name:
        return name
    wrong = False

    def meant(found: re.Match[str]) -> str:
        nonlocal wrong
        inner = found[1]
        if inner in _UNESCAPES:
            return _UNESCAPES[inner]
        wrong = wrong or inner not in _RESERVED or found[0] != name
        return inner

    text = re.sub(r"__([^_]+)__", meant, name)
    return None if wrong else text


class Declared(msgspec.Struct, frozen=True, eq=False):
    """A type together with sizes, for the estimate of costs."""

    type: Type
    smallest: int
    """Bytes of the shortest JSON."""
    most: int
    """Elements of a list or map, bytes of a text, at most; 0 for what has no size."""
    element: "Declared | None" = None
    fields: "dict[str, Declared] | None" = None


def with_meta(node: Node) -> Node:
    """A resource as rules at its root see it: kind, apiVersion and names are always there."""
    properties = node.properties
    metadata = properties.get("metadata")
    wanted = (properties.get("kind"), properties.get("apiVersion"))
    names = [metadata.properties.get(name) if metadata else None for name in ("name", "generateName")]
    if all(part is not None and part.type == "string" for part in (*wanted, *names)):
        return node
    schema = {name: part for name, part in node.schema.items() if name != "items"}
    return Node({**schema, "properties": {**(node.schema.get("properties") or {}), **META_SCHEMA}})


def declared(node: Node, name: str, *, root: bool = False) -> Declared | None:
    """The type of a schema; None when rules cannot see it (nothing is known about what it holds)."""
    if node.int_or_string:
        most = _text_size(node) if node.schema.get("maxLength") is not None else LARGEST_REQUEST - 2
        return Declared(DYN, 1, most)
    if root:
        node = with_meta(node)
    match node.type:
        case "array":
            return _list(node, name)
        case "object":
            return _map(node, name) if node.additional is not None else _object(node, name)
        case "string":
            return _text(node)
        case "boolean":
            return Declared(BOOL, 4, 0)
        case "number":
            return Declared(DOUBLE, 1, 0)
        case "integer":
            return Declared(INT, 1, 0)
    return None


def _list(node: Node, name: str) -> Declared | None:
    element = declared(node.items, f"{name}.@idx", root=node.items.embedded) if node.items else None
    if element is None:
        return None
    most = node.schema.get("maxItems")
    size = max(most, 0) if most is not None else (LARGEST_REQUEST - 2) // (element.smallest + 1)
    return Declared(list_of(element.type), 2, size, element)


def _map(node: Node, name: str) -> Declared | None:
    assert node.additional is not None
    element = declared(node.additional, f"{name}.@elem", root=node.additional.embedded)
    if element is None:
        return None
    most = node.schema.get("maxProperties")
    size = max(most, 0) if most is not None else (LARGEST_REQUEST - 2) // (element.smallest + 6)
    return Declared(map_of(STRING, element.type), 2, size, element)


def _object(node: Node, name: str) -> Declared:
    fields: dict[str, Declared] = {}
    smallest = 2
    for field, part in node.properties.items():
        known = escaped(field)
        found = declared(part, f"{name}.{known or field}", root=part.embedded)
        if found is None:
            continue
        if known is not None:
            fields[known] = found
        if field in node.required and not part.has_default:
            smallest += len(field.encode()) + found.smallest + 4
    seen = {field: found.type for field, found in fields.items()}
    return Declared(Type("struct", (), name, seen), smallest, 0, None, fields)


def _text(node: Node) -> Declared:
    match node.format:
        case "byte":
            most = node.schema.get("maxLength")
            return Declared(BYTES, 2, LARGEST_REQUEST - 2 if most is None else max(most, 0))
        case "duration":
            return Declared(DURATION, 3, 32)
        case "date":
            return Declared(TIMESTAMP, 12, 12)
        case "date-time":
            return Declared(TIMESTAMP, 21, 32)
    return Declared(STRING, 2, _text_size(node))


def _text_size(node: Node) -> int:
    """Bytes at most. A letter may take four."""
    most = node.schema.get("maxLength")
    if most is not None:
        return int(max(most, 0)) * 4
    if node.enum:
        return max((len(one.encode()) for one in node.enum if isinstance(one, str)), default=0)
    return LARGEST_REQUEST - 2
