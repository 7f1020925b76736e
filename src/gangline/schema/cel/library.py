"""The standard functions of CEL, and a table of all functions by name.

A function gets values that fit one of its signatures, unless a `dyn` hid their types: then it says so.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gangline.schema.cel import kubernetes, strings
from gangline.schema.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    CelError,
    Duration,
    ListView,
    MapView,
    ObjectView,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    concatenated,
    elements,
    equal,
    find,
    is_number,
    timestamp,
    type_name,
)
from gangline.schema.formats import go_duration, is_date_time

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_NANOS = {"Hours": 3600 * 10**9, "Minutes": 60 * 10**9, "Seconds": 10**9, "Milliseconds": 10**6}
_ORDERED = (str, bytes, bool, Duration, Timestamp)


def _whole(value: int) -> int:
    if not _SMALLEST <= value <= _LARGEST:
        raise CelError("integer overflow")
    return value


def _unsigned(value: int) -> UInt:
    if not 0 <= value < 2**64:
        raise CelError("unsigned integer overflow")
    return UInt(value)


def _arithmetic(
    on_whole: Callable[[int, int], int], on_float: Callable[[float, float], float] | None
) -> Callable[..., Any]:
    def work(one: Any, other: Any) -> Any:
        kind = one.__class__
        if kind is not other.__class__:
            raise CelError(NO_OVERLOAD)
        if kind is int:
            return _whole(on_whole(one, other))
        if kind is UInt:
            return _unsigned(on_whole(int(one), int(other)))
        if kind is float and on_float is not None:
            return on_float(one, other)
        raise CelError(NO_OVERLOAD)

    return work


def _divided(one: int, other: int) -> int:
    if other == 0:
        raise CelError("division by zero")
    # Towards zero, as Go does.
    size = abs(one) // abs(other)
    return size if (one < 0) == (other < 0) else -size


def _divided_floats(one: float, other: float) -> float:
    if other == 0:
        return (
            math.nan
            if one == 0 or math.isnan(one)
            else math.copysign(math.inf, one) * math.copysign(1, other)
        )
    return one / other


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise CelError("modulus by zero")
    return one - other * _divided(one, other)


_plus = _arithmetic(lambda one, other: one + other, lambda one, other: one + other)
_minus = _arithmetic(lambda one, other: one - other, lambda one, other: one - other)


def _add(one: Any, other: Any) -> Any:
    if is_number(one):
        return _plus(one, other)
    if one.__class__ is other.__class__ and (one.__class__ is str or one.__class__ is bytes):
        return one + other
    if isinstance(one, list | ListView) and isinstance(other, list | ListView):
        return concatenated(one, other)
    kinds = (one.__class__, other.__class__)
    if kinds == (Duration, Duration):
        return Duration(_whole(int(one) + int(other)))
    if kinds in ((Timestamp, Duration), (Duration, Timestamp)):
        return Timestamp(int(one) + int(other))
    raise CelError(NO_OVERLOAD)


def _subtract(one: Any, other: Any) -> Any:
    if is_number(one):
        return _minus(one, other)
    kinds = (one.__class__, other.__class__)
    if kinds in ((Duration, Duration), (Timestamp, Timestamp)):
        return Duration(_whole(int(one) - int(other)))
    if kinds == (Timestamp, Duration):
        return Timestamp(int(one) - int(other))
    raise CelError(NO_OVERLOAD)


def _negate(value: Any) -> Any:
    if value.__class__ is float:
        return -value
    if value.__class__ is int:
        return _whole(-value)
    raise CelError(NO_OVERLOAD)


def _not(value: Any) -> bool:
    if value.__class__ is not bool:
        raise CelError(NO_OVERLOAD)
    return not value


def compare(one: Any, other: Any) -> int:
    """Negative, zero or positive. Raises `CelError` for what has no order."""
    if not (is_number(one) and is_number(other)) and (
        one.__class__ is not other.__class__ or not isinstance(one, _ORDERED)
    ):
        raise CelError(NO_OVERLOAD)
    if one != one or other != other:
        raise CelError("NaN values cannot be ordered")
    return int(one > other) - int(one < other)


def _contained(value: Any, container: Any) -> bool:
    if isinstance(container, ObjectView | MapView | dict):
        return find(container, value)[1]
    return any(equal(part, value) for part in elements(container))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict | ListView | MapView | ObjectView) and not isinstance(
        value, TypeValue
    ):
        return len(value)
    raise CelError(f"{NO_OVERLOAD}: size")


def _unconvertible(value: Any, wanted: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def _to_int(value: Any) -> int:
    if isinstance(value, Timestamp):
        return int(value) // 10**9
    if isinstance(value, str):
        return _parsed_int(value, "int", r"[+-]?\d+", _SMALLEST, _LARGEST)
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if isinstance(value, int) and value.__class__ is not bool:
        return _whole(int(value))
    raise CelError(NO_OVERLOAD)


def _parsed_int(text: str, wanted: str, pattern: str, least: int, most: int) -> int:
    if not re.fullmatch(pattern, text, re.ASCII) or not least <= int(text) <= most:
        raise _unconvertible(text, wanted)
    return int(text)


def _to_uint(value: Any) -> UInt:
    if isinstance(value, str):
        return UInt(_parsed_int(value, "uint", r"\d+", 0, 2**64 - 1))
    if isinstance(value, int | float) and value.__class__ is not bool:
        return _unsigned(int(value))
    raise CelError(NO_OVERLOAD)


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise _unconvertible(value, "double") from None
    if is_number(value):
        return float(value)
    raise CelError(NO_OVERLOAD)


_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def _to_bool(value: Any) -> bool:
    if value.__class__ is bool:
        return bool(value)
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise _unconvertible(value, "bool")


def _to_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_duration(value: Any) -> Duration:
    if isinstance(value, str):
        nanos = go_duration(value)
        if nanos is None:
            raise _unconvertible(value, "google.protobuf.Duration")
        return Duration(nanos)
    if isinstance(value, Duration) or value.__class__ is int:
        return Duration(value)
    raise CelError(NO_OVERLOAD)


def _to_timestamp(value: Any) -> Timestamp:
    if isinstance(value, str):
        if not is_date_time(value):
            raise _unconvertible(value, "google.protobuf.Timestamp")
        return timestamp(value)
    if isinstance(value, Timestamp):
        return value
    if value.__class__ is int:
        return Timestamp(value * 10**9)
    raise CelError(NO_OVERLOAD)


def _date_part(part: str) -> Callable[..., int]:
    def work(value: Any, zone: str = "") -> int:
        if isinstance(value, Duration):
            return (
                int(_divided(int(value), _NANOS[part]))
                if part != "Milliseconds"
                else int(value) // 10**6 % 1000
            )
        return _of_moment(value.moment().astimezone(_zone(zone)), part)

    return work


def _of_moment(moment: datetime, part: str) -> int:
    parts = {
        "FullYear": moment.year,
        "Month": moment.month - 1,
        "Date": moment.day,
        "DayOfMonth": moment.day - 1,
        "DayOfYear": moment.timetuple().tm_yday - 1,
        "DayOfWeek": moment.isoweekday() % 7,
        "Hours": moment.hour,
        "Minutes": moment.minute,
        "Seconds": moment.second,
        "Milliseconds": moment.microsecond // 1000,
    }
    return parts[part]


def _zone(name: str) -> ZoneInfo | timezone:
    if name in ("", "UTC"):
        return timezone(timedelta())
    if ":" in name:
        hours, minutes = name.lstrip("+-").split(":", 1)
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if name.startswith("-") else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise CelError(f"unknown time zone {name}") from None


def _optional_value(value: Optional) -> Any:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _of_non_zero(value: Any) -> Optional:
    zero = value is None or (not isinstance(value, bool) and is_number(value) and value == 0)
    empty = isinstance(value, str | bytes | list | dict | ListView | MapView | ObjectView) and len(value) == 0
    return NOTHING if zero or empty or value is False else Optional(value)


def _sets_contain(one: Any, other: Any) -> bool:
    ours = elements(one)
    return all(any(equal(mine, theirs) for mine in ours) for theirs in elements(other))


def _inserted(into: dict[Any, Any], *entry: Any) -> dict[Any, Any]:
    added = dict(entry[0]) if len(entry) == 1 else {entry[0]: entry[1]}
    for key in added:
        if key in into:
            raise CelError(f"insert failed: key {key} already exists")
    return {**into, **added}


def _sorted(values: Any) -> bool:
    parts = elements(values)
    return all(compare(one, other) <= 0 for one, other in pairwise(parts))


def _extreme(name: str, sign: int) -> Callable[[Any], Any]:
    def work(values: Any) -> Any:
        parts = elements(values)
        if not parts:
            raise CelError(f"{name} called on empty list")
        best = parts[0]
        for part in parts[1:]:
            if compare(part, best) * sign > 0:
                best = part
        return best

    return work


def _sum(values: Any) -> Any:
    total: Any = None
    for part in elements(values):
        total = part if total is None else _add(total, part)
    return 0 if total is None else total


def _index_of(values: Any, value: Any) -> int:
    return next((index for index, part in enumerate(elements(values)) if equal(part, value)), -1)


def _last_index_of(values: Any, value: Any) -> int:
    found = [index for index, part in enumerate(elements(values)) if equal(part, value)]
    return found[-1] if found else -1


def _on_lists_or_texts(on_list: Callable[..., Any], on_text: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *args: (on_text if isinstance(value, str) else on_list)(value, *args)


def _either(name: str) -> Callable[..., Any]:
    """Functions that quantities and versions share."""
    return lambda value, other: getattr(value, name)(other)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **strings.FUNCTIONS,
    **kubernetes.FUNCTIONS,
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _arithmetic(lambda one, other: one * other, lambda one, other: one * other),
    "_/_": _arithmetic(_divided, _divided_floats),
    "_%_": _arithmetic(_remainder, None),
    "-_": _negate,
    "!_": _not,
    "_<_": lambda one, other: compare(one, other) < 0,
    "_<=_": lambda one, other: compare(one, other) <= 0,
    "_>_": lambda one, other: compare(one, other) > 0,
    "_>=_": lambda one, other: compare(one, other) >= 0,
    "@in": _contained,
    "size": _size,
    "type": lambda value: TypeValue(type_name(value)),
    "dyn": lambda value: value,
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "bool": _to_bool,
    "bytes": _to_bytes,
    "duration": _to_duration,
    "timestamp": _to_timestamp,
    **{f"get{part}": _date_part(part) for part in ("FullYear", "Month", "DayOfYear", "DayOfMonth", "Date")},
    **{
        f"get{part}": _date_part(part)
        for part in ("DayOfWeek", "Hours", "Minutes", "Seconds", "Milliseconds")
    },
    "optional.of": Optional,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.none": lambda: NOTHING,
    "value": _optional_value,
    "hasValue": lambda value: value.present,
    "or": lambda value, other: value if value.present else other,
    "orValue": lambda value, other: value.value if value.present else other,
    "sets.contains": _sets_contain,
    "sets.equivalent": lambda one, other: _sets_contain(one, other) and _sets_contain(other, one),
    "sets.intersects": lambda one, other: any(_contained(part, other) for part in elements(one)),
    "cel.@mapInsert": _inserted,
    "isSorted": _sorted,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "sum": _sum,
    "indexOf": _on_lists_or_texts(_index_of, strings.index_of),
    "lastIndexOf": _on_lists_or_texts(_last_index_of, strings.last_index_of),
    "isGreaterThan": _either("is_greater_than"),
    "isLessThan": _either("is_less_than"),
    "compareTo": _either("compared_to"),
}
