"""JSON walked alongside the type it should have.

msgspec decodes in one fast pass and says little when that fails: its path hides the keys of maps. So what it
rejects is walked once more here, slowly and by type, to forgive what Kubernetes forgives (`coerce`) or to find the
very value that is wrong (`first_mismatch`). `format_times` is the way out: it writes times as their fields want them.
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
from gangline.api.meta import MICRO_TIME_FORMAT
from gangline.api.quantity import QUANTITY_FORMAT, Quantity, QuantityError

TypeForm = Any
"""A type annotation, such as `dict[str, ReplicaSpec] | None`."""

_JSON_TYPE_NAMES = {
    "str": "string",
    "bool": "boolean",
    "float": "number",
    "datetime": "timestamp such as 2026-01-02T15:04:05Z",
}
_EXPECTED_MESSAGE = re.compile(r"Expected `([^`]*)`([^,]*)(?:, got .*)?")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")


class TypeMismatch(NamedTuple):
    """The first value that is wrong. `found` and `expected` are empty where there are no two sides."""

    path: FieldPath
    problem: str
    actual: str = ""
    expected: str = ""


class TypeLayout(NamedTuple):
    """What a container of some kind may hold."""

    child: Callable[[str | int], TypeForm]
    fields: Mapping[str, msgspec.structs.FieldInfo] = {}
    key: TypeForm = str


def coerce(value: Any, kind: TypeForm) -> Any:
    """The value as Kubernetes would read it: null is a member left out, a number may stand for a quantity.

    Only where the type says so: what stays JSON, such as a pod template, is not touched.
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
    """The first thing wrong with a value, in the order of the document; then what is missing. None if it fits."""
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
    """Fresh JSON with its times in UTC and as fine as their fields want them, set in place."""
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
    """A time as Kubernetes writes it: RFC 3339 in UTC, to the second, or with six digits more."""
    if value.tzinfo is None:
        raise ValueError(f"a time without a time zone cannot be written: {value}")
    text = value.astimezone(UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.replace("+00:00", "Z")


def decode_hook(kind: type[Any], value: Any) -> Any:
    """How msgspec reads a type it does not know."""
    if kind is Quantity:
        try:
            return Quantity.of(value)
        except QuantityError as error:
            # msgspec adds the path to a ValueError, and to nothing else.
            raise ValueError(str(error)) from None
    raise NotImplementedError(f"no JSON form for {kind.__name__}")


def encode_hook(value: Any) -> Any:
    """How msgspec writes a type it does not know."""
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
    """The sentence of msgspec about one value, in JSON's words."""
    message = message.partition(" - at `")[0]
    if unknown := _UNKNOWN_FIELD.fullmatch(message):
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
    found = _EXPECTED_MESSAGE.fullmatch(message)
    if found is None:
        return ""
    if found[1].startswith("datetime"):
        return _JSON_TYPE_NAMES["datetime"]
    names = [_JSON_TYPE_NAMES.get(name, name) for name in found[1].split(" | ")]
    # Null only says that the field may be left out: no one should write it.
    return " or ".join([name for name in names if name != "null"] or names) + found[2].replace(" `", " ").rstrip("`")


def _choices(kind: TypeForm) -> Sequence[Any]:
    kind = _unannotated(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [choice.value for choice in kind]
    return get_args(kind) if _origin(kind) is Literal else ()


def _layout(kind: TypeForm, value: Any) -> TypeLayout | None:
    """How to go on inside a container; None for scalars, for free JSON, and where the type leaves a choice."""
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
    """The types a union joins; any other type is its only member."""
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
    """Whether a time may be anywhere inside. Free JSON holds none: its times are text already."""
    return _reaches_time(kind, set())


def _reaches_time(kind: TypeForm, seen: set[TypeForm]) -> bool:
    for member in _union_members(kind):
        bare = _unannotated(member)
        if bare is datetime:
            return True
        if bare in seen:
            continue
        seen.add(bare)
        origin = _origin(bare) or bare
        if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
            inside: Sequence[TypeForm] = [field.type for field in msgspec.structs.fields(bare)]
        else:
            inside = [argument for argument in get_args(bare) if argument is not ...]
        if _origin(bare) is not Literal and any(_reaches_time(part, seen) for part in inside):
            return True
    return False
