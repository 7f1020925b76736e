"""Fill in what a schema gives a default for."""

from typing import Any

from gangline.schema.structural.nodes import Node
from gangline.schema.structural.pruning import prune


class Defaults:
    """The defaults of one schema node and everything below, prepared so that parts without any are skipped."""

    __slots__ = ("_element", "_fields", "_here", "_map_value", "_node")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._here = [(name, child) for name, child in node.properties.items() if child.has_default]
        for _, child in self._here:
            child.default = copied(child.default)
            prune(child.default, child)
        self._fields = {
            name: below for name, child in node.properties.items() if (below := of(child)) is not None
        }
        self._map_value = of(node.additional)
        self._element = of(node.items)

    def fill(self, value: Any) -> None:
        """Fill in place. Idempotent."""
        if value.__class__ is dict:
            self._fill_object(value)
        elif value.__class__ is list and self._node.items is not None:
            self._fill_list(value, self._node.items)

    def _fill_object(self, value: dict[str, Any]) -> None:
        for name, child in self._here:
            if name not in value or (value[name] is None and not child.nullable):
                value[name] = copied(child.default)
        for name, below in self._fields.items():
            if name in value:
                below.fill(value[name])
        if (additional := self._node.additional) is not None:
            properties = self._node.properties
            for name, part in value.items():
                if name in properties:
                    continue
                if part is None and additional.has_default and not additional.nullable:
                    value[name] = part = copied(additional.default)
                if self._map_value is not None:
                    self._map_value.fill(part)

    def _fill_list(self, value: list[Any], items: Node) -> None:
        for index, part in enumerate(value):
            if part is None and items.has_default and not items.nullable:
                value[index] = part = copied(items.default)
            if self._element is not None:
                self._element.fill(part)

    @property
    def empty(self) -> bool:
        """Nothing to do here or below."""
        node = self._node
        inner = (node.additional, node.items)
        return not (
            self._here
            or self._fields
            or self._map_value
            or self._element
            or any(part is not None and part.has_default for part in inner)
        )


def of(node: Node | None) -> Defaults | None:
    """The defaults of a node; None when there are none."""
    if node is None or not node.has_defaults:
        return None
    found = Defaults(node)
    return None if found.empty else found


def copied(value: Any) -> Any:
    """A JSON value of its own."""
    if value.__class__ is dict:
        return {name: copied(part) for name, part in value.items()}
    if value.__class__ is list:
        return [copied(part) for part in value]
    return value
