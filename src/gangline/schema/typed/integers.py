"""Floats in the place of integers, as `1.0` or `1e+06`, which programs that write YAML leave behind."""

import re
from decimal import Decimal
from typing import Any

import msgspec

from gangline.schema.typed.types import TypeNode, TypeShape

_INTEGER_TYPES = ("integer", "int-or-string")
_LIMIT = 2**63
_MAX_ENCODED = 2**64
"""Our encoder knows no larger integers."""
_UNUSUAL_NUMBERS = re.compile(rb"\d\.0[,}\]]|[:,\[]-?(?:\d{19}|\d(?:\.\d+)?e)")


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


def set_go_numbers(obj: dict[str, Any]) -> None:
    """Make the numbers of a custom resource, in place, what kube-apiserver stores of them.

    To it they are integers of 64 bits, or else floats, which it writes without an exponent and without `.0`.
    """
    if _UNUSUAL_NUMBERS.search(msgspec.json.encode(obj)):
        for name, value in obj.items():
            obj[name] = _go_number(value)


def _go_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _go_number(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_go_number(item) for item in value]
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (-_LIMIT <= value < _LIMIT and value != int(value))
    ):
        return value
    if isinstance(value, int) and -_LIMIT <= value < _LIMIT:
        return value
    # The shortest digits of the float, and then zeros.
    whole = int(Decimal(repr(float(value))))
    return whole if -_LIMIT <= whole < _MAX_ENCODED else value
