"""Pruning: drops fields that a structural schema does not name, and nulls that it does not allow."""

from typing import Any

from gangline.schema.nodes import META_FIELDS, SchemaNode


class Pruner:
    """What to drop from one value and all values inside, prepared once per schema."""

    __slots__ = ("_additional", "_element", "_fields", "_keeps_unknown", "drops_null")

    def __init__(
        self, node: SchemaNode | None, *, root: bool = False, nulls: bool = False, keeps: bool = False
    ) -> None:
        """Without a node everything is dropped. `nulls`: drop nulls, too. `keeps`: keep unknown fields in any case."""
        self.drops_null = nulls and node is not None and not node.nullable and not node.has_default
        self._keeps_unknown = keeps or (node is not None and node.preserve)
        self._fields: dict[str, Pruner] = {}
        self._additional: Pruner | None = None
        self._element: Pruner | None = None
        if node is None:
            return
        self._fields = {name: Pruner(part, nulls=nulls) for name, part in node.properties.items()}
        if root or node.embedded:
            self._fields |= dict.fromkeys(META_FIELDS, _KEEP_ALL)
        if node.has_additional_properties:
            self._additional = Pruner(node.additional_properties, nulls=nulls)
        if node.items is not None:
            self._element = Pruner(node.items, nulls=nulls, keeps=self._keeps_unknown)

    def prune(self, value: Any) -> list[str]:
        """Prune in place. Returns the paths of unknown fields, unsorted."""
        if value.__class__ is dict:
            return self._prune_object(value)
        return self._prune_list(value) if value.__class__ is list else []

    def _prune_object(self, value: dict[str, Any]) -> list[str]:
        fields, others = self._fields, self._additional
        dropped: list[str] = []
        unknown: list[str] = []
        nulls: list[str] = []
        for name, part in value.items():
            below = fields.get(name, others)
            if below is None:
                if not self._keeps_unknown:
                    unknown.append(name)
            elif part.__class__ is dict or part.__class__ is list:
                if paths := below.prune(part):
                    dropped += [_join_path(name, path) for path in paths]
            elif part is None and below.drops_null:
                nulls.append(name)
        for name in (*unknown, *nulls):
            del value[name]
        return dropped + unknown if unknown else dropped

    def _prune_list(self, value: list[Any]) -> list[str]:
        below = self._element
        if below is None:
            if self._keeps_unknown:
                return []
            below = _DROP_ALL
        dropped: list[str] = []
        for index, part in enumerate(value):
            if (part.__class__ is dict or part.__class__ is list) and (paths := below.prune(part)):
                dropped += [_join_path(f"[{index}]", path) for path in paths]
        return dropped


_KEEP_ALL = Pruner(None, keeps=True)
_DROP_ALL = Pruner(None)


def prune(value: Any, node: SchemaNode | None, *, root: bool = False) -> list[str]:
    """Drop unknown fields in place. Returns their paths, sorted.

    At the root and in embedded resources, apiVersion, kind and metadata are kept as they are.
    """
    return sorted(Pruner(node, root=root).prune(value))


def _join_path(parent: str, path: str) -> str:
    return f"{parent}{path}" if path.startswith("[") else f"{parent}.{path}"
