"""A schema of a custom resource, read once into a tree of nodes with plain attributes."""

from typing import Any

from gangline.schema.formats import Check, check_of
from gangline.schema.regex import Pattern, PatternError, compiled

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_NOTHING: dict[str, Any] = {}


class Node:
    """One level of a schema. What a schema does not say is empty, None or False here."""

    def __init__(self, schema: dict[str, Any]) -> None:
        said = schema.get
        self.schema = schema
        self.type: str = said("type") or ""
        self.nullable: bool = bool(said("nullable"))
        self.has_default = said("default") is not None
        self.default: Any = said("default")
        self.properties = {name: Node(part) for name, part in (said("properties") or _NOTHING).items()}
        more = said("additionalProperties")
        self.additional = Node(more) if isinstance(more, dict) else None
        """The schema of values of a map; None when there is none, or only a yes or no."""
        self.open = more is not None
        """Whether additionalProperties is said at all."""
        self.closed = more is False
        items = said("items")
        self.items = Node(items) if isinstance(items, dict) else None
        self.preserve: bool = bool(said("x-kubernetes-preserve-unknown-fields"))
        self.embedded: bool = bool(said("x-kubernetes-embedded-resource"))
        self.int_or_string: bool = bool(said("x-kubernetes-int-or-string"))
        self.list_type: str = said("x-kubernetes-list-type") or ""
        self.list_keys: tuple[str, ...] = tuple(said("x-kubernetes-list-map-keys") or ())
        self.map_type: str = said("x-kubernetes-map-type") or ""
        self.rules: list[dict[str, Any]] = said("x-kubernetes-validations") or []
        self._read_values(schema)

    def _read_values(self, schema: dict[str, Any]) -> None:
        said = schema.get
        self.types = ("integer", "string") if self.int_or_string else (self.type,) if self.type else ()
        self.format: str = said("format") or ""
        self.format_check: Check | None = check_of(self.format) if self.format else None
        self.required: list[str] = said("required") or []
        self.enum: list[Any] = said("enum") or []
        self.all_of = [Node(part) for part in said("allOf") or ()]
        self.any_of = [Node(part) for part in said("anyOf") or ()]
        self.one_of = [Node(part) for part in said("oneOf") or ()]
        self.not_ = Node(schema["not"]) if said("not") is not None else None
        self.pattern: str = said("pattern") or ""

    def field(self, name: str) -> "Node | None":
        """The schema of a field or of a value of a map."""
        return self.properties.get(name) or self.additional

    def regex(self) -> Pattern | PatternError:
        """The pattern, or what is wrong with it."""
        try:
            return compiled(self.pattern)
        except PatternError as error:
            return error
