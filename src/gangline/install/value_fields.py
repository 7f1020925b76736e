"""The values as a table: path, type, default and description of each, for those who document, check or print them."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import inspect

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.install.values import InstallValues

ValueType = Literal["string", "integer", "boolean", "map", "list", "scalar", "block"]
"""What a value can be: `scalar` is a number or a string, `block` has values of its own."""

_TYPES: Mapping[type[inspect.Type], ValueType] = {
    inspect.StrType: "string",
    inspect.LiteralType: "string",
    inspect.IntType: "integer",
    inspect.BoolType: "boolean",
    inspect.DictType: "map",
    inspect.VarTupleType: "list",
    inspect.UnionType: "scalar",
    inspect.StructType: "block",
}


class ValueField(NamedTuple):
    """One value, or a block of values. `choices`: all that it, or an item of it, can be; empty if that is not limited."""

    path: str
    type: ValueType
    default: Any
    description: str
    choices: tuple[str, ...] = ()
    has_text_items: bool = False


@cache
def value_fields() -> Mapping[str, ValueField]:
    """All values by their path, blocks before what is in them."""
    defaults: JSON = msgspec.to_builtins(InstallValues())
    return {field.path: field for field in _fields(inspect.type_info(InstallValues), defaults, "")}


def merged_values(changes: JSON) -> InstallValues:
    """The values of a values.yaml: as in Helm, what it says comes on top of the defaults, and null removes a default.

    Raises:
        InputError: a value that does not exist or is of another type, in one line with its path.
    """
    merged = _merged(msgspec.to_builtins(InstallValues()), changes)
    try:
        return msgspec.convert(merged, InstallValues)
    except msgspec.ValidationError as error:
        raise InputError(f"bad value: {error}") from None


def _merged(defaults: JSON, changes: JSON) -> JSON:
    merged = {key: value for key, value in defaults.items() if changes.get(key, value) is not None}
    for key, value in changes.items():
        before = defaults.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merged(before, value)
        elif value is not None:
            merged[key] = value
        elif isinstance(before, dict):
            merged[key] = {}
    return merged


def value_type(path: str) -> ValueType:
    """The type of the value at a path."""
    return value_fields()[path].type


def _fields(struct: inspect.Type, defaults: JSON, prefix: str) -> Iterator[ValueField]:
    assert isinstance(struct, inspect.StructType)
    # A type's own values first, in their order, then those that it shares with others.
    own = {name: at for at, name in enumerate(vars(struct.cls).get("__annotations__", {}))}
    for field in sorted(struct.fields, key=lambda field: own.get(field.name, len(own))):
        path, default = f"{prefix}{field.encode_name}", defaults[field.encode_name]
        kind, description = field.type, ""
        while isinstance(kind, inspect.Metadata):
            description = description or (kind.extra_json_schema or {}).get("description", "")
            kind = kind.type
        yield ValueField(path, _TYPES[type(kind)], default, description, _choices(kind), _has_text_items(kind))
        if isinstance(kind, inspect.StructType):
            yield from _fields(kind, default, f"{path}.")


def _choices(kind: inspect.Type) -> tuple[str, ...]:
    if isinstance(kind, inspect.VarTupleType):
        return _choices(kind.item_type)
    return tuple(map(str, kind.values)) if isinstance(kind, inspect.LiteralType) else ()


def _has_text_items(kind: inspect.Type) -> bool:
    """Whether it is a mapping from names to texts, such as labels."""
    return isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StrType)
