"""Scalars as Go's decoder reads them: which values it accepts, and its messages about others."""

import calendar
import re
from typing import Any, Final

from gangline.schema.go_text import json_type_name
from gangline.schema.typed.types import TypeNode

QUANTITY_FORMAT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
QUANTITY_SUFFIX: Final = "unable to parse quantity's suffix"
_QUANTITY_PATTERN = re.compile(r"[+-]?\d*(?:\.\d*)?([eEinumkKMGTP]*[-+]?\d*)")
_SUFFIX_PATTERN = re.compile(r"[KMGTPE]i|[numkMGTPE]?|[eE][-+]?\d+")
_ACCEPTED_TYPES: Final[dict[str, tuple[type, ...]]] = {"boolean": (bool,), "number": (int, float), "string": (str,)}
INT_RANGE: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def unmarshal_error(value: Any, go: str, struct: str, path: str, literal: str = "") -> str:
    """The message about a value of a wrong type."""
    actual = f"{json_type_name(value)}{literal}"
    place = f"Go struct field {struct}.{path}" if path else "Go value"
    return f"json: cannot unmarshal {actual} into {place} of type {go}"


def scalar_error(value: Any, tree: TypeNode, struct: str, path: str) -> str:
    """What is wrong with a value that is not null; empty for a valid one."""
    match tree.scalar:
        case "integer":
            return _integer_error(value, tree.go_type or "int64", struct, path)
        case "int-or-string":
            return "" if isinstance(value, str) else _integer_error(value, "int32", struct, path)
        case "quantity":
            return quantity_error(value)
        case "time" | "micro-time":
            if not isinstance(value, str):
                return unmarshal_error(value, "string", struct, path)
            return time_error(value, micro=tree.scalar == "micro-time")
        case "byte":
            return base64_error(value) if isinstance(value, str) else unmarshal_error(value, "[]uint8", struct, path)
        case scalar:
            accepted = value.__class__ in _ACCEPTED_TYPES.get(scalar, (str,))
            return "" if accepted else unmarshal_error(value, tree.go_type, struct, path)


def _integer_error(value: Any, go: str, struct: str, path: str) -> str:
    if value.__class__ is float:
        return unmarshal_error(value, go, struct, path, f" {value!r}")
    if value.__class__ is not int:
        return unmarshal_error(value, go, struct, path)
    low, high = INT_RANGE.get(go, INT_RANGE["int64"])
    return "" if low <= value <= high else unmarshal_error(value, go, struct, path, f" {value}")


def quantity_error(value: Any) -> str:
    """What Go reports about an invalid quantity; empty for a valid one. Numbers are valid."""
    if value.__class__ in (int, float):
        return ""
    text = value.strip() if isinstance(value, str) else ""
    match = _QUANTITY_PATTERN.fullmatch(text)
    if not text or match is None:
        return QUANTITY_FORMAT
    return "" if _SUFFIX_PATTERN.fullmatch(match[1]) else QUANTITY_SUFFIX


def base64_error(text: str) -> str:
    """What Go reports about a text that is not padded standard base64; empty for a valid one. Line ends are ignored."""
    at = _base64_error_offset(text)
    return "" if at < 0 else f"illegal base64 data at input byte {at}"


_BASE64_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _base64_error_offset(text: str) -> int:
    """The position of the first invalid byte; -1 for valid base64."""
    offsets = [index for index, letter in enumerate(text) if letter not in "\r\n"]
    letters = [text[index] for index in offsets]
    first_invalid = next((i for i, letter in enumerate(letters) if letter not in _BASE64_ALPHABET), len(letters))
    if first_invalid == len(letters):
        # It ends within a group of four, whose start is reported.
        return -1 if first_invalid % 4 == 0 else len(text) - first_invalid % 4
    padding = letters[first_invalid:]
    if padding[0] != "=" or first_invalid % 4 < 2:
        return offsets[first_invalid]
    if first_invalid % 4 == 2 and padding[1:2] != ["="]:
        return len(text) if len(padding) == 1 else offsets[first_invalid]
    end = first_invalid + 4 - first_invalid % 4
    return -1 if len(letters) == end else offsets[end]


_TIME_LAYOUT: Final = (
    ("2006", re.compile(r"\d{4}"), 9999, ""),
    ("-", re.compile("-"), 0, ""),
    ("01", re.compile(r"\d\d"), 12, "month"),
    ("-", re.compile("-"), 0, ""),
    ("02", re.compile(r"\d\d"), 99, ""),
    ("T", re.compile("T"), 0, ""),
    ("15", re.compile(r"\d\d?"), 23, "hour"),
    (":", re.compile(":"), 0, ""),
    ("04", re.compile(r"\d\d"), 59, "minute"),
    (":", re.compile(":"), 0, ""),
    ("05", re.compile(r"\d\d"), 59, "second"),
)
_ZONE_PATTERN: Final = re.compile(r"Z|[+-]\d\d:\d\d")
_FRACTION_PATTERN: Final = re.compile(r"([.,]\d+)?")
_MICROS_PATTERN: Final = re.compile(r"[.,]\d{6}")


def time_error(text: str, *, micro: bool) -> str:
    """What Go reports about an invalid time; empty for a valid one. `micro`: six digits after the point are required."""
    layout = f"2006-01-02T15:04:05{'.000000' if micro else ''}Z07:00"
    remaining, numbers = text, []
    for name, pattern, most, label in _TIME_LAYOUT:
        match = pattern.match(remaining)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{remaining}" as "{name}"'
        number = int(match[0]) if match[0].isdigit() else 0
        if label and (number > most or (label == "month" and number == 0)):
            return f'parsing time "{text}": {label} out of range'
        numbers.append(number)
        remaining = remaining[match.end() :]
    for name, pattern in ((".000000", _MICROS_PATTERN if micro else _FRACTION_PATTERN), ("Z07:00", _ZONE_PATTERN)):
        match = pattern.match(remaining)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{remaining}" as "{name}"'
        remaining = remaining[match.end() :]
    if remaining:
        return f'parsing time "{text}": extra text: "{remaining}"'
    year, month, day = numbers[0], numbers[2], numbers[4]
    if not 1 <= day <= calendar.monthrange(year or 4, month)[1]:
        return f'parsing time "{text}": day out of range'
    return ""
