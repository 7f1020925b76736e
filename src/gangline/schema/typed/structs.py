"""Structs made from a type tree, so that msgspec can check in C whether bytes fit it.

They serve checks only, and are stricter than the tree where that is simpler: a refusal is examined with the tree.
"""

from typing import Annotated, Any

import msgspec

from gangline.schema.typed.scalars import INT_RANGE
from gangline.schema.typed.types import TypeNode, TypeShape


class RecursiveTypeError(Exception):
    """A type that contains itself, for which structs cannot be made."""


def msgspec_type(tree: TypeNode) -> Any:
    """A type for msgspec's decoder. Raises `RecursiveTypeError`."""
    return _StructBuilder().type_for(tree)


def _integer_type(go: str) -> Any:
    low, high = INT_RANGE.get(go, INT_RANGE["int64"])
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


_DAY_PATTERN = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_CLOCK_PATTERN = r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_TIME_PATTERN = rf"^\d{{4}}-{_DAY_PATTERN}{_CLOCK_PATTERN}(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$"
_MICRO_TIME_PATTERN = rf"^\d{{4}}-{_DAY_PATTERN}{_CLOCK_PATTERN}\.\d{{6}}(?:Z|[+-]\d\d:\d\d)$"
_QUANTITY_PATTERN = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?\d+)?$"

_SCALAR_TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "number": float,
    "byte": bytes,
    "int-or-string": _integer_type("int32") | str,
    "quantity": Annotated[str, msgspec.Meta(pattern=_QUANTITY_PATTERN)] | int | float,
    "time": Annotated[str, msgspec.Meta(pattern=_TIME_PATTERN)],
    "micro-time": Annotated[str, msgspec.Meta(pattern=_MICRO_TIME_PATTERN)],
}


class _StructBuilder:
    def __init__(self) -> None:
        # By the identity of the fields, which all references to a definition share.
        self._built: dict[int, Any] = {}

    def type_for(self, tree: TypeNode) -> Any:
        match tree.shape:
            case TypeShape.SCALAR:
                scalar = (
                    _integer_type(tree.go_type) if tree.scalar == "integer" else _SCALAR_TYPES.get(tree.scalar, str)
                )
                return scalar | None
            case TypeShape.LIST:
                return list[self.type_for(tree.element)] | None  # type: ignore[misc]
            case TypeShape.MAP:
                return dict[str, self.type_for(tree.element)] | None  # type: ignore[misc]
            case TypeShape.OBJECT:
                return self._struct_type(tree) | None
        return Any

    def _struct_type(self, tree: TypeNode) -> Any:
        key = id(tree.fields)
        if key in self._built:
            if self._built[key] is None:
                raise RecursiveTypeError(tree.go_type)
            return self._built[key]
        self._built[key] = None
        names = {f"f{index}": name for index, name in enumerate(tree.fields)}
        fields: list[tuple[str, Any, Any]] = [
            (alias, self.type_for(tree.fields[name]), None) for alias, name in names.items()
        ]
        self._built[key] = msgspec.defstruct(
            tree.go_type.rpartition(".")[2] or "Object",
            fields,
            rename=names,
            forbid_unknown_fields=not tree.keep_unknown,
            gc=False,
        )
        return self._built[key]
