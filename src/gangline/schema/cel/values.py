"""The values of expressions.

Integers, floats, strings, bytes, lists, maps and null are those of Python. Values of an object are accessed through
views that know their schema and convert on access, so that a rule pays only for what it reads.
"""

import base64
import binascii
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from gangline.base.errors import InputError
from gangline.schema import formats
from gangline.schema.cel.decl_types import escaped_name, unescaped_name, with_object_meta
from gangline.schema.correlation import json_equal
from gangline.schema.nodes import SchemaNode

NO_SUCH_OVERLOAD = "no such overload"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = (int, float)


class CelError(InputError):
    """An evaluation failed. Errors are part of the language: `true || error` is true."""


class CelUInt(int):
    """An unsigned integer."""


class CelDuration(int):
    """Nanoseconds."""


class CelTimestamp(int):
    """Nanoseconds since 1970."""

    def moment(self) -> datetime:
        return _EPOCH + timedelta(microseconds=int(self) // 1000)


class TypeValue(str):
    """A type as a value: its name."""


class CelOptional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, *, present: bool = True) -> None:
        self.value, self.present = value, present


OPTIONAL_NONE = CelOptional(present=False)


class UntypedValue:
    """Data that no schema describes. It can only be compared."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw


class _View:
    """A JSON value together with its schema."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: Any, node: SchemaNode) -> None:
        self.raw, self.node = raw, node

    def __len__(self) -> int:
        return len(self.raw)


class ObjectView(_View):
    """An object with named fields. A null field counts as absent."""

    __slots__ = ()

    def find(self, name: Any) -> tuple[Any, bool]:
        """The value of a field, and whether it is present."""
        if name.__class__ is not str:
            raise CelError(NO_SUCH_OVERLOAD)
        field = unescaped_name(name) if self.node.properties else name
        if field is None:
            return None, False
        part = self.raw.get(field)
        child = self.node.properties.get(field)
        if part is None or child is None:
            return None, False
        return as_cel_value(part, child), True

    def keys(self) -> list[str]:
        return [escaped_name(name) or name for name in self.raw if name in self.node.properties]


class MapView(_View):
    """A map with any keys."""

    __slots__ = ()

    def find(self, name: Any) -> tuple[Any, bool]:
        if name.__class__ is not str:
            raise CelError(NO_SUCH_OVERLOAD)
        if name not in self.raw or self.node.additional_properties is None:
            return None, False
        return as_cel_value(self.raw[name], self.node.additional_properties), True

    def keys(self) -> list[str]:
        return list(self.raw)


class ListView(_View):
    """A list. Sets and maps are compared without regard to order, and merged when added."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        items = self.node.items
        assert items is not None
        return (as_cel_value(part, items) for part in self.raw)

    def __getitem__(self, index: int) -> Any:
        assert self.node.items is not None
        return as_cel_value(self.raw[index], self.node.items)


def as_cel_value(raw: Any, node: SchemaNode) -> Any:
    """A value of an object as expressions see it. Raises `CelError` for data that does not fit its schema."""
    if raw is None:
        if node.nullable:
            return None
        raise CelError("invalid data, got null for schema with nullable=false")
    if node.int_or_string:
        if raw.__class__ is str or raw.__class__ is int:
            return raw
        raise CelError("invalid data, expected XIntOrString value to be either a string or integer")
    return _CONVERTERS.get(node.type, _untyped_value)(raw, node)


def _object_view(raw: Any, node: SchemaNode) -> Any:
    if not isinstance(raw, dict):
        raise CelError("invalid data, expected a map for the provided schema with type=object")
    if node.embedded:
        return ObjectView(raw, with_object_meta(node))
    if not node.properties and node.additional_properties is not None:
        return MapView(raw, node)
    return ObjectView(raw, node)


def _list_view(raw: Any, node: SchemaNode) -> Any:
    if not isinstance(raw, list):
        raise CelError("invalid data, expected an array for the provided schema with type=array")
    return ListView(raw, node)


def _text_value(raw: Any, node: SchemaNode) -> Any:
    if raw.__class__ is not str:
        raise CelError(f"invalid data, expected string, got {_go_type_name(raw)}")
    match node.format:
        case "duration":
            nanos = formats.duration_nanos(raw)
            if nanos is None:
                raise CelError(f"Invalid duration {raw}: unable to parse {raw} as duration")
            return CelDuration(nanos)
        case "date" if formats.is_date(raw):
            return parse_timestamp(f"{raw}T00:00:00Z")
        case "date-time":
            return parse_timestamp(raw)
        case "byte":
            try:
                return base64.urlsafe_b64decode(raw)
            except (binascii.Error, ValueError):
                raise CelError(f"Invalid byte formatted string {raw}: illegal base64 data") from None
    return raw


def _number_value(raw: Any, node: SchemaNode) -> Any:
    if raw.__class__ not in _NUMBERS:
        raise CelError(f"invalid data, expected float, got {_go_type_name(raw)}")
    return float(raw)


def _integer_value(raw: Any, node: SchemaNode) -> Any:
    if raw.__class__ is not int:
        raise CelError(f"invalid data, expected int, got {_go_type_name(raw)}")
    return raw


def _boolean_value(raw: Any, node: SchemaNode) -> Any:
    if raw.__class__ is not bool:
        raise CelError(f"invalid data, expected bool, got {_go_type_name(raw)}")
    return raw


def _untyped_value(raw: Any, node: SchemaNode) -> Any:
    return UntypedValue(raw)


_CONVERTERS = {
    "object": _object_view,
    "array": _list_view,
    "string": _text_value,
    "number": _number_value,
    "integer": _integer_value,
    "boolean": _boolean_value,
}


def _go_type_name(raw: Any) -> str:
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return names.get(raw.__class__, "map[string]interface {}")


def parse_timestamp(text: str) -> CelTimestamp:
    """The timestamp of an RFC 3339 text. Raises `CelError`."""
    if not formats.is_date_time(text):
        cause = f'"{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
        raise CelError(f"parsing time {cause}")
    seconds_part, _, rest = text.upper().partition(".")
    fraction = rest.rstrip("Z").partition("+")[0].partition("-")[0] if rest else ""
    zone = rest[len(fraction) :] if rest else ""
    moment = datetime.fromisoformat(f"{seconds_part}{zone}")
    seconds = int((moment - _EPOCH).total_seconds())
    return CelTimestamp(seconds * 10**9 + int((fraction + "0" * 9)[:9]))


def list_elements(value: Any) -> list[Any]:
    """The converted elements of a list. Raises `CelError` for any other value."""
    if value.__class__ is list:
        return value
    if value.__class__ is ListView:
        return list(value)
    raise CelError(NO_SUCH_OVERLOAD)


def raw_value(value: Any) -> Any:
    """The JSON behind a view."""
    return value.raw if isinstance(value, ObjectView | MapView | ListView | UntypedValue) else value


def values_equal(left: Any, right: Any) -> bool:
    """The operator `==`. Numbers of different types are compared by value."""
    kind = left.__class__
    if kind is str or kind is bool or left is None:
        return right.__class__ is kind and bool(left == right)
    if isinstance(left, ObjectView | MapView | dict):
        return _equal_maps(left, right)
    if isinstance(left, ListView | list):
        return _equal_lists(left, right)
    if isinstance(left, UntypedValue):
        return json_equal(left.raw, raw_value(right))
    if isinstance(left, CelOptional):
        return _equal_optionals(left, right)
    if isinstance(left, CelDuration | CelTimestamp) or isinstance(right, CelDuration | CelTimestamp):
        return right.__class__ is kind and int(left) == int(right)
    if is_number(left):
        return is_number(right) and bool(left == right)
    return right.__class__ is kind and bool(left == right)


def is_number(value: Any) -> bool:
    return value.__class__ is int or value.__class__ is float or value.__class__ is CelUInt


def _equal_optionals(left: CelOptional, right: Any) -> bool:
    if not isinstance(right, CelOptional) or left.present != right.present:
        return False
    return not left.present or values_equal(left.value, right.value)


def find_value(container: Any, key: Any) -> tuple[Any, bool]:
    """The value of a key in any kind of map, and whether it is present."""
    if isinstance(container, ObjectView | MapView):
        return container.find(key)
    if key.__class__ is str:
        # Nothing but the same text equals a text.
        try:
            return container[key], True
        except KeyError:
            return None, False
    for entry_key, value in container.items():
        if values_equal(entry_key, key):
            return value, True
    return None, False


def map_keys(container: Any) -> list[Any]:
    """The keys of any kind of map."""
    return list(container) if container.__class__ is dict else container.keys()


def _equal_maps(left: Any, right: Any) -> bool:
    if not isinstance(right, ObjectView | MapView | dict):
        if right is None:
            return False
        raise CelError(NO_SUCH_OVERLOAD)
    if len(left) != len(right):
        return False
    if isinstance(left, ObjectView) and isinstance(right, ObjectView):
        return _equal_objects(left, right)
    for key in map_keys(left):
        left_value, _ = find_value(left, key)
        right_value, present = find_value(right, key)
        if not present or not values_equal(left_value, right_value):
            return False
    return True


def _equal_objects(left: ObjectView, right: ObjectView) -> bool:
    for name, part in left.raw.items():
        child = left.node.properties.get(name)
        if child is None:
            # A preserved unknown field is compared as it is, if the other object has it.
            if name in right.raw and not json_equal(part, right.raw[name]):
                return False
            continue
        right_part = right.raw.get(name)
        if (part is None) != (right_part is None):
            return False
        if part is not None and not values_equal(as_cel_value(part, child), as_cel_value(right_part, child)):
            return False
    return True


def _equal_lists(left: Any, right: Any) -> bool:
    if not isinstance(right, ListView | list):
        if right is None:
            return False
        raise CelError(NO_SUCH_OVERLOAD)
    if len(left) != len(right):
        return False
    if isinstance(left, ListView) and left.node.list_type in ("set", "map"):
        left_by_key = {_element_key(part, left.node): part for part in left.raw}
        for part in right.raw if isinstance(right, ListView) else right:
            key = _element_key(part, left.node)
            if key not in left_by_key:
                return False
            assert left.node.items is not None
            left_value = as_cel_value(left_by_key[key], left.node.items)
            if not values_equal(
                left_value, as_cel_value(part, left.node.items) if isinstance(right, ListView) else part
            ):
                return False
        return True
    return all(map(values_equal, left, right))


def _element_key(part: Any, node: SchemaNode) -> object:
    part = raw_value(part)
    if node.list_type == "map" and isinstance(part, dict):
        return tuple((part.get(name).__class__, part.get(name)) for name in node.list_keys)
    return (part.__class__, part) if not isinstance(part, dict | list) else repr(part)


def concatenate_lists(left: Any, right: Any) -> Any:
    """The operator `+` of lists. Sets are united; in list maps, elements of `right` replace those with the same key."""
    if isinstance(left, ListView):
        raw = [raw_value(part) for part in right] if isinstance(right, list) else right.raw
        if left.node.list_type not in ("set", "map"):
            return ListView([*left.raw, *raw], left.node)
        united = {_element_key(part, left.node): part for part in left.raw}
        united.update({_element_key(part, left.node): part for part in raw})
        return ListView(list(united.values()), left.node)
    return [*left, *right]


def type_name(value: Any) -> str:
    """The name that `type()` returns."""
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return str(getattr(value, "type_name", "unknown"))


_TYPE_NAMES: tuple[tuple[Any, str], ...] = (
    (bool, "bool"),
    (CelUInt, "uint"),
    (CelDuration, "google.protobuf.Duration"),
    (CelTimestamp, "google.protobuf.Timestamp"),
    (TypeValue, "type"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (type(None), "null_type"),
    (list | ListView, "list"),
    (dict | ObjectView | MapView, "map"),
    (CelOptional, "optional_type"),
)
