"""Defaulting: fills in the defaults of a structural schema."""

from typing import Any

from gangline.schema.nodes import SchemaNode
from gangline.schema.structural.pruning import prune


class DefaultFiller:
    """The defaults of one schema node and of all nodes inside. Nodes without defaults are skipped."""

    __slots__ = ("_element_filler", "_field_fillers", "_map_value_filler", "_node", "_own_defaults")

    def __init__(self, node: SchemaNode) -> None:
        self._node = node
        self._own_defaults = [(name, child) for name, child in node.properties.items() if child.has_default]
        for _, child in self._own_defaults:
            child.default = deep_copy(child.default)
            prune(child.default, child)
        self._field_fillers = {
            name: below for name, child in node.properties.items() if (below := default_filler(child)) is not None
        }
        self._map_value_filler = default_filler(node.additional_properties)
        self._element_filler = default_filler(node.items)

    def fill(self, value: Any) -> None:
        """Fill in defaults in place. Idempotent."""
        if value.__class__ is dict:
            self._fill_object(value)
        elif value.__class__ is list and self._node.items is not None:
            self._fill_list(value, self._node.items)

    def _fill_object(self, value: dict[str, Any]) -> None:
        for name, child in self._own_defaults:
            if name not in value or (value[name] is None and not child.nullable):
                value[name] = deep_copy(child.default)
        for name, below in self._field_fillers.items():
            if name in value:
                below.fill(value[name])
        if (additional := self._node.additional_properties) is not None:
            properties = self._node.properties
            for name, part in value.items():
                if name in properties:
                    continue
                if part is None and additional.has_default and not additional.nullable:
                    value[name] = part = deep_copy(additional.default)
                if self._map_value_filler is not None:
                    self._map_value_filler.fill(part)

    def _fill_list(self, value: list[Any], items: SchemaNode) -> None:
        for index, part in enumerate(value):
            if part is None and items.has_default and not items.nullable:
                value[index] = part = deep_copy(items.default)
            if self._element_filler is not None:
                self._element_filler.fill(part)

    @property
    def is_empty(self) -> bool:
        """Whether neither this node nor one inside has a default to fill in."""
        node = self._node
        inner = (node.additional_properties, node.items)
        return not (
            self._own_defaults
            or self._field_fillers
            or self._map_value_filler
            or self._element_filler
            or any(part is not None and part.has_default for part in inner)
        )


def default_filler(node: SchemaNode | None) -> DefaultFiller | None:
    """The filler of a node; None if there are no defaults to fill in."""
    if node is None or not node.has_defaults:
        return None
    filler = DefaultFiller(node)
    return None if filler.is_empty else filler


def deep_copy(value: Any) -> Any:
    """A copy of a JSON value that shares no part with it."""
    if value.__class__ is dict:
        return {name: deep_copy(part) for name, part in value.items()}
    if value.__class__ is list:
        return [deep_copy(part) for part in value]
    return value
