"""The standard functions of CEL, and the table of all functions by name.

A function gets values that fit one of its signatures, unless their type was hidden by `dyn`: then it raises `CelError`.
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
    NO_SUCH_OVERLOAD,
    OPTIONAL_NONE,
    CelDuration,
    CelError,
    CelOptional,
    CelTimestamp,
    CelUInt,
    ListView,
    MapView,
    ObjectView,
    TypeValue,
    concatenate_lists,
    find_value,
    is_number,
    list_elements,
    parse_timestamp,
    type_name,
    values_equal,
)
from gangline.schema.formats import go_duration_nanos, is_date_time

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_UNIT_NANOS = {"Hours": 3600 * 10**9, "Minutes": 60 * 10**9, "Seconds": 10**9, "Milliseconds": 10**6}
_ORDERED_TYPES = (str, bytes, bool, CelDuration, CelTimestamp)


def _checked_int(value: int) -> int:
    if not _MIN_INT64 <= value <= _MAX_INT64:
        raise CelError("integer overflow")
    return value


def _checked_uint(value: int) -> CelUInt:
    if not 0 <= value < 2**64:
        raise CelError("unsigned integer overflow")
    return CelUInt(value)


def _arithmetic(
    on_whole: Callable[[int, int], int], on_float: Callable[[float, float], float] | None
) -> Callable[..., Any]:
    def work(left: Any, right: Any) -> Any:
        kind = left.__class__
        if kind is not right.__class__:
            raise CelError(NO_SUCH_OVERLOAD)
        if kind is int:
            return _checked_int(on_whole(left, right))
        if kind is CelUInt:
            return _checked_uint(on_whole(int(left), int(right)))
        if kind is float and on_float is not None:
            return on_float(left, right)
        raise CelError(NO_SUCH_OVERLOAD)

    return work


def _integer_quotient(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    # Rounds towards zero, as Go does.
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _float_quotient(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    return left - right * _integer_quotient(left, right)


_add_numbers = _arithmetic(lambda one, other: one + other, lambda one, other: one + other)
_subtract_numbers = _arithmetic(lambda one, other: one - other, lambda one, other: one - other)


def _add(left: Any, right: Any) -> Any:
    if is_number(left):
        return _add_numbers(left, right)
    if left.__class__ is right.__class__ and (left.__class__ is str or left.__class__ is bytes):
        return left + right
    if isinstance(left, list | ListView) and isinstance(right, list | ListView):
        return concatenate_lists(left, right)
    kinds = (left.__class__, right.__class__)
    if kinds == (CelDuration, CelDuration):
        return CelDuration(_checked_int(int(left) + int(right)))
    if kinds in ((CelTimestamp, CelDuration), (CelDuration, CelTimestamp)):
        return CelTimestamp(int(left) + int(right))
    raise CelError(NO_SUCH_OVERLOAD)


def _subtract(left: Any, right: Any) -> Any:
    if is_number(left):
        return _subtract_numbers(left, right)
    kinds = (left.__class__, right.__class__)
    if kinds in ((CelDuration, CelDuration), (CelTimestamp, CelTimestamp)):
        return CelDuration(_checked_int(int(left) - int(right)))
    if kinds == (CelTimestamp, CelDuration):
        return CelTimestamp(int(left) - int(right))
    raise CelError(NO_SUCH_OVERLOAD)


def _negate(value: Any) -> Any:
    if value.__class__ is float:
        return -value
    if value.__class__ is int:
        return _checked_int(-value)
    raise CelError(NO_SUCH_OVERLOAD)


def _not(value: Any) -> bool:
    if value.__class__ is not bool:
        raise CelError(NO_SUCH_OVERLOAD)
    return not value


def compare(left: Any, right: Any) -> int:
    """Negative, zero or positive. Raises `CelError` for values without an order."""
    if not (is_number(left) and is_number(right)) and (
        left.__class__ is not right.__class__ or not isinstance(left, _ORDERED_TYPES)
    ):
        raise CelError(NO_SUCH_OVERLOAD)
    if left != left or right != right:
        raise CelError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def _is_contained(value: Any, container: Any) -> bool:
    if isinstance(container, ObjectView | MapView | dict):
        return find_value(container, value)[1]
    return any(values_equal(part, value) for part in list_elements(container))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict | ListView | MapView | ObjectView) and not isinstance(
        value, TypeValue
    ):
        return len(value)
    raise CelError(f"{NO_SUCH_OVERLOAD}: size")


def _conversion_error(value: Any, type_to: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{type_to}'")


def _to_int(value: Any) -> int:
    if isinstance(value, CelTimestamp):
        return int(value) // 10**9
    if isinstance(value, str):
        return _parse_int(value, "int", r"[+-]?\d+", _MIN_INT64, _MAX_INT64)
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if isinstance(value, int) and value.__class__ is not bool:
        return _checked_int(int(value))
    raise CelError(NO_SUCH_OVERLOAD)


def _parse_int(text: str, type_to: str, pattern: str, least: int, most: int) -> int:
    if not re.fullmatch(pattern, text, re.ASCII) or not least <= int(text) <= most:
        raise _conversion_error(text, type_to)
    return int(text)


def _to_uint(value: Any) -> CelUInt:
    if isinstance(value, str):
        return CelUInt(_parse_int(value, "uint", r"\d+", 0, 2**64 - 1))
    if isinstance(value, int | float) and value.__class__ is not bool:
        return _checked_uint(int(value))
    raise CelError(NO_SUCH_OVERLOAD)


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise _conversion_error(value, "double") from None
    if is_number(value):
        return float(value)
    raise CelError(NO_SUCH_OVERLOAD)


_TRUE_TEXTS, _FALSE_TEXTS = (("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False"))


def _to_bool(value: Any) -> bool:
    if value.__class__ is bool:
        return bool(value)
    if value in _TRUE_TEXTS or value in _FALSE_TEXTS:
        return value in _TRUE_TEXTS
    raise _conversion_error(value, "bool")


def _to_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_duration(value: Any) -> CelDuration:
    if isinstance(value, str):
        nanos = go_duration_nanos(value)
        if nanos is None:
            raise _conversion_error(value, "google.protobuf.Duration")
        return CelDuration(nanos)
    if isinstance(value, CelDuration) or value.__class__ is int:
        return CelDuration(value)
    raise CelError(NO_SUCH_OVERLOAD)


def _to_timestamp(value: Any) -> CelTimestamp:
    if isinstance(value, str):
        if not is_date_time(value):
            raise _conversion_error(value, "google.protobuf.Timestamp")
        return parse_timestamp(value)
    if isinstance(value, CelTimestamp):
        return value
    if value.__class__ is int:
        return CelTimestamp(value * 10**9)
    raise CelError(NO_SUCH_OVERLOAD)


def _date_part(part: str) -> Callable[..., int]:
    def work(value: Any, zone: str = "") -> int:
        if isinstance(value, CelDuration):
            return (
                int(_integer_quotient(int(value), _UNIT_NANOS[part]))
                if part != "Milliseconds"
                else int(value) // 10**6 % 1000
            )
        return _datetime_part(value.moment().astimezone(_time_zone(zone)), part)

    return work


def _datetime_part(moment: datetime, part: str) -> int:
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


def _time_zone(name: str) -> ZoneInfo | timezone:
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


def _optional_value(value: CelOptional) -> Any:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _optional_of_non_zero(value: Any) -> CelOptional:
    zero = value is None or (not isinstance(value, bool) and is_number(value) and value == 0)
    empty = isinstance(value, str | bytes | list | dict | ListView | MapView | ObjectView) and len(value) == 0
    return OPTIONAL_NONE if zero or empty or value is False else CelOptional(value)


def _set_contains(left: Any, right: Any) -> bool:
    ours = list_elements(left)
    return all(any(values_equal(mine, theirs) for mine in ours) for theirs in list_elements(right))


def _map_insert(into: dict[Any, Any], *entry: Any) -> dict[Any, Any]:
    added = dict(entry[0]) if len(entry) == 1 else {entry[0]: entry[1]}
    for key in added:
        if key in into:
            raise CelError(f"insert failed: key {key} already exists")
    return {**into, **added}


def _is_sorted(values: Any) -> bool:
    parts = list_elements(values)
    return all(compare(one, other) <= 0 for one, other in pairwise(parts))


def _extreme(name: str, sign: int) -> Callable[[Any], Any]:
    def work(values: Any) -> Any:
        parts = list_elements(values)
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
    for part in list_elements(values):
        total = part if total is None else _add(total, part)
    return 0 if total is None else total


def _index_of(values: Any, value: Any) -> int:
    return next((index for index, part in enumerate(list_elements(values)) if values_equal(part, value)), -1)


def _last_index_of(values: Any, value: Any) -> int:
    indexes = [index for index, part in enumerate(list_elements(values)) if values_equal(part, value)]
    return indexes[-1] if indexes else -1


def _on_lists_or_texts(on_list: Callable[..., Any], on_text: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *args: (on_text if isinstance(value, str) else on_list)(value, *args)


def _method_call(name: str) -> Callable[..., Any]:
    """A function that calls a method of the value: those that quantities and versions share."""
    return lambda value, other: getattr(value, name)(other)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **strings.TEXT_FUNCTIONS,
    **kubernetes.KUBERNETES_FUNCTIONS,
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _arithmetic(lambda one, other: one * other, lambda one, other: one * other),
    "_/_": _arithmetic(_integer_quotient, _float_quotient),
    "_%_": _arithmetic(_remainder, None),
    "-_": _negate,
    "!_": _not,
    "_<_": lambda one, other: compare(one, other) < 0,
    "_<=_": lambda one, other: compare(one, other) <= 0,
    "_>_": lambda one, other: compare(one, other) > 0,
    "_>=_": lambda one, other: compare(one, other) >= 0,
    "@in": _is_contained,
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
    **{f"get{part}": _date_part(part) for part in ("DayOfWeek", "Hours", "Minutes", "Seconds", "Milliseconds")},
    "optional.of": CelOptional,
    "optional.ofNonZeroValue": _optional_of_non_zero,
    "optional.none": lambda: OPTIONAL_NONE,
    "value": _optional_value,
    "hasValue": lambda value: value.present,
    "or": lambda value, other: value if value.present else other,
    "orValue": lambda value, other: value.value if value.present else other,
    "sets.contains": _set_contains,
    "sets.equivalent": lambda one, other: _set_contains(one, other) and _set_contains(other, one),
    "sets.intersects": lambda one, other: any(_is_contained(part, other) for part in list_elements(one)),
    "cel.@mapInsert": _map_insert,
    "isSorted": _is_sorted,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "sum": _sum,
    "indexOf": _on_lists_or_texts(_index_of, strings.index_of),
    "lastIndexOf": _on_lists_or_texts(_last_index_of, strings.last_index_of),
    "isGreaterThan": _method_call("is_greater_than"),
    "isLessThan": _method_call("is_less_than"),
    "compareTo": _method_call("compared_to"),
}
