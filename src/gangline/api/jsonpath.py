r"""Kubernetes' dialect of JSONPath: printer columns of custom resources, `kubectl -o jsonpath`, `kubectl wait --for`.

A template is text with actions in braces: `{range .items[*]}{.metadata.name}{"\n"}{end}`. Inside an action are steps:
`.field` (a backslash escapes dots), `['field']`, `[2]`, `[-1]`, `[1:4:2]`, `[*]`, `.*`, `..`, `[0,2]`,
`[?(@.a=="b")]`,
numbers and quoted text. A template is compiled once and can be shared.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

import msgspec

from gangline.base.errors import InputError

Step = Callable[[list[Any], bool], list[Any]]
"""Maps the current values to the next ones. If the flag is set, a missing field is an error."""


class JSONPathError(InputError):
    """A template that cannot be parsed, or that does not fit the data."""


class JSONPath:
    """A compiled template."""

    __slots__ = ("_parts", "source")

    def __init__(self, source: str) -> None:
        """Compile a template. Raises `JSONPathError`."""
        self.source: Final = source
        self._parts = _range_tree(_parse_parts(source))

    @classmethod
    def of_field(cls, path: str) -> "JSONPath":
        """A template of one path, written as `a.b`, `.a.b`, `{a.b}` or `{.a.b}`. Raises `JSONPathError`."""
        return cls(braced_path(path))

    def find(self, data: Any, *, strict: bool = False) -> list[list[Any]]:
        """The values of each part of the template. Raises `JSONPathError` if the data does not fit.

        If `strict`, a field that no value has is an error too.
        """
        return list(_evaluate(self._parts, data, strict))

    def first_value(self, data: Any, missing: Any = None) -> Any:
        """The first value, which may be null; `missing` if there is none or the data does not fit."""
        try:
            found = next(_evaluate(self._parts, data, strict=False), None)
        except JSONPathError:
            return missing
        return found[0] if found else missing

    def text(self, data: Any, *, strict: bool = False) -> str:
        """The template filled in, with spaces between the values of one action. Raises `JSONPathError` like `find`."""
        return "".join(" ".join(map(printed_value, values)) for values in _evaluate(self._parts, data, strict))


def braced_path(path: str) -> str:
    """A path with its braces and leading dot: `a.b` becomes `{.a.b}`. Raises `JSONPathError`."""
    match = re.fullmatch(r"\{\.?([^{}]+)\}|\.?([^{}]+)", path)
    if match is None:
        raise JSONPathError(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
        )
    return f"{{.{match[1] or match[2]}}}"


def printed_value(value: Any) -> str:
    """A value as a template prints it: text as it is, lists and objects as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        text = _ENCODER.encode(_plain_numbers(value)).decode()
        return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return str(_plain_numbers(value))


_ENCODER = msgspec.json.Encoder(order="sorted")
_INTEGRAL_BELOW = 1e21


def _plain_numbers(value: Any) -> Any:
    """The value with whole floats as integers, as Go writes them."""
    if isinstance(value, dict):
        return {name: _plain_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _INTEGRAL_BELOW:
        return int(value)
    return value


class _Text(NamedTuple):
    text: str


class _Action(NamedTuple):
    steps: list[Step]


class _RangeStart(NamedTuple):
    steps: list[Step]


class _RangeEnd(NamedTuple):
    pass


class _Range(NamedTuple):
    steps: list[Step]
    body: "list[_Node]"


_Node = _Text | _Action | _Range
_Part = _Text | _Action | _RangeStart | _RangeEnd


def _evaluate(nodes: list[_Node], data: Any, strict: bool) -> Iterator[list[Any]]:
    for node in nodes:
        match node:
            case _Text(text):
                yield [text]
            case _Action(steps):
                yield _apply_steps(steps, [data], strict)
            case _Range(steps, body):
                for item in _apply_steps(steps, [data], strict):
                    yield from _evaluate(body, item, strict)


def _apply_steps(steps: list[Step], values: list[Any], strict: bool) -> list[Any]:
    for step in steps:
        values = step(values, strict)
    return values


def _range_tree(parts: Iterator[_Part]) -> list[_Node]:
    """The parts as a tree of ranges. What follows a range without `{end}` belongs to it and is repeated after it."""
    levels: list[list[_Node]] = [[]]
    for part in parts:
        match part:
            case _RangeStart(steps):
                body: list[_Node] = []
                levels[-1].append(_Range(steps, body))
                levels.append(body)
            case _RangeEnd():
                if len(levels) == 1:
                    raise JSONPathError("not in range, nothing to end")
                levels.pop()
            case _:
                levels[-1].append(part)
    while len(levels) > 1:
        body = levels.pop()
        levels[-1].extend(body)
    return levels[0]


def _parse_parts(source: str) -> Iterator[_Part]:
    at = 0
    while at < len(source):
        brace = source.find("{", at)
        if brace != at:
            yield _Text(source[at : brace if brace > 0 else len(source)])
        if brace < 0:
            return
        scanner = _Scanner(source, brace + 1)
        yield scanner.action()
        at = scanner.position


_FIELD_TOKEN = re.compile(r"(?:\\.|[^\\ \t\r\n.,\[\]$@{}])*")
_WORD_TOKEN = re.compile(r"\w[^ \t\r\n.,\[\]$@{}]*")
_NUMBER_TOKEN = re.compile(r"[+-]?[0-9.]+")
_QUOTED_TOKEN = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\n])*)\1""")
_FILTER = re.compile(r"""\[\?\(((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^)"'])*)\)\]""")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_BRACKETS = re.compile(r"\[([^\]\n]*)\]")
_QUOTED_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")


class _Scanner:
    """Parses the steps of one action."""

    def __init__(self, source: str, at: int = 0) -> None:
        self._source = source
        self.position = at
        self._steps: list[Step] = []
        self._is_range = False
        self._is_end = False

    def action(self) -> _Part:
        """The action up to its closing brace, which is consumed too."""
        while not self._consume("}"):
            if self.position >= len(self._source) or self._source[self.position] in "\r\n":
                raise JSONPathError("unclosed action")
            self._scan_step()
        if self._is_end:
            return _RangeEnd()
        return _RangeStart(self._steps) if self._is_range else _Action(self._steps)

    def _scan_step(self) -> None:
        if match := self._match(_FILTER):
            self._steps.append(_parse_filter(match[1]))
        elif self._source.startswith("[?(", self.position):
            raise JSONPathError("unterminated filter")
        elif self._consume(".."):
            self._add_descent()
        elif self._consume(".") or self._is_word_after_descent():
            self._scan_field()
        elif self._source[self.position] in " @$":
            self.position += 1
        else:
            self._scan_element()

    def _scan_element(self) -> None:
        if match := self._match(_BRACKETS):
            self._steps.extend(_bracket_steps(match[1]))
        elif match := self._match(_QUOTED_TOKEN):
            self._steps.append(partial(_constant, _unescape(match[2])))
        elif match := self._match(_NUMBER_TOKEN):
            self._steps.append(partial(_constant, _parse_number(match[0])))
        elif match := self._match(_WORD_TOKEN):
            self._scan_word(match[0])
        else:
            raise JSONPathError(self._error_text())

    def _error_text(self) -> str:
        character = self._source[self.position]
        match character:
            case "[":
                return "unterminated array"
            case '"' | "'":
                return "unterminated quoted string"
            case _:
                return f"unrecognized character in action: U+{ord(character):04X} '{character}'"

    def _add_descent(self) -> None:
        if self._steps and self._steps[-1] is _descendants:
            raise JSONPathError("invalid multiple recursive descent")
        self._steps.append(_descendants)

    def _is_word_after_descent(self) -> bool:
        return (
            bool(self._steps)
            and self._steps[-1] is _descendants
            and _WORD_TOKEN.match(self._source, self.position) is not None
        )

    def _scan_field(self) -> None:
        match = self._match(_FIELD_TOKEN)
        assert match is not None
        self._steps.append(
            _all_children if match[0] == "*" else partial(_field_values, re.sub(r"\\(.)", r"\1", match[0]))
        )

    def _scan_word(self, word: str) -> None:
        match word:
            case "true" | "false":
                self._steps.append(partial(_constant, word == "true"))
            case "range":
                self._is_range = True
            case "end":
                self._is_end = True
            case _:
                raise JSONPathError(f"unrecognized identifier {word}")

    def _consume(self, text: str) -> bool:
        if not self._source.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._source, self.position)
        if match is not None:
            self.position = match.end()
        return match


def _parse_steps(text: str) -> list[Step]:
    part = _Scanner(f"{text}}}").action()
    if not isinstance(part, _Action):
        raise JSONPathError(f"unrecognized identifier {text.strip()}")
    return part.steps


def _bracket_steps(text: str) -> list[Step]:
    if "," in text:
        return [partial(_union, [_bracket_steps(piece.strip(" ")) for piece in text.split(",")])]
    if key := _QUOTED_KEY.fullmatch(text):
        return _parse_steps(f".{key[1]}")
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise JSONPathError(f"invalid array index {text}")
    start, stop, step = (int(group.lstrip(":")) if group and group != ":" else None for group in match.groups())
    single = match[2] is None
    return [partial(_slice, start or 0, (start or 0) + 1 if single else stop, step, single)]


def _parse_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise JSONPathError(f"cannot parse number {text}") from None


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)


def _constant(value: Any, values: list[Any], strict: bool) -> list[Any]:
    return [value for _ in values]


def _field_values(name: str, values: list[Any], strict: bool) -> list[Any]:
    found = [value[name] for value in values if isinstance(value, dict) and name in value]
    if strict and values and not found:
        raise JSONPathError(f"{name} is not found")
    return found


def _all_children(values: list[Any], strict: bool) -> list[Any]:
    return [child for value in values for child in _child_values(value)]


def _child_values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _descendants(values: list[Any], strict: bool) -> list[Any]:
    """Every list and object below these values that is not empty, outermost first."""
    descendants: list[Any] = []
    for value in values:
        if inside := _child_values(value):
            descendants += [value, *_descendants(inside, strict)]
    return descendants


def _slice(start: int, stop: int | None, step: int | None, single: bool, values: list[Any], strict: bool) -> list[Any]:
    elements: list[Any] = []
    for value in values:
        if value is None:
            continue
        if not isinstance(value, list):
            raise JSONPathError(f"{_go_type(value)} is not array or slice")
        elements += _slice_list(value, start, stop, step, single)
    return elements


def _slice_list(value: list[Any], start: int, stop: int | None, step: int | None, single: bool) -> list[Any]:
    length = len(value)
    first = start + length if start < 0 else start
    last = length if stop is None else stop
    if last < 0 or (last == 0 and single):
        last += length
    if first == last:
        return []
    if not 0 <= first < length:
        raise JSONPathError(f"array index out of bounds: index {first}, length {length}")
    if not 0 <= last <= length:
        raise JSONPathError(f"array index out of bounds: index {last - 1}, length {length}")
    if first > last:
        raise JSONPathError(f"starting index {first} is greater than ending index {last}")
    if step is not None and step <= 0:
        raise JSONPathError("step must be > 0")
    return value[first:last:step]


def _union(alternatives: list[list[Step]], values: list[Any], strict: bool) -> list[Any]:
    return [found for steps in alternatives for found in _apply_steps(steps, values, strict)]


_COMPARE_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _parse_filter(text: str) -> Step:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        return partial(_filter_present, _parse_steps(text))
    compare = _COMPARE_OPERATORS.get(match[2])
    if compare is None:
        raise JSONPathError(f"unrecognized filter operator {match[2]}")
    return partial(_filter_comparison, _parse_steps(match[1]), compare, _parse_steps(match[3]))


def _filter_present(steps: list[Step], values: list[Any], strict: bool) -> list[Any]:
    return [item for item in _list_items(values) if _apply_steps(steps, [item], strict=False)]


def _filter_comparison(
    left_steps: list[Step],
    compare: Callable[[Any, Any], bool],
    right_steps: list[Step],
    values: list[Any],
    strict: bool,
) -> list[Any]:
    matching: list[Any] = []
    for item in _list_items(values):
        lefts, rights = _apply_steps(left_steps, [item], strict), _apply_steps(right_steps, [item], strict)
        if not lefts or not rights:
            continue
        if len(lefts) > 1 or len(rights) > 1:
            raise JSONPathError("can only compare one element at a time")
        if _check_comparable(lefts[0], rights[0]) and compare(lefts[0], rights[0]):
            matching.append(item)
    return matching


def _list_items(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, list):
            raise JSONPathError(f"{printed_value(value)} is not array or slice and cannot be filtered")
        yield from value


def _check_comparable(left: Any, right: Any) -> bool:
    for value in (left, right):
        if not isinstance(value, str | bool | int | float):
            raise JSONPathError("invalid type for comparison")
    if type(left) is not type(right):
        raise JSONPathError("incompatible types for comparison")
    return True


def _go_type(value: Any) -> str:
    match value:
        case dict():
            return "map[string]interface {}"
        case bool():
            return "bool"
        case str():
            return "string"
        case _:
            return "float64" if isinstance(value, float) else "int64"
