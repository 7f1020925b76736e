"""Functions on strings: the strings extension of CEL, regular expressions, and conversion to strings."""

import math
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from typing import Any

from gangline.schema.cel.values import (
    NO_SUCH_OVERLOAD,
    CelDuration,
    CelError,
    CelTimestamp,
    ListView,
    MapView,
    TypeValue,
    find_value,
    list_elements,
    map_keys,
    type_name,
)
from gangline.schema.go_text import number_text, quoted_text
from gangline.schema.regex import PatternError, Re2Pattern, compile_pattern

_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_SUPERSCRIPTS = str.maketrans("0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b")
_WHITESPACE = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def _expect_string(value: Any) -> str:
    if value.__class__ is not str:
        raise CelError(NO_SUCH_OVERLOAD)
    return str(value)


def _index_error(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _index_error(index)
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _index_error(offset)
    return text.find(part, offset)


def last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if not part:
        return offset
    if offset < 0:
        raise _index_error(offset)
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most if most >= 0 else -1)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not separator:
        letters = list(text)
        return letters if most < 0 or len(letters) <= most else [*letters[: most - 1], "".join(letters[most - 1 :])]
    return text.split(separator, most - 1 if most > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise _index_error(start)
        return text[start:]
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _index_error(start)
    if not 0 <= end <= len(text):
        raise _index_error(end)
    return text[start:end]


def _join(parts: Any, separator: str = "") -> str:
    return separator.join(_expect_string(part) for part in list_elements(parts))


def _compile_pattern(source: str) -> Re2Pattern:
    try:
        return compile_pattern(source)
    except PatternError as error:
        raise CelError(str(error)) from None


def _find(text: str, source: str) -> str:
    try:
        return _compile_pattern(source).find(text)
    except PatternError as error:
        raise CelError(str(error)) from None


def _find_all(text: str, source: str, most: int = -1) -> list[str]:
    try:
        return _compile_pattern(source).find_all(text, most)
    except PatternError as error:
        raise CelError(str(error)) from None


def to_string(value: Any) -> str:
    """`string()`."""
    match value:
        case bool():
            return "true" if value else "false"
        case CelDuration():
            return f"{_float_text(int(value) / 10**9)}s"
        case CelTimestamp():
            return _rfc3339_text(value)
        case TypeValue():
            raise CelError(NO_SUCH_OVERLOAD)
        case str():
            return value
        case int():
            return str(int(value))
        case float():
            return number_text(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if (text := getattr(value, "text", None)) is not None:
        return str(text)
    raise CelError(NO_SUCH_OVERLOAD)


def _rfc3339_text(value: CelTimestamp) -> str:
    nanos = int(value) % 10**9
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{value.moment().astimezone(UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _float_text(value: float) -> str:
    """A float without an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_string(value: Any, *, inside: bool = False) -> str:
    """`%s`. Inside of lists and maps, strings are quoted and floats have six decimals."""
    match value:
        case TypeValue():
            return str(value)
        case str() if inside:
            return quoted_text(value)
        case float() if inside:
            return f"{value:.6f}"
        case float():
            return number_text(value)
        case None:
            return "null"
        case bytes():
            return value.decode(errors="replace")
        case list() | ListView():
            return f"[{', '.join(_format_string(part, inside=True) for part in list_elements(value))}]"
        case dict() | MapView():
            entries = sorted(
                (_format_string(key, inside=True), _format_string(find_value(value, key)[0], inside=True))
                for key in map_keys(value)
            )
            return f"{{{', '.join(f'{key}:{part}' for key, part in entries)}}}"
        case bool() | int() | str():
            return to_string(value)
    raise CelError(
        "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
        f"types, durations, and timestamps, was given {type_name(value)}"
    )


def _format(pattern: str, arguments: Any) -> str:
    """`'%s of %d'.format([…])`."""
    values = list_elements(arguments)
    parts: list[str] = []
    used = at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter != "%":
            parts.append(letter)
            continue
        if pattern[at : at + 1] == "%":
            parts.append("%")
            at += 1
            continue
        precision, at = _parse_precision(pattern, at)
        clause = pattern[at : at + 1]
        at += 1
        if not clause:
            raise CelError("unexpected end of string")
        if used >= len(values):
            raise CelError(f"index {used} out of range")
        parts.append(_format_clause(clause, values[used], precision))
        used += 1
    return "".join(parts)


def _parse_precision(pattern: str, at: int) -> tuple[int, int]:
    if pattern[at : at + 1] != ".":
        return 6, at
    end = at + 1
    while end < len(pattern) and pattern[end].isdigit():
        end += 1
    return int(pattern[at + 1 : end] or 0), end


def _format_clause(clause: str, value: Any, precision: int) -> str:
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool | CelDuration | CelTimestamp)
    is_integer = is_numeric and not isinstance(value, float)
    match clause:
        case "s":
            return _format_string(value)
        case "d" if is_integer:
            return str(int(value))
        case "f" if isinstance(value, float):
            return f"{value:,.{precision}f}"
        case "e" if isinstance(value, float):
            mantissa, _, power = f"{value:.6e}".partition("e")
            return f"{mantissa}\u00d710{power.removeprefix('+').translate(_SUPERSCRIPTS)}"
        case "b" if is_integer or isinstance(value, bool):
            return f"{int(value):b}"
        case "o" if is_integer:
            return f"{int(value):o}"
        case "x" | "X" if is_integer:
            return f"{int(value):{clause}}"
        case "x" | "X" if isinstance(value, str | bytes):
            text = (value.encode() if isinstance(value, str) else value).hex()
            return text.upper() if clause == "X" else text
    if clause not in "sdfebox" and clause != "X":
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
    raise CelError(f"error during formatting: {clause} clause cannot be used on {type_name(value)}")


TEXT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": lambda text, part: _expect_string(part) in _expect_string(text),
    "startsWith": lambda text, part: _expect_string(text).startswith(_expect_string(part)),
    "endsWith": lambda text, part: _expect_string(text).endswith(_expect_string(part)),
    "matches": lambda text, source: _compile_pattern(_expect_string(source)).matches(_expect_string(text)),
    "find": _find,
    "findAll": _find_all,
    "charAt": _char_at,
    "lowerAscii": lambda text: _expect_string(text).translate(_LOWER),
    "upperAscii": lambda text: _expect_string(text).translate(_UPPER),
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": lambda text: _expect_string(text).strip(_WHITESPACE),
    "join": _join,
    "format": _format,
    "strings.quote": quoted_text,
    "string": to_string,
}
