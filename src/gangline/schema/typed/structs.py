"""Structs made from a type tree, so that msgspec can tell in C whether bytes fit it.

They are for checking only, and are stricter than the tree where that is simpler: whoever gets a no looks closer.
"""

from typing import Annotated, Any

import msgspec

from gangline.schema.typed.scalars import INT_RANGE
from gangline.schema.typed.types import Shape, Type


class Recursive(Exception):
    """A type that contains itself: no structs for it."""


def struct_of(tree: Type) -> Any:
    """A type for msgspec's decoder. Raises Recursive."""
    return _Structs().of(tree)


def _integer(go: str) -> Any:
    low, high = INT_RANGE.get(go, INT_RANGE["int64"])
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


_DAYS = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
_CLOCK = r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_TIME = rf"^\d{{4}}-{_DAYS}{_CLOCK}(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$"
_MICRO_TIME = rf"^\d{{4}}-{_DAYS}{_CLOCK}\.\d{{6}}(?:Z|[+-]\d\d:\d\d)$"
_QUANTITY = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?\d+)?$"

_SCALARS: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "number": float,
    "byte": bytes,
    "int-or-string": _integer("int32") | str,
    "quantity": Annotated[str, msgspec.Meta(pattern=_QUANTITY)] | int | float,
    "time": Annotated[str, msgspec.Meta(pattern=_TIME)],
    "micro-time": Annotated[str, msgspec.Meta(pattern=_MICRO_TIME)],
}


class _Structs:
    def __init__(self) -> None:
        # By the identity of their fields, which all uses of a definition share.
        self._made: dict[int, Any] = {}

    def of(self, tree: Type) -> Any:
        match tree.shape:
            case Shape.SCALAR:
                scalar = _integer(tree.go) if tree.scalar == "integer" else _SCALARS.get(tree.scalar, str)
                return scalar | None
            case Shape.LIST:
                return list[self.of(tree.element)] | None  # type: ignore[misc]
            case Shape.MAP:
                return dict[str, self.of(tree.element)] | None  # type: ignore[misc]
            case Shape.OBJECT:
                return self._struct(tree) | None
        return Any

    def _struct(self, tree: Type) -> Any:
        key = id(tree.fields)
        if key in self._made:
            if self._made[key] is None:
                raise Recursive(tree.go)
            return self._made[key]
        self._made[key] = None
        names = {f"f{index}": name for index, name in enumerate(tree.fields)}
        fields: list[tuple[str, Any, Any]] = [
            (alias, self.of(tree.fields[name]), None) for alias, name in names.items()
        ]
        self._made[key] = msgspec.defstruct(
            tree.go.rpartition(".")[2] or "Object",
            fields,
            rename=names,
            forbid_unknown_fields=not tree.keep_unknown,
            gc=False,
        )
        return self._made[key]
