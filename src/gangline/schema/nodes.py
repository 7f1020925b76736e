"""The schema of a custom resource as a tree of nodes with plain attributes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gangline.schema.formats import FormatPredicate, format_predicate
from gangline.schema.regex import PatternError, Re2Pattern, compile_pattern

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_INT_OR_STRING_TYPES = ("integer", "string")


class SchemaNode:
    """One level of a schema. Keywords that the schema does not have are empty, None or False.

    Most nodes have one keyword, their type, so only present keywords are read. Empty defaults are shared by all nodes
    and must not be changed.
    """

    type: str = ""
    types: tuple[str, ...] = ()
    nullable: bool = False
    has_default: bool = False
    default: Any = None
    properties: "Mapping[str, SchemaNode]" = MappingProxyType({})
    additional_properties: "SchemaNode | None" = None
    """The schema of the values of a map; None without one, or with a boolean."""
    has_additional_properties: bool = False
    """Whether `additionalProperties` is present."""
    rejects_additional: bool = False
    items: "SchemaNode | None" = None
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    rules: "list[dict[str, Any]]" = []
    format: str = ""
    format_check: FormatPredicate | None = None
    required: "list[str]" = []
    enum: "list[Any]" = []
    all_of: "list[SchemaNode]" = []
    any_of: "list[SchemaNode]" = []
    one_of: "list[SchemaNode]" = []
    not_: "SchemaNode | None" = None
    pattern: str = ""
    has_rules: bool = False
    """Whether this node or one inside has rules."""
    has_embedded: bool = False
    """Whether this node or one inside is an embedded resource."""
    has_defaults: bool = False
    """Whether this node or one inside has a default."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        for keyword, value in schema.items():
            if value is not None and (read := _KEYWORD_READERS.get(keyword)) is not None:
                read(self, value)
        if self.int_or_string:
            self.types = _INT_OR_STRING_TYPES
        elif self.type:
            self.types = (self.type,)
        self._summarize_children()

    def _summarize_children(self) -> None:
        has_rules, has_embedded, has_defaults = bool(self.rules), self.embedded, self.has_default
        parts = [*self.properties.values()]
        parts += [part for part in (self.additional_properties, self.items) if part is not None]
        for part in parts:
            has_rules |= part.has_rules
            has_embedded |= part.has_embedded
            has_defaults |= part.has_defaults
        self.has_rules, self.has_embedded, self.has_defaults = has_rules, has_embedded, has_defaults

    def field(self, name: str) -> "SchemaNode | None":
        """The schema of a field or of a map value; None without one."""
        return self.properties.get(name) or self.additional_properties

    def with_properties(self, properties: "Mapping[str, SchemaNode]") -> "SchemaNode":
        """This node with added or replaced fields. Both nodes share what is inside."""
        extended = SchemaNode.__new__(SchemaNode)
        extended.__dict__.update(self.__dict__)
        extended.properties = {**self.properties, **properties}
        extended.schema = {
            **self.schema,
            "properties": {
                **(self.schema.get("properties") or {}),
                **{name: part.schema for name, part in properties.items()},
            },
        }
        return extended

    def compiled_pattern(self) -> Re2Pattern | PatternError:
        """The compiled pattern, or the error of an invalid one."""
        try:
            return compile_pattern(self.pattern)
        except PatternError as error:
            return error


_KeywordReader = Callable[[SchemaNode, Any], None]


def _attribute_reader(name: str, kind: Callable[[Any], Any]) -> _KeywordReader:
    def read(node: SchemaNode, value: Any) -> None:
        setattr(node, name, kind(value))

    return read


def _identity(value: Any) -> Any:
    return value


def _nodes_from(parts: list[dict[str, Any]]) -> list[SchemaNode]:
    return [SchemaNode(part) for part in parts]


def _read_type(node: SchemaNode, value: Any) -> None:
    node.type = value


def _read_default(node: SchemaNode, value: Any) -> None:
    node.has_default, node.default = True, value


def _read_properties(node: SchemaNode, value: Any) -> None:
    node.properties = {name: SchemaNode(part) for name, part in value.items()}


def _read_additional(node: SchemaNode, value: Any) -> None:
    node.has_additional_properties, node.rejects_additional = True, value is False
    node.additional_properties = SchemaNode(value) if isinstance(value, dict) else None


def _read_items(node: SchemaNode, value: Any) -> None:
    node.items = SchemaNode(value) if isinstance(value, dict) else None


def _read_format(node: SchemaNode, value: Any) -> None:
    node.format = value
    node.format_check = format_predicate(value) if value else None


_KEYWORD_READERS: dict[str, _KeywordReader] = {
    "type": _read_type,
    "nullable": _attribute_reader("nullable", bool),
    "default": _read_default,
    "properties": _read_properties,
    "additionalProperties": _read_additional,
    "items": _read_items,
    "x-kubernetes-preserve-unknown-fields": _attribute_reader("preserve", bool),
    "x-kubernetes-embedded-resource": _attribute_reader("embedded", bool),
    "x-kubernetes-int-or-string": _attribute_reader("int_or_string", bool),
    "x-kubernetes-list-type": _attribute_reader("list_type", _identity),
    "x-kubernetes-list-map-keys": _attribute_reader("list_keys", tuple),
    "x-kubernetes-map-type": _attribute_reader("map_type", _identity),
    "x-kubernetes-validations": _attribute_reader("rules", _identity),
    "format": _read_format,
    "required": _attribute_reader("required", _identity),
    "enum": _attribute_reader("enum", _identity),
    "allOf": _attribute_reader("all_of", _nodes_from),
    "anyOf": _attribute_reader("any_of", _nodes_from),
    "oneOf": _attribute_reader("one_of", _nodes_from),
    "not": _attribute_reader("not_", SchemaNode),
    "pattern": _attribute_reader("pattern", _identity),
}
