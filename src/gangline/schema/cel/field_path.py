"""Paths that a rule names as the place of its complaint: `.spec.size`, `.labels['a.b']`."""

import re

from gangline.base.errors import InputError
from gangline.schema.nodes import SchemaNode

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_STRING_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "'": "'",
    "\\": "\\",
}


class FieldPathError(InputError):
    """Not a path of this schema."""


def resolve_field_path(path: str, node: SchemaNode) -> str:
    """The path as Kubernetes spells it in errors. Raises `FieldPathError`."""
    built = ""
    tokens = _TOKEN.findall(path)
    at = 0
    current: SchemaNode | None = node
    while at < len(tokens):
        if current is None:
            raise FieldPathError("does not refer to a valid field")
        mark, name = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
        if mark not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {mark}")
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if mark == "[":
            name = _unquote(name)
            if tokens[at + 2 : at + 3] != ["]"]:
                raise FieldPathError("unexpected end of JSON path")
            at += 1
        at += 2
        built, current = _append_segment(built, name, current)
    return built


def _append_segment(built: str, name: str, node: SchemaNode) -> tuple[str, SchemaNode | None]:
    if node.properties:
        if name not in node.properties:
            raise FieldPathError("does not refer to a valid field")
        return f"{built}.{name}" if built else name, node.properties[name]
    if node.has_additional_properties:
        return f"{built}[{name}]", node.additional_properties
    raise FieldPathError("does not refer to a valid field")


def _unquote(mark: str) -> str:
    if len(mark) < 2 or mark[0] != "'" or mark[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {mark}")

    def meant(found: re.Match[str]) -> str:
        if found[1] not in _STRING_ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {found[0]}")
        return _STRING_ESCAPES[found[1]]

    return re.sub(r"\\(.)", meant, mark[1:-1], flags=re.DOTALL)
