"""Values as Go prints them in kube-apiserver's messages."""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_JSON_TYPE_NAMES = {str: "string", bool: "bool", dict: "object", list: "array", int: "number", float: "number"}
_HTML_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def quoted_text(text: str) -> str:
    """`%q`: in double quotes, with unprintable characters escaped."""
    return f'"{"".join(_escaped_letter(letter) for letter in text)}"'


def _escaped_letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter in _GO_ESCAPES:
        return _GO_ESCAPES[letter]
    if letter == " " or (letter.isprintable() and not letter.isspace()):
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def number_text(value: float) -> str:
    """`%v`: integers as they are, floats in the shortest form that parses to the same value."""
    if isinstance(value, int):
        return str(value)
    return _float_text(value, smallest=-4, largest=6)


def _float_text(value: float, *, smallest: int, largest: int) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, _, power = f"{abs(value)!r}".partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = (integer + fraction).lstrip("0")
    point = len(integer) + int(power or 0) - (len(integer + fraction) - len((integer + fraction).lstrip("0")))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0"
    exponent = point - 1
    if exponent < smallest or exponent >= largest:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


def json_text(value: Any) -> str:
    """JSON as Go encodes it: keys sorted, `<`, `>` and `&` escaped. Structs keep the order of their fields."""
    return msgspec.json.encode(_with_go_floats(value), order="deterministic").decode().translate(_HTML_ESCAPES)


def _with_go_floats(value: Any) -> Any:
    """The value with floats as Go's encoder writes them, which is not always how Python does."""
    if isinstance(value, float):
        text = _float_text(value, smallest=-6, largest=21)
        return msgspec.Raw(re.sub(r"e([+-])0(\d)$", r"e\1\2", text).encode())
    if isinstance(value, Mapping):
        return {key: _with_go_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_go_floats(item) for item in value]
    return value


def json_type_name(value: Any) -> str:
    """What Go's JSON decoder calls the type of a value that is not null."""
    return _JSON_TYPE_NAMES[value.__class__]


def value_text(value: Any) -> str:
    """A wrong value as messages show it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, int | float):
        return number_text(value)
    return json_text(value)
