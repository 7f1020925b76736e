r"""JSONPath as Kubernetes speaks it: printer columns of custom resources, `kubectl -o jsonpath`, `kubectl wait --for`.

A template is text with actions in braces: `{range .items[*]}{.metadata.name}{"\n"}{end}`. Inside an action are steps:
`.field` (a backslash escapes dots), `['field']`, `[2]`, `[-1]`, `[1:4:2]`, `[*]`, `.*`, `..`, `[0,2]`, `[?(@.a=="b")]`,
numbers and quoted text. A template is compiled once and may be used by any number of readers.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

import msgspec

from gangline.base.errors import InputError

Step = Callable[[list[Any], bool], list[Any]]
"""From the values so far to the next ones; the flag makes a missing field an error."""


class JSONPathError(InputError):
    """A template that cannot be understood, or that does not fit the data it was used on."""


class JSONPath:
    """A compiled template."""

    __slots__ = ("_parts", "source")

    def __init__(self, source: str) -> None:
        """Compile. Raises `JSONPathError`."""
        self.source: Final = source
        self._parts = _nested(_parts(source))

    @classmethod
    def of_field(cls, path: str) -> "JSONPath":
        """A template of one path in any of the forms people write: `a.b`, `.a.b`, `{a.b}`, `{.a.b}`. Raises `JSONPathError`."""
        return cls(relaxed(path))

    def find(self, data: Any, *, strict: bool = False) -> list[list[Any]]:
        """What each part of the template found. Raises `JSONPathError` where the data does not fit (no list, index too high).

        With `strict` a field that no value has is an error too.
        """
        return list(_found(self._parts, data, strict))

    def first(self, data: Any, missing: Any = None) -> Any:
        """The first value found, which may be null; `missing` where there is none or the data does not fit."""
        try:
            found = next(_found(self._parts, data, strict=False), None)
        except JSONPathError:
            return missing
        return found[0] if found else missing

    def text(self, data: Any, *, strict: bool = False) -> str:
        """The template filled in: values of one action are separated by spaces. Raises `JSONPathError` like `find`."""
        return "".join(" ".join(map(text_of, values)) for values in _found(self._parts, data, strict))


def relaxed(path: str) -> str:
    """A path with its braces and leading dot: `a.b` becomes `{.a.b}`. Raises `JSONPathError`."""
    match = re.fullmatch(r"\{\.?([^{}]+)\}|\.?([^{}]+)", path)
    if match is None:
        raise JSONPathError(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
        )
    return f"{{.{match[1] or match[2]}}}"


def text_of(value: Any) -> str:
    """A value as a template prints it: text as it is, lists and objects as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        text = _encoder.encode(_plain_numbers(value)).decode()
        return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return str(_plain_numbers(value))


_encoder = msgspec.json.Encoder(order="sorted")
_INTEGRAL_BELOW = 1e21


def _plain_numbers(value: Any) -> Any:
    """Whole numbers without a fraction, as Go writes them."""
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


class _Begin(NamedTuple):
    steps: list[Step]


class _End(NamedTuple):
    pass


class _Range(NamedTuple):
    steps: list[Step]
    body: "list[_Node]"


_Node = _Text | _Action | _Range
_Part = _Text | _Action | _Begin | _End


def _found(nodes: list[_Node], data: Any, strict: bool) -> Iterator[list[Any]]:
    for node in nodes:
        match node:
            case _Text(text):
                yield [text]
            case _Action(steps):
                yield _walk(steps, [data], strict)
            case _Range(steps, body):
                for item in _walk(steps, [data], strict):
                    yield from _found(body, item, strict)


def _walk(steps: list[Step], values: list[Any], strict: bool) -> list[Any]:
    for step in steps:
        values = step(values, strict)
    return values


def _nested(parts: Iterator[_Part]) -> list[_Node]:
    """Ranges as a tree. What follows one that is not ended belongs to it, and once more to what is around it."""
    levels: list[list[_Node]] = [[]]
    for part in parts:
        match part:
            case _Begin(steps):
                body: list[_Node] = []
                levels[-1].append(_Range(steps, body))
                levels.append(body)
            case _End():
                if len(levels) == 1:
                    raise JSONPathError("not in range, nothing to end")
                levels.pop()
            case _:
                levels[-1].append(part)
    while len(levels) > 1:
        body = levels.pop()
        levels[-1].extend(body)
    return levels[0]


def _parts(source: str) -> Iterator[_Part]:
    at = 0
    while at < len(source):
        brace = source.find("{", at)
        if brace != at:
            yield _Text(source[at : brace if brace > 0 else len(source)])
        if brace < 0:
            return
        scanner = _Scanner(source, brace + 1)
        yield scanner.action()
        at = scanner.at


_FIELD = re.compile(r"(?:\\.|[^\\ \t\r\n.,\[\]$@{}])*")
_WORD = re.compile(r"\w[^ \t\r\n.,\[\]$@{}]*")
_NUMBER = re.compile(r"[+-]?[0-9.]+")
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\n])*)\1""")
_FILTER = re.compile(r"""\[\?\(((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^)"'])*)\)\]""")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_BRACKETS = re.compile(r"\[([^\]\n]*)\]")
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")


class _Scanner:
    """Reads the steps of one action."""

    def __init__(self, source: str, at: int = 0) -> None:
        self._source = source
        self.at = at
        self._steps: list[Step] = []
        self._range = False
        self._end = False

    def action(self) -> _Part:
        """The action up to its closing brace, which is taken too."""
        while not self._take("}"):
            if self.at >= len(self._source) or self._source[self.at] in "\r\n":
                raise JSONPathError("unclosed action")
            self._step()
        if self._end:
            return _End()
        return _Begin(self._steps) if self._range else _Action(self._steps)

    def _step(self) -> None:
        if match := self._match(_FILTER):
            self._steps.append(_filter(match[1]))
        elif self._source.startswith("[?(", self.at):
            raise JSONPathError("unterminated filter")
        elif self._take(".."):
            self._descend()
        elif self._take(".") or self._is_word_after_descent():
            self._field()
        elif self._source[self.at] in " @$":
            self.at += 1
        else:
            self._element()

    def _element(self) -> None:
        if match := self._match(_BRACKETS):
            self._steps.extend(_bracketed(match[1]))
        elif match := self._match(_QUOTED):
            self._steps.append(partial(_constant, _unquoted(match[2])))
        elif match := self._match(_NUMBER):
            self._steps.append(partial(_constant, _number(match[0])))
        elif match := self._match(_WORD):
            self._word(match[0])
        else:
            raise JSONPathError(self._complaint())

    def _complaint(self) -> str:
        character = self._source[self.at]
        match character:
            case "[":
                return "unterminated array"
            case '"' | "'":
                return "unterminated quoted string"
            case _:
                return f"unrecognized character in action: U+{ord(character):04X} '{character}'"

    def _descend(self) -> None:
        if self._steps and self._steps[-1] is _descendants:
            raise JSONPathError("invalid multiple recursive descent")
        self._steps.append(_descendants)

    def _is_word_after_descent(self) -> bool:
        return (
            bool(self._steps)
            and self._steps[-1] is _descendants
            and _WORD.match(self._source, self.at) is not None
        )

    def _field(self) -> None:
        match = self._match(_FIELD)
        assert match is not None
        self._steps.append(
            _children if match[0] == "*" else partial(_member, re.sub(r"\\(.)", r"\1", match[0]))
        )

    def _word(self, word: str) -> None:
        match word:
            case "true" | "false":
                self._steps.append(partial(_constant, word == "true"))
            case "range":
                self._range = True
            case "end":
                self._end = True
            case _:
                raise JSONPathError(f"unrecognized identifier {word}")

    def _take(self, text: str) -> bool:
        if not self._source.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._source, self.at)
        if match is not None:
            self.at = match.end()
        return match


def _steps(text: str) -> list[Step]:
    part = _Scanner(f"{text}}}").action()
    if not isinstance(part, _Action):
        raise JSONPathError(f"unrecognized identifier {text.strip()}")
    return part.steps


def _bracketed(text: str) -> list[Step]:
    if "," in text:
        return [partial(_union, [_bracketed(piece.strip(" ")) for piece in text.split(",")])]
    if key := _KEY.fullmatch(text):
        return _steps(f".{key[1]}")
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise JSONPathError(f"invalid array index {text}")
    start, stop, step = (
        int(group.lstrip(":")) if group and group != ":" else None for group in match.groups()
    )
    single = match[2] is None
    return [partial(_slice, start or 0, (start or 0) + 1 if single else stop, step, single)]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise JSONPathError(f"cannot parse number {text}") from None


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _unquoted(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)


def _constant(value: Any, values: list[Any], strict: bool) -> list[Any]:
    return [value for _ in values]


def _member(name: str, values: list[Any], strict: bool) -> list[Any]:
    found = [value[name] for value in values if isinstance(value, dict) and name in value]
    if strict and values and not found:
        raise JSONPathError(f"{name} is not found")
    return found


def _children(values: list[Any], strict: bool) -> list[Any]:
    return [child for value in values for child in _inside(value)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _descendants(values: list[Any], strict: bool) -> list[Any]:
    """Every list and object that is not empty, outermost first."""
    found: list[Any] = []
    for value in values:
        if inside := _inside(value):
            found += [value, *_descendants(inside, strict)]
    return found


def _slice(
    start: int, stop: int | None, step: int | None, single: bool, values: list[Any], strict: bool
) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value is None:
            continue
        if not isinstance(value, list):
            raise JSONPathError(f"{_go_type(value)} is not array or slice")
        found += _sliced(value, start, stop, step, single)
    return found


def _sliced(value: list[Any], start: int, stop: int | None, step: int | None, single: bool) -> list[Any]:
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
    return [found for steps in alternatives for found in _walk(steps, values, strict)]


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _filter(text: str) -> Step:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        return partial(_having, _steps(text))
    compare = _COMPARE.get(match[2])
    if compare is None:
        raise JSONPathError(f"unrecognized filter operator {match[2]}")
    return partial(_comparing, _steps(match[1]), compare, _steps(match[3]))


def _having(steps: list[Step], values: list[Any], strict: bool) -> list[Any]:
    return [item for item in _items(values) if _walk(steps, [item], strict=False)]


def _comparing(
    left: list[Step], compare: Callable[[Any, Any], bool], right: list[Step], values: list[Any], strict: bool
) -> list[Any]:
    found: list[Any] = []
    for item in _items(values):
        lefts, rights = _walk(left, [item], strict), _walk(right, [item], strict)
        if not lefts or not rights:
            continue
        if len(lefts) > 1 or len(rights) > 1:
            raise JSONPathError("can only compare one element at a time")
        if _comparable(lefts[0], rights[0]) and compare(lefts[0], rights[0]):
            found.append(item)
    return found


def _items(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, list):
            raise JSONPathError(f"{text_of(value)} is not array or slice and cannot be filtered")
        yield from value


def _comparable(left: Any, right: Any) -> bool:
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
