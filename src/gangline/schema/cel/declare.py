"""Types of schemas: what `self` is to a rule, and how large it can get."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

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
from gangline.schema.structural.nodes import Node

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
_META = {name: Node(schema) for name, schema in META_SCHEMA.items()}


@lru_cache(maxsize=10_000)
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


class Declared:
    """A type together with sizes, for the estimate of costs. Lazy: a rule looks at little of a large schema."""

    def __init__(
        self,
        declared_type: Type,
        smallest: int | Callable[[], int],
        most: int | Callable[[], int],
        element: "Declared | None" = None,
        fields: "Mapping[str, Declared] | None" = None,
    ) -> None:
        self.type, self.element, self.fields = declared_type, element, fields
        self._smallest, self._most = smallest, most

    @cached_property
    def smallest(self) -> int:
        """Bytes of the shortest JSON."""
        return self._smallest if isinstance(self._smallest, int) else self._smallest()

    @cached_property
    def most(self) -> int:
        """Elements of a list or map, bytes of a text, at most; 0 for what has no size."""
        return self._most if isinstance(self._most, int) else self._most()


class _Fields(Mapping[str, Declared]):
    """The fields of an object as rules name them, declared when asked for."""

    def __init__(self, node: Node, name: str) -> None:
        self._node, self._name = node, name
        self._found: dict[str, Declared | None] = {}

    def __getitem__(self, known: str) -> Declared:
        if known not in self._found:
            self._found[known] = self._declared(known)
        found = self._found[known]
        if found is None:
            raise KeyError(known)
        return found

    def _declared(self, known: str) -> Declared | None:
        field = unescaped(known)
        part = self._node.properties.get(field) if field is not None else None
        if part is None or field is None or escaped(field) != known:
            return None
        return declared(part, f"{self._name}.{known}", root=part.embedded)

    def __iter__(self) -> Iterator[str]:
        return (known for field in self._node.properties if (known := escaped(field)) and known in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _FieldTypes(Mapping[str, Type]):
    """The types of fields."""

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields

    def __getitem__(self, known: str) -> Type:
        return self._fields[known].type

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def with_meta(node: Node) -> Node:
    """A resource as rules at its root see it: kind, apiVersion and names are always there."""
    properties = node.properties
    metadata = properties.get("metadata")
    wanted = (properties.get("kind"), properties.get("apiVersion"))
    names = [metadata.properties.get(name) if metadata else None for name in ("name", "generateName")]
    if all(part is not None and part.type == "string" for part in (*wanted, *names)):
        return node
    found = node.with_fields(_META)
    found.items = None
    return found


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
    size = _bound(node.schema.get("maxItems"), lambda: (LARGEST_REQUEST - 2) // (element.smallest + 1))
    return Declared(list_of(element.type), 2, size, element)


def _map(node: Node, name: str) -> Declared | None:
    assert node.additional is not None
    element = declared(node.additional, f"{name}.@elem", root=node.additional.embedded)
    if element is None:
        return None
    size = _bound(node.schema.get("maxProperties"), lambda: (LARGEST_REQUEST - 2) // (element.smallest + 6))
    return Declared(map_of(STRING, element.type), 2, size, element)


def _bound(most: int | None, otherwise: Callable[[], int]) -> int | Callable[[], int]:
    return max(most, 0) if most is not None else otherwise


def _object(node: Node, name: str) -> Declared:
    fields = _Fields(node, name)

    def smallest() -> int:
        return 2 + sum(
            _needed(field, part, name) for field, part in node.properties.items() if field in node.required
        )

    return Declared(Type("struct", (), name, _FieldTypes(fields)), smallest, 0, None, fields)


def _needed(field: str, part: Node, name: str) -> int:
    """Bytes that a required field takes at least."""
    found = (
        None if part.has_default else declared(part, f"{name}.{escaped(field) or field}", root=part.embedded)
    )
    return 0 if found is None else len(field.encode()) + found.smallest + 4


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
