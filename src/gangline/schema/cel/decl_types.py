"""CEL types of schemas: the type of `self` in a rule, and how large its values can be."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from gangline.schema.cel import types
from gangline.schema.nodes import SchemaNode

MAX_REQUEST_BYTES = 3 * 1024 * 1024
_RESERVED_WORDS = (
    "true false null in as break const continue else for function if import let loop package namespace return"
    " var void while"
)
_RESERVED_SYMBOLS = frozenset(_RESERVED_WORDS.split())
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_STRING_SCHEMA = {"type": "string"}
OBJECT_META_SCHEMA: dict[str, Any] = {
    "kind": _STRING_SCHEMA,
    "apiVersion": _STRING_SCHEMA,
    "metadata": {"type": "object", "properties": {"name": _STRING_SCHEMA, "generateName": _STRING_SCHEMA}},
}
_OBJECT_META_NODES = {name: SchemaNode(schema) for name, schema in OBJECT_META_SCHEMA.items()}


@lru_cache(maxsize=10_000)
def escaped_name(name: str) -> str | None:
    """The name of a field in an expression: `x__dash__y` for `x-y`. None when the name cannot be written."""
    if not name or name[0].isdigit() or re.search(r"[^a-zA-Z0-9_./-]", name):
        return None
    if name in _RESERVED_SYMBOLS:
        return f"__{name}__"
    return re.sub(r"__|[-./]", lambda found: _ESCAPES[found[0]], name)


def unescaped_name(name: str) -> str | None:
    """The field that a name in an expression stands for. None for an invalid escape."""
    if "__" not in name:
        return name
    invalid = False

    def unescape(match: re.Match[str]) -> str:
        nonlocal invalid
        inner = match[1]
        if inner in _UNESCAPES:
            return _UNESCAPES[inner]
        invalid = invalid or inner not in _RESERVED_SYMBOLS or match[0] != name
        return inner

    text = re.sub(r"__([^_]+)__", unescape, name)
    return None if invalid else text


class DeclType:
    """A type with sizes, for cost estimates. Lazy, because a rule uses little of a large schema."""

    def __init__(
        self,
        declared_type: types.CelType,
        smallest: int | Callable[[], int],
        most: int | Callable[[], int],
        element: "DeclType | None" = None,
        fields: "Mapping[str, DeclType] | None" = None,
    ) -> None:
        self.type, self.element, self.fields = declared_type, element, fields
        self._min_serialized_size, self._max_elements = smallest, most

    @cached_property
    def min_serialized_size(self) -> int:
        """The length of the shortest JSON of this type in bytes."""
        return self._min_serialized_size if isinstance(self._min_serialized_size, int) else self._min_serialized_size()

    @cached_property
    def max_elements(self) -> int:
        """The most elements of a list or map, or bytes of a string; 0 for types without a size."""
        return self._max_elements if isinstance(self._max_elements, int) else self._max_elements()


class _DeclFields(Mapping[str, DeclType]):
    """The fields of an object by their names in rules, declared on first use."""

    def __init__(self, node: SchemaNode, name: str) -> None:
        self._node, self._name = node, name
        self._cache: dict[str, DeclType | None] = {}

    def __getitem__(self, name: str) -> DeclType:
        if name not in self._cache:
            self._cache[name] = self._field_decl(name)
        declared = self._cache[name]
        if declared is None:
            raise KeyError(name)
        return declared

    def _field_decl(self, name: str) -> DeclType | None:
        field = unescaped_name(name)
        part = self._node.properties.get(field) if field is not None else None
        if part is None or field is None or escaped_name(field) != name:
            return None
        return decl_type(part, f"{self._name}.{name}", root=part.embedded)

    def __iter__(self) -> Iterator[str]:
        return (name for field in self._node.properties if (name := escaped_name(field)) and name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _FieldTypes(Mapping[str, types.CelType]):
    """The CEL types of the fields of an object."""

    def __init__(self, fields: _DeclFields) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> types.CelType:
        return self._fields[name].type

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def with_object_meta(node: SchemaNode) -> SchemaNode:
    """A resource as rules at its root see it: always with kind, apiVersion, name and generateName."""
    properties = node.properties
    metadata = properties.get("metadata")
    type_meta = (properties.get("kind"), properties.get("apiVersion"))
    names = [metadata.properties.get(name) if metadata else None for name in ("name", "generateName")]
    if all(part is not None and part.type == "string" for part in (*type_meta, *names)):
        return node
    extended = node.with_properties(_OBJECT_META_NODES)
    extended.items = None
    return extended


def decl_type(node: SchemaNode, name: str, *, root: bool = False) -> DeclType | None:
    """The type of a schema; None when rules cannot access the values because their type is unknown."""
    if node.int_or_string:
        most = _max_text_bytes(node) if node.schema.get("maxLength") is not None else MAX_REQUEST_BYTES - 2
        return DeclType(types.DYN, 1, most)
    if root:
        node = with_object_meta(node)
    match node.type:
        case "array":
            return _list_decl(node, name)
        case "object":
            return _map_decl(node, name) if node.additional_properties is not None else _object_decl(node, name)
        case "string":
            return _text_decl(node)
        case "boolean":
            return DeclType(types.BOOL, 4, 0)
        case "number":
            return DeclType(types.DOUBLE, 1, 0)
        case "integer":
            return DeclType(types.INT, 1, 0)
    return None


def _list_decl(node: SchemaNode, name: str) -> DeclType | None:
    element = decl_type(node.items, f"{name}.@idx", root=node.items.embedded) if node.items else None
    if element is None:
        return None
    size = _max_elements(
        node.schema.get("maxItems"), lambda: (MAX_REQUEST_BYTES - 2) // (element.min_serialized_size + 1)
    )
    return DeclType(types.list_type(element.type), 2, size, element)


def _map_decl(node: SchemaNode, name: str) -> DeclType | None:
    assert node.additional_properties is not None
    element = decl_type(node.additional_properties, f"{name}.@elem", root=node.additional_properties.embedded)
    if element is None:
        return None
    size = _max_elements(
        node.schema.get("maxProperties"), lambda: (MAX_REQUEST_BYTES - 2) // (element.min_serialized_size + 6)
    )
    return DeclType(types.map_type(types.STRING, element.type), 2, size, element)


def _max_elements(most: int | None, otherwise: Callable[[], int]) -> int | Callable[[], int]:
    return max(most, 0) if most is not None else otherwise


def _object_decl(node: SchemaNode, name: str) -> DeclType:
    fields = _DeclFields(node, name)

    def smallest() -> int:
        return 2 + sum(
            _required_field_size(field, part, name) for field, part in node.properties.items() if field in node.required
        )

    return DeclType(types.CelType("struct", (), name, _FieldTypes(fields)), smallest, 0, None, fields)


def _required_field_size(field: str, part: SchemaNode, name: str) -> int:
    """The least number of bytes that a required field takes."""
    declared = (
        None if part.has_default else decl_type(part, f"{name}.{escaped_name(field) or field}", root=part.embedded)
    )
    return 0 if declared is None else len(field.encode()) + declared.min_serialized_size + 4


# The type of a text in this format, and its least and most bytes.
_TIME_FORMATS = {
    "duration": (types.DURATION, 3, 32),
    "date": (types.TIMESTAMP, 12, 12),
    "date-time": (types.TIMESTAMP, 21, 32),
}


def _text_decl(node: SchemaNode) -> DeclType:
    if node.format == "byte":
        most = node.schema.get("maxLength")
        return DeclType(types.BYTES, 2, MAX_REQUEST_BYTES - 2 if most is None else max(most, 0))
    if node.format in _TIME_FORMATS:
        return DeclType(*_TIME_FORMATS[node.format])
    return DeclType(types.STRING, 2, _max_text_bytes(node))


def _max_text_bytes(node: SchemaNode) -> int:
    """The most bytes of a string. A character may take four."""
    most = node.schema.get("maxLength")
    if most is not None:
        return int(max(most, 0)) * 4
    if node.enum:
        return max((len(value.encode()) for value in node.enum if isinstance(value, str)), default=0)
    return MAX_REQUEST_BYTES - 2
