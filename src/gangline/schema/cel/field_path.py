"""Paths that a rule names as the place of its complaint: `.spec.size`, `.labels['a.b']`."""

import re

from gangline.base.errors import InputError
from gangline.schema.structural.nodes import Node

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class FieldPathError(InputError):
    """Not a path of this schema."""


def field_path(path: str, node: Node) -> str:
    """The path as Kubernetes spells it in errors. Raises `FieldPathError`."""
    built = ""
    tokens = _TOKEN.findall(path)
    at = 0
    current: Node | None = node
    while at < len(tokens):
        if current is None:
            raise FieldPathError("does not refer to a valid field")
        mark, name = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
        if mark not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {mark}")
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if mark == "[":
            name = _unquoted(name)
            if tokens[at + 2 : at + 3] != ["]"]:
                raise FieldPathError("unexpected end of JSON path")
            at += 1
        at += 2
        built, current = _step(built, name, current)
    return built


def _step(built: str, name: str, node: Node) -> tuple[str, Node | None]:
    if node.properties:
        if name not in node.properties:
            raise FieldPathError("does not refer to a valid field")
        return f"{built}.{name}" if built else name, node.properties[name]
    if node.open:
        return f"{built}[{name}]", node.additional
    raise FieldPathError("does not refer to a valid field")


def _unquoted(mark: str) -> str:
    if len(mark) < 2 or mark[0] != "'" or mark[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {mark}")

    def meant(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {found[0]}")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", meant, mark[1:-1], flags=re.DOTALL)
