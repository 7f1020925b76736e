"""Drop what a schema does not name, and nulls where it has no use for them."""

from typing import Any

from gangline.schema.structural.nodes import META_FIELDS, Node


class Pruner:
    """What to drop at one place of an object and below, prepared once per schema."""

    __slots__ = ("_element", "_fields", "_keeps", "_others", "drops_null")

    def __init__(
        self, node: Node | None, *, root: bool = False, nulls: bool = False, keeps: bool = False
    ) -> None:
        """Without a node everything goes. `nulls`: drop those too. `keeps`: keep what is unknown, whatever the node says."""
        self.drops_null = nulls and node is not None and not node.nullable and not node.has_default
        self._keeps = keeps or (node is not None and node.preserve)
        self._fields: dict[str, Pruner] = {}
        self._others: Pruner | None = None
        self._element: Pruner | None = None
        if node is None:
            return
        self._fields = {name: Pruner(part, nulls=nulls) for name, part in node.properties.items()}
        if root or node.embedded:
            self._fields |= dict.fromkeys(META_FIELDS, _KEEP)
        if node.open:
            self._others = Pruner(node.additional, nulls=nulls)
        if node.items is not None:
            self._element = Pruner(node.items, nulls=nulls, keeps=self._keeps)

    def walk(self, value: Any) -> list[str]:
        """Drop, in place. Returns the paths of what was unknown, unsorted."""
        if value.__class__ is dict:
            return self._walk_object(value)
        return self._walk_list(value) if value.__class__ is list else []

    def _walk_object(self, value: dict[str, Any]) -> list[str]:
        fields, others = self._fields, self._others
        dropped: list[str] = []
        unknown: list[str] = []
        nulls: list[str] = []
        for name, part in value.items():
            below = fields.get(name, others)
            if below is None:
                if not self._keeps:
                    unknown.append(name)
            elif part.__class__ is dict or part.__class__ is list:
                if found := below.walk(part):
                    dropped += [_joined(name, path) for path in found]
            elif part is None and below.drops_null:
                nulls.append(name)
        for name in (*unknown, *nulls):
            del value[name]
        return dropped + unknown if unknown else dropped

    def _walk_list(self, value: list[Any]) -> list[str]:
        below = self._element
        if below is None:
            if self._keeps:
                return []
            below = _DROP
        dropped: list[str] = []
        for index, part in enumerate(value):
            if (part.__class__ is dict or part.__class__ is list) and (found := below.walk(part)):
                dropped += [_joined(f"[{index}]", path) for path in found]
        return dropped


_KEEP = Pruner(None, keeps=True)
_DROP = Pruner(None)


def prune(value: Any, node: Node | None, *, root: bool = False) -> list[str]:
    """Drop unknown fields in place, once. Returns their paths, sorted.

    At the root, and in embedded resources, apiVersion, kind and metadata stay whole.
    """
    return sorted(Pruner(node, root=root).walk(value))


def _joined(parent: str, path: str) -> str:
    return f"{parent}{path}" if path.startswith("[") else f"{parent}.{path}"
