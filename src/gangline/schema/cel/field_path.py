"""`fieldPath` of a rule, the field that its message is about: `.spec.size`, `.labels['a.b']`."""

import re

from gangline.base.errors import InputError
from gangline.schema.nodes import SchemaNode

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_STRING_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class FieldPathError(InputError):
    """A text that is no path of the schema."""


def resolve_field_path(path: str, node: SchemaNode) -> str:
    """The path as Kubernetes writes it in messages. Raises `FieldPathError`."""
    result = ""
    tokens = _TOKEN.findall(path)
    index = 0
    current: SchemaNode | None = node
    while index < len(tokens):
        if current is None:
            raise FieldPathError("does not refer to a valid field")
        mark, name = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else None
        if mark not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {mark}")
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if mark == "[":
            name = _unquote(name)
            if tokens[index + 2 : index + 3] != ["]"]:
                raise FieldPathError("unexpected end of JSON path")
            index += 1
        index += 2
        result, current = _append_segment(result, name, current)
    return result


def _append_segment(prefix: str, name: str, node: SchemaNode) -> tuple[str, SchemaNode | None]:
    if node.properties:
        if name not in node.properties:
            raise FieldPathError("does not refer to a valid field")
        return f"{prefix}.{name}" if prefix else name, node.properties[name]
    if node.has_additional_properties:
        return f"{prefix}[{name}]", node.additional_properties
    raise FieldPathError("does not refer to a valid field")


def _unquote(mark: str) -> str:
    if len(mark) < 2 or mark[0] != "'" or mark[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {mark}")

    def unescape(match: re.Match[str]) -> str:
        if match[1] not in _STRING_ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {match[0]}")
        return _STRING_ESCAPES[match[1]]

    return re.sub(r"\\(.)", unescape, mark[1:-1], flags=re.DOTALL)
