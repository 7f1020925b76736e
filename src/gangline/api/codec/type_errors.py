"""JSON walked alongside the type it should have.

msgspec decodes in one fast pass and says little when that fails: its path hides the keys of maps. So what it
rejects is walked once more here, slowly and by type, to forgive what Kubernetes forgives (`mend`) or to find the
very value that is wrong (`fault`). `stamp` is the way out: it writes times as their fields want them.
"""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from gangline.api.codec.errors import Path, shown
from gangline.api.meta import MICRO
from gangline.api.quantity import QUANTITY, Quantity, QuantityError

Kind = Any
"""A type annotation, such as `dict[str, ReplicaSpec] | None`."""

_WORDS = {
    "str": "string",
    "bool": "boolean",
    "float": "number",
    "datetime": "timestamp such as 2026-01-02T15:04:05Z",
}
_EXPECTED = re.compile(r"Expected `([^`]*)`([^,]*)(?:, got .*)?")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")


class Fault(NamedTuple):
    """The first value that is wrong. `found` and `expected` are empty where there are no two sides."""

    path: Path
    problem: str
    found: str = ""
    expected: str = ""


class Layout(NamedTuple):
    """What a container of some kind may hold."""

    child: Callable[[str | int], Kind]
    fields: Mapping[str, msgspec.structs.FieldInfo] = {}
    key: Kind = str


def mend(value: Any, kind: Kind) -> Any:
    """The value as Kubernetes would read it: null is a member left out, a number may stand for a quantity.

    Only where the type says so: what stays JSON, such as a pod template, is not touched.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and _format(kind) == QUANTITY:
        return str(value)
    layout = _layout(kind, value)
    if layout is None:
        return value
    if isinstance(value, list):
        return [mend(item, layout.child(index)) for index, item in enumerate(value)]
    return {
        key: mend(item, layout.child(key))
        for key, item in value.items()
        if item is not None or _takes_null(layout.child(key))
    }


def fault(value: Any, kind: Kind, path: Path = ()) -> Fault | None:
    """The first thing wrong with a value, in the order of the document; then what is missing. None if it fits."""
    layout = _layout(kind, value)
    if layout is not None:
        for found in _faults_inside(value, layout, path):
            return found
    try:
        msgspec.convert(value, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        return _explained(str(error), value, kind, path)
    return None


def stamp(value: Any, kind: Kind) -> Any:
    """Fresh JSON with its times in UTC and as fine as their fields want them, set in place."""
    if not _holds_time(kind):
        return value
    if isinstance(value, str):
        return moment(datetime.fromisoformat(value), micro=_format(kind) == MICRO)
    layout = _layout(kind, value)
    if layout is None:
        return value
    if layout.fields:
        where: Iterable[str | int] = [name for name in _timed_fields(kind) if name in value]
    else:
        where = list(value) if isinstance(value, dict) else range(len(value))
    for key in where:
        value[key] = stamp(value[key], layout.child(key))
    return value


def moment(value: datetime, *, micro: bool = False) -> str:
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


def _faults_inside(value: Any, layout: Layout, path: Path) -> Iterator[Fault]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if layout.key is not str and (wrong := fault(key, layout.key)):
            yield Fault((*path, key), f"expected {wrong.expected} as the key", shown(key), wrong.expected)
        if wrong := fault(item, layout.child(key), (*path, key)):
            yield wrong
    for name, field in layout.fields.items():
        if field.required and name not in value:
            yield Fault((*path, name), "required field is missing")


def _explained(message: str, value: Any, kind: Kind, path: Path) -> Fault:
    """The sentence of msgspec about one value, in JSON's words."""
    message = message.partition(" - at `")[0]
    if unknown := _UNKNOWN_FIELD.fullmatch(message):
        return Fault((*path, unknown[1]), "unknown field")
    expected = _expected(message, kind)
    if not expected:
        return Fault(path, message, shown(value))
    return Fault(path, f"expected {expected}, got {shown(value)}", shown(value), expected)


def _expected(message: str, kind: Kind) -> str:
    if choices := [shown(choice) for member in _members(kind) for choice in _choices(member)]:
        return ", ".join(choices[:-1]) + " or " + choices[-1] if len(choices) > 1 else choices[0]
    if message.startswith("Invalid RFC3339"):
        return _WORDS["datetime"]
    found = _EXPECTED.fullmatch(message)
    if found is None:
        return ""
    if found[1].startswith("datetime"):
        return _WORDS["datetime"]
    names = [_WORDS.get(name, name) for name in found[1].split(" | ")]
    # Null only says that the field may be left out: no one should write it.
    return " or ".join([name for name in names if name != "null"] or names) + found[2].replace(
        " `", " "
    ).rstrip("`")


def _choices(kind: Kind) -> Sequence[Any]:
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [choice.value for choice in kind]
    return get_args(kind) if _origin(kind) is Literal else ()


def _layout(kind: Kind, value: Any) -> Layout | None:
    """How to go on inside a container; None for scalars, for free JSON, and where the type leaves a choice."""
    if not isinstance(value, dict | list):
        return None
    found = [layout for member in _members(kind) if (layout := _layout_of(member, type(value)))]
    return found[0] if len(found) == 1 else None


@cache
def _layout_of(kind: Kind, container: type) -> Layout | None:
    bare = _bare(kind)
    origin, args = _origin(bare) or bare, get_args(bare)
    if not isinstance(origin, type):
        return None
    if container is list:
        return (
            Layout(_item_of(origin, args))
            if args and issubclass(origin, list | tuple | set | frozenset)
            else None
        )
    if issubclass(origin, msgspec.Struct):
        fields = {field.encode_name: field for field in msgspec.structs.fields(bare)}
        return Layout(lambda key: fields[str(key)].type if key in fields else Any, fields)
    return Layout(lambda _: args[1], key=args[0]) if len(args) == 2 and issubclass(origin, Mapping) else None


def _item_of(origin: type, args: tuple[Kind, ...]) -> Callable[[str | int], Kind]:
    if origin is tuple and args[-1] is not ...:
        return lambda index: args[int(index)] if int(index) < len(args) else Any
    return lambda _: args[0]


@cache
def _members(kind: Kind) -> tuple[Kind, ...]:
    """The types a union joins; any other type is its only member."""
    bare = _bare(kind)
    if _origin(bare) in (Union, types.UnionType):
        return tuple(member for joined in get_args(bare) for member in _members(joined))
    return (kind,)


def _origin(kind: Kind) -> Kind:
    return get_origin(kind)


def _bare(kind: Kind) -> Kind:
    return get_args(kind)[0] if _origin(kind) is Annotated else kind


@cache
def _format(kind: Kind) -> str | None:
    notes = [note for member in (kind, *_members(kind)) for note in getattr(member, "__metadata__", ())]
    extras = [note.extra for note in notes if isinstance(note, msgspec.Meta) and note.extra]
    return next((extra["format"] for extra in extras if "format" in extra), None)


@cache
def _takes_null(kind: Kind) -> bool:
    return any(_bare(member) in (Any, None, types.NoneType, msgspec.Raw, object) for member in _members(kind))


@cache
def _timed_fields(kind: Kind) -> tuple[str, ...]:
    layouts = [layout for member in _members(kind) if (layout := _layout_of(member, dict))]
    return tuple(
        name for layout in layouts for name, field in layout.fields.items() if _holds_time(field.type)
    )


@cache
def _holds_time(kind: Kind) -> bool:
    """Whether a time may be anywhere inside. Free JSON holds none: its times are text already."""
    return _reaches_time(kind, set())


def _reaches_time(kind: Kind, seen: set[Kind]) -> bool:
    for member in _members(kind):
        bare = _bare(member)
        if bare is datetime:
            return True
        if bare in seen:
            continue
        seen.add(bare)
        origin = _origin(bare) or bare
        if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
            inside: Sequence[Kind] = [field.type for field in msgspec.structs.fields(bare)]
        else:
            inside = [argument for argument in get_args(bare) if argument is not ...]
        if _origin(bare) is not Literal and any(_reaches_time(part, seen) for part in inside):
            return True
    return False
