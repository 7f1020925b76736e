"""Floats in the place of integers, as `1.0` or `1e+06`, which programs that write YAML leave behind."""

from typing import Any

from gangline.schema.typed.types import TypeNode, TypeShape

_INTEGER_TYPES = ("integer", "int-or-string")
_LIMIT = 2**63


def with_integers(value: Any, tree: TypeNode) -> Any:
    """The value with whole floats as integers where the type is one. Returns the same value if there are none.

    kube-apiserver does this for what comes out of apply and strategic merge patch, and not for whole objects.
    """
    if isinstance(value, dict):
        changed = {
            name: new
            for name, item in value.items()
            if (field := _field(tree, name)) is not None and (new := with_integers(item, field)) is not item
        }
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [with_integers(item, tree.element) for item in value]
        return items if any(new is not item for new, item in zip(items, value, strict=True)) else value
    if isinstance(value, float) and tree.scalar in _INTEGER_TYPES and value.is_integer() and -_LIMIT <= value < _LIMIT:
        return int(value)
    return value


def _field(tree: TypeNode, name: str) -> TypeNode | None:
    return tree.field_type(name) if tree.shape in (TypeShape.OBJECT, TypeShape.MAP) else None
