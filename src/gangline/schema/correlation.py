"""Old values beside new ones, node by node, to tell changed values from unchanged ones."""

from typing import Any

from gangline.schema.nodes import SchemaNode

_SCALAR_KEY_TYPES = (bool, int, float, str)


class CorrelatedValue:
    """A value and the value that it replaces, both of the same schema node."""

    __slots__ = ("_children", "_is_unchanged", "_old_by_key", "new", "node", "old")

    def __init__(self, new: Any, old: Any, node: SchemaNode) -> None:
        self.new, self.old, self.node = new, old, node
        self._children: dict[str | int, CorrelatedValue] = {}
        self._old_by_key: dict[object, Any] | None = None
        self._is_unchanged: bool | None = None

    def field(self, name: str) -> "CorrelatedValue | None":
        """The pair of a field; None if the new or old object lacks it or the schema does not name it."""
        if name in self._children:
            return self._children[name]
        if not (isinstance(self.old, dict) and isinstance(self.new, dict)):
            return None
        child = self.node.field(name)
        if child is None or name not in self.old or name not in self.new:
            return None
        pair = self._children[name] = CorrelatedValue(self.new[name], self.old[name], child)
        return pair

    def item(self, index: int) -> "CorrelatedValue | None":
        """The pair of an element; None if it has no old element. Only list maps identify their elements."""
        if index in self._children:
            return self._children[index]
        if not isinstance(self.new, list) or index >= len(self.new) or self.node.items is None:
            return None
        old = self._old_item(self.new[index])
        if old is None:
            return None
        pair = self._children[index] = CorrelatedValue(self.new[index], old, self.node.items)
        return pair

    def _old_item(self, element: Any) -> Any:
        if self.node.list_type != "map" or not isinstance(self.old, list):
            return None
        if self._old_by_key is None:
            self._old_by_key = elements_by_key(self.old, self.node)
        return self._old_by_key.get(list_map_key(element, self.node))

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing changed. List maps are compared by key, all other values as they are."""
        if self._is_unchanged is None:
            self._is_unchanged = self._compare()
        return self._is_unchanged

    def _compare(self) -> bool:
        new, old = self.new, self.old
        if isinstance(new, dict) and isinstance(old, dict):
            if len(new) != len(old):
                return False
            pairs = [self.field(name) for name in new]
            return all(pair is not None and pair.is_unchanged for pair in pairs)
        if isinstance(new, list) and isinstance(old, list):
            if len(new) != len(old):
                return False
            pairs = [self.item(index) for index in range(len(new))]
            if self._old_by_key is None:
                return json_equal(new, old)
            return all(pair is not None and pair.is_unchanged for pair in pairs)
        return json_equal(new, old)


def json_equal(left: Any, right: Any) -> bool:
    """Equal as Go compares JSON: 1, 1.0 and true are three different values."""
    if left.__class__ is not right.__class__:
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            name in right and json_equal(part, right[name]) for name, part in left.items()
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


def list_map_key(element: Any, node: SchemaNode) -> object:
    """The key of an element of a list map; None if a part of the key is missing or not a scalar."""
    if not isinstance(element, dict):
        return None
    parts = tuple((element.get(name).__class__, element.get(name)) for name in node.list_keys)
    return parts if all(issubclass(kind, _SCALAR_KEY_TYPES) for kind, _ in parts) else None


def elements_by_key(elements: list[Any], node: SchemaNode) -> dict[object, Any]:
    """The elements of a list map by key; of several with one key, the first."""
    by_key: dict[object, Any] = {}
    if node.type == "array" and node.list_type == "map" and node.list_keys:
        for element in elements:
            if (key := list_map_key(element, node)) is not None:
                by_key.setdefault(key, element)
    return by_key
