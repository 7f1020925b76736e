"""A schema of a custom resource, read once into a tree of nodes with plain attributes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gangline.schema.formats import Check, check_of
from gangline.schema.regex import Pattern, PatternError, compiled

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_EITHER = ("integer", "string")


class Node:
    """One level of a schema. What a schema does not say is empty, None or False here.

    Most nodes say one thing, their type; so what is said is read, rather than all that could be. What is empty is
    shared by all nodes, and must not be changed.
    """

    type: str = ""
    types: tuple[str, ...] = ()
    nullable: bool = False
    has_default: bool = False
    default: Any = None
    properties: "Mapping[str, Node]" = MappingProxyType({})
    additional: "Node | None" = None
    """The schema of values of a map; None when there is none, or only a yes or no."""
    open: bool = False
    """Whether additionalProperties is said at all."""
    closed: bool = False
    items: "Node | None" = None
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    rules: "list[dict[str, Any]]" = []
    format: str = ""
    format_check: Check | None = None
    required: "list[str]" = []
    enum: "list[Any]" = []
    all_of: "list[Node]" = []
    any_of: "list[Node]" = []
    one_of: "list[Node]" = []
    not_: "Node | None" = None
    pattern: str = ""
    has_rules: bool = False
    """Whether there are rules here or below."""
    has_embedded: bool = False
    """Whether there are embedded resources here or below."""
    has_defaults: bool = False
    """Whether there are defaults here or below."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        for keyword, value in schema.items():
            if value is not None and (read := _READ.get(keyword)) is not None:
                read(self, value)
        if self.int_or_string:
            self.types = _EITHER
        elif self.type:
            self.types = (self.type,)
        self._sum_up()

    def _sum_up(self) -> None:
        has_rules, has_embedded, has_defaults = bool(self.rules), self.embedded, self.has_default
        parts = [*self.properties.values()]
        parts += [part for part in (self.additional, self.items) if part is not None]
        for part in parts:
            has_rules |= part.has_rules
            has_embedded |= part.has_embedded
            has_defaults |= part.has_defaults
        self.has_rules, self.has_embedded, self.has_defaults = has_rules, has_embedded, has_defaults

    def field(self, name: str) -> "Node | None":
        """The schema of a field or of a value of a map."""
        return self.properties.get(name) or self.additional

    def with_fields(self, more: "Mapping[str, Node]") -> "Node":
        """This node with more fields, or others; what it has below is shared."""
        found = Node.__new__(Node)
        found.__dict__.update(self.__dict__)
        found.properties = {**self.properties, **more}
        found.schema = {
            **self.schema,
            "properties": {
                **(self.schema.get("properties") or {}),
                **{name: part.schema for name, part in more.items()},
            },
        }
        return found

    def regex(self) -> Pattern | PatternError:
        """The pattern, or what is wrong with it."""
        try:
            return compiled(self.pattern)
        except PatternError as error:
            return error


_Read = Callable[[Node, Any], None]


def _attribute(name: str, kind: Callable[[Any], Any]) -> _Read:
    def read(node: Node, value: Any) -> None:
        setattr(node, name, kind(value))

    return read


def _as_is(value: Any) -> Any:
    return value


def _nodes(parts: list[dict[str, Any]]) -> list[Node]:
    return [Node(part) for part in parts]


def _type(node: Node, value: Any) -> None:
    node.type = value


def _default(node: Node, value: Any) -> None:
    node.has_default, node.default = True, value


def _properties(node: Node, value: Any) -> None:
    node.properties = {name: Node(part) for name, part in value.items()}


def _additional(node: Node, value: Any) -> None:
    node.open, node.closed = True, value is False
    node.additional = Node(value) if isinstance(value, dict) else None


def _items(node: Node, value: Any) -> None:
    node.items = Node(value) if isinstance(value, dict) else None


def _format(node: Node, value: Any) -> None:
    node.format = value
    node.format_check = check_of(value) if value else None


_READ: dict[str, _Read] = {
    "type": _type,
    "nullable": _attribute("nullable", bool),
    "default": _default,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "x-kubernetes-preserve-unknown-fields": _attribute("preserve", bool),
    "x-kubernetes-embedded-resource": _attribute("embedded", bool),
    "x-kubernetes-int-or-string": _attribute("int_or_string", bool),
    "x-kubernetes-list-type": _attribute("list_type", _as_is),
    "x-kubernetes-list-map-keys": _attribute("list_keys", tuple),
    "x-kubernetes-map-type": _attribute("map_type", _as_is),
    "x-kubernetes-validations": _attribute("rules", _as_is),
    "format": _format,
    "required": _attribute("required", _as_is),
    "enum": _attribute("enum", _as_is),
    "allOf": _attribute("all_of", _nodes),
    "anyOf": _attribute("any_of", _nodes),
    "oneOf": _attribute("one_of", _nodes),
    "not": _attribute("not_", Node),
    "pattern": _attribute("pattern", _as_is),
}
