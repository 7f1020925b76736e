"""Walks JSON alongside the type that it should have.

msgspec decodes in one fast pass, but its errors hide the keys of maps. Input that msgspec rejects is therefore walked
once more here, slowly and by type: to accept what Kubernetes accepts (`coerce`), or to find the exact value that is
wrong
(`first_mismatch`). `format_times` serves the other direction: it writes each time with the precision of its field.
"""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from gangline.api.codec.errors import FieldPath, value_text
from gangline.api.meta import MICRO_TIME_FORMAT, QUANTITY_FORMAT

TypeForm = Any
"""A type annotation, such as `dict[str, ReplicaSpec] | None`."""

_JSON_TYPE_NAMES = {
    "str": "string",
    "bool": "boolean",
    "float": "number",
    "datetime": "timestamp such as 2026-01-02T15:04:05Z",
}
_EXPECTED_MESSAGE = r"Expected `([^`]*)`([^,]*)(?:, got .*)?"
_UNKNOWN_FIELD = r"Object contains unknown field `([^`]*)`"


class TypeMismatch(NamedTuple):
    """The first value that does not fit. `found` and `expected` are empty where nothing can be compared."""

    path: FieldPath
    problem: str
    actual: str = ""
    expected: str = ""


class TypeLayout(NamedTuple):
    """What a container type may hold."""

    child: Callable[[str | int], TypeForm]
    fields: Mapping[str, msgspec.structs.FieldInfo] = {}
    key: TypeForm = str


def coerce(value: Any, kind: TypeForm) -> Any:
    """The value as Kubernetes would read it: null is an absent member, and a number may stand for a quantity.

    Values whose type is free JSON, such as a pod template, are not changed.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and _format(kind) == QUANTITY_FORMAT:
        return str(value)
    layout = _layout(kind, value)
    if layout is None:
        return value
    if isinstance(value, list):
        return [coerce(item, layout.child(index)) for index, item in enumerate(value)]
    return {
        key: coerce(item, layout.child(key))
        for key, item in value.items()
        if item is not None or _allows_null(layout.child(key))
    }


def first_mismatch(value: Any, kind: TypeForm, path: FieldPath = ()) -> TypeMismatch | None:
    """The first mismatch in document order, then the first missing field. None if the value fits its type."""
    layout = _layout(kind, value)
    if layout is not None:
        for found in _nested_mismatches(value, layout, path):
            return found
    try:
        msgspec.convert(value, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        return _mismatch(str(error), value, kind, path)
    return None


def format_times(value: Any, kind: TypeForm) -> Any:
    """Rewrite the times of fresh JSON in place: in UTC, and with the precision of their fields."""
    if not _contains_time(kind):
        return value
    if isinstance(value, str):
        return rfc3339(datetime.fromisoformat(value), micro=_format(kind) == MICRO_TIME_FORMAT)
    layout = _layout(kind, value)
    if layout is None:
        return value
    if layout.fields:
        where: Iterable[str | int] = [name for name in _time_fields(kind) if name in value]
    else:
        where = list(value) if isinstance(value, dict) else range(len(value))
    for key in where:
        value[key] = format_times(value[key], layout.child(key))
    return value


def rfc3339(value: datetime, *, micro: bool = False) -> str:
    """A time as Kubernetes writes it: RFC 3339 in UTC, to the second, or with six more digits if `micro`."""
    if value.tzinfo is None:
        raise ValueError(f"a time without a time zone cannot be written: {value}")
    text = value.astimezone(UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.replace("+00:00", "Z")


def decode_hook(kind: type[Any], value: Any) -> Any:
    """Decodes a type that msgspec does not know. msgspec calls this."""
    # Imported here, as in the next function: it loads slowly, and what has such a value has it loaded.
    from gangline.api.quantity import Quantity, QuantityError

    if kind is Quantity:
        try:
            return Quantity.of(value)
        except QuantityError as error:
            # msgspec adds the path to a ValueError and to no other error.
            raise ValueError(str(error)) from None
    raise NotImplementedError(f"no JSON form for {kind.__name__}")


def encode_hook(value: Any) -> Any:
    """Encodes a type that msgspec does not know. msgspec calls this."""
    from gangline.api.quantity import Quantity

    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


def _nested_mismatches(value: Any, layout: TypeLayout, path: FieldPath) -> Iterator[TypeMismatch]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if layout.key is not str and (wrong := first_mismatch(key, layout.key)):
            yield TypeMismatch((*path, key), f"expected {wrong.expected} as the key", value_text(key), wrong.expected)
        if wrong := first_mismatch(item, layout.child(key), (*path, key)):
            yield wrong
    for name, field in layout.fields.items():
        if field.required and name not in value:
            yield TypeMismatch((*path, name), "required field is missing")


def _mismatch(message: str, value: Any, kind: TypeForm, path: FieldPath) -> TypeMismatch:
    """The mismatch that msgspec reports about one value, in JSON's words."""
    message = message.partition(" - at `")[0]
    if unknown := re.fullmatch(_UNKNOWN_FIELD, message):
        return TypeMismatch((*path, unknown[1]), "unknown field")
    expected = _expected_type(message, kind)
    if not expected:
        return TypeMismatch(path, message, value_text(value))
    return TypeMismatch(path, f"expected {expected}, got {value_text(value)}", value_text(value), expected)


def _expected_type(message: str, kind: TypeForm) -> str:
    if choices := [value_text(choice) for member in _union_members(kind) for choice in _choices(member)]:
        return ", ".join(choices[:-1]) + " or " + choices[-1] if len(choices) > 1 else choices[0]
    if message.startswith("Invalid RFC3339"):
        return _JSON_TYPE_NAMES["datetime"]
    match = re.fullmatch(_EXPECTED_MESSAGE, message)
    if match is None:
        return ""
    if match[1].startswith("datetime"):
        return _JSON_TYPE_NAMES["datetime"]
    names = [_JSON_TYPE_NAMES.get(name, name) for name in match[1].split(" | ")]
    # Null only means that the field may be left out, so the message does not suggest it.
    return " or ".join([name for name in names if name != "null"] or names) + match[2].replace(" `", " ").rstrip("`")


def _choices(kind: TypeForm) -> Sequence[Any]:
    kind = _unannotated(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [choice.value for choice in kind]
    return get_args(kind) if _origin(kind) is Literal else ()


def _layout(kind: TypeForm, value: Any) -> TypeLayout | None:
    """What a container may hold, for the walk below it; None for scalars, free JSON and ambiguous unions."""
    if not isinstance(value, dict | list):
        return None
    found = [layout for member in _union_members(kind) if (layout := _layout_of(member, type(value)))]
    return found[0] if len(found) == 1 else None


@cache
def _layout_of(kind: TypeForm, container: type) -> TypeLayout | None:
    bare = _unannotated(kind)
    origin, args = _origin(bare) or bare, get_args(bare)
    if not isinstance(origin, type):
        return None
    if container is list:
        return (
            TypeLayout(_item_type(origin, args))
            if args and issubclass(origin, list | tuple | set | frozenset)
            else None
        )
    if issubclass(origin, msgspec.Struct):
        fields = {field.encode_name: field for field in msgspec.structs.fields(bare)}
        return TypeLayout(lambda key: fields[str(key)].type if key in fields else Any, fields)
    return TypeLayout(lambda _: args[1], key=args[0]) if len(args) == 2 and issubclass(origin, Mapping) else None


def _item_type(origin: type, args: tuple[TypeForm, ...]) -> Callable[[str | int], TypeForm]:
    if origin is tuple and args[-1] is not ...:
        return lambda index: args[int(index)] if int(index) < len(args) else Any
    return lambda _: args[0]


@cache
def _union_members(kind: TypeForm) -> tuple[TypeForm, ...]:
    """The members of a union; for any other type, the type itself."""
    bare = _unannotated(kind)
    if _origin(bare) in (Union, types.UnionType):
        return tuple(member for joined in get_args(bare) for member in _union_members(joined))
    return (kind,)


def _origin(kind: TypeForm) -> TypeForm:
    return get_origin(kind)


def _unannotated(kind: TypeForm) -> TypeForm:
    return get_args(kind)[0] if _origin(kind) is Annotated else kind


@cache
def _format(kind: TypeForm) -> str | None:
    notes = [note for member in (kind, *_union_members(kind)) for note in getattr(member, "__metadata__", ())]
    extras = [note.extra for note in notes if isinstance(note, msgspec.Meta) and note.extra]
    return next((extra["format"] for extra in extras if "format" in extra), None)


@cache
def _allows_null(kind: TypeForm) -> bool:
    return any(
        _unannotated(member) in (Any, None, types.NoneType, msgspec.Raw, object) for member in _union_members(kind)
    )


@cache
def _time_fields(kind: TypeForm) -> tuple[str, ...]:
    layouts = [layout for member in _union_members(kind) if (layout := _layout_of(member, dict))]
    return tuple(name for layout in layouts for name, field in layout.fields.items() if _contains_time(field.type))


@cache
def _contains_time(kind: TypeForm) -> bool:
    """Whether a value of this type can contain a time. Free JSON cannot: its times are text."""
    return _reaches_time(kind, set())


def _reaches_time(kind: TypeForm, visited: set[TypeForm]) -> bool:
    for member in _union_members(kind):
        bare = _unannotated(member)
        if bare is datetime:
            return True
        if bare in visited:
            continue
        visited.add(bare)
        origin = _origin(bare) or bare
        if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
            inside: Sequence[TypeForm] = [field.type for field in msgspec.structs.fields(bare)]
        else:
            inside = [argument for argument in get_args(bare) if argument is not ...]
        if _origin(bare) is not Literal and any(_reaches_time(part, visited) for part in inside):
            return True
    return False
