"""YAML text as JSON values, with the line of every value.

The YAML is Kubernetes' own dialect, as `kubectl` reads it: `yes`, `on` and `y` are booleans, `0644` is octal, `1:30`
and dates stay text, `2.0` is 2, keys become text, anchors and merge keys work. Unlike there, a key written twice is
an error. Files are not trusted: tags that make objects are refused, and depth and expansion are bounded.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import yaml

from gangline.api.codec.errors import DecodeError, FieldPath, path_text, value_text
from gangline.api.codec.nesting import MAX_DEPTH

_YamlLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# How many values aliases may add to those that the text spells out: plenty for a handwritten file, too few for an
# attack.
_MAX_ALIASED_VALUES = 100_000

_TAG_PREFIX = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[+-]?(?:(0[0-7]*|0[oO][0-7]+)|(0[xX][0-9a-fA-F]+)|(0[bB][01]+)|([1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MAX_NUMBER_LENGTH = 300
_YAML_KEYWORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "n", "N", "off", "Off", "OFF"), False),
}
_NON_JSON_NUMBERS = frozenset(sign + name for sign in ("", "+", "-") for name in (".inf", ".Inf", ".INF")) | {
    ".nan",
    ".NaN",
    ".NAN",
}
# `replicas:1`, but no address such as http://.
_NO_SPACE = re.compile(r"[ -]*[A-Za-z]\w*:[^\s/]")
# Spaces of web pages and word processors, which are text in YAML.
_STRANGE_SPACES = ("\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}")
_SYNTAX_HINTS = {
    "mapping values are not allowed in this context": "a colon where none can be: quote the text, or check the indentation",
    "could not find expected ':'": "a key without a colon after it",
    "did not find expected key": "a line that is not indented like its neighbours",
    "did not find expected '-' indicator": "a line that is not indented like the list it is in",
    "did not find expected ',' or ']'": "a list that is not closed with ]",
    "did not find expected ',' or '}'": "an object that is not closed with }",
    "found unexpected end of stream": "a quote that is not closed",
}


def yaml_values(text: str, file: str | None) -> Iterator[tuple[Any, Mapping[FieldPath, int]]]:
    """Every document of a YAML text: its value, and the line of each value in it by path. Raises `DecodeError`."""
    for node in _Composer(text, file).documents():
        lines: dict[FieldPath, int] = {}
        yield _Builder(file, lines, len(text)).value(node, ()), lines


def first_yaml_value(text: str) -> tuple[Any, list[str]]:
    """The value of the first document, as Go's parser reads it: of a key that is written twice the last value counts.

    Also returns what Go says of such keys. Raises `DecodeError`, whose text is Go's where the text is not YAML.
    """
    duplicates: list[str] = []
    try:
        for node in _Composer(text, None).documents():
            return _Builder(None, {}, len(text), duplicates).value(node, ()), duplicates
    except DecodeError as error:
        cause = error.__cause__
        raise DecodeError(_go_syntax_text(cause) if isinstance(cause, yaml.MarkedYAMLError) else str(error)) from error
    return None, duplicates


def _go_syntax_text(error: yaml.MarkedYAMLError) -> str:
    marks = (mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None)
    # Counted from zero, and one more only by the scanner.
    line = next((line for line in marks if line), 0)
    line += bool(line) and isinstance(error, yaml.scanner.ScannerError)
    return f"yaml: {f'line {line}: ' if line else ''}{error.problem}"


def value_lines(text: str) -> dict[FieldPath, int]:
    """The line of each value of a YAML text by path, as far as the text can be read."""
    lines: dict[FieldPath, int] = {}
    with suppress(DecodeError):
        for node in _Composer(text, None).documents():
            _Builder(None, lines, len(text)).value(node, ())
    return lines


class _Scalar(NamedTuple):
    line: int
    text: str
    plain: bool
    tag: str | None


class _Sequence(NamedTuple):
    line: int
    items: "list[_Node]"


class _Mapping(NamedTuple):
    line: int
    pairs: "list[tuple[_Node, _Node]]"


_Node = _Scalar | _Sequence | _Mapping


class _Composer:
    """Builds a graph of nodes from parser events; aliases are shared. `yaml.compose` crashes on deeply nested input."""

    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._anchors: dict[str, _Node] = {}

    def documents(self) -> Iterator[_Node]:
        try:
            self._events = yaml.parse(self._text, Loader=_YamlLoader)
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors = {}
                    yield self._node(next(self._events), 0)
        except yaml.MarkedYAMLError as error:
            self._refuse_syntax(error)
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            self._refuse("a control character, which YAML does not allow", line, error)
        except UnicodeEncodeError as error:
            self._refuse("the text is not Unicode", self._text.count("\n", 0, error.start) + 1, error)

    def _node(self, event: Any, depth: int) -> _Node:
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} levels deep", line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias_target(event.anchor, line)
        node: _Node
        if isinstance(event, yaml.ScalarEvent):
            node = _Scalar(line, event.value, event.implicit[0], event.tag)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event.tag, "seq", line)
            node = _Sequence(line, list(self._nodes(yaml.SequenceEndEvent, depth + 1)))
        else:
            self._check_tag(event.tag, "map", line)
            inside = self._nodes(yaml.MappingEndEvent, depth + 1)
            node = _Mapping(line, list(zip(inside, inside, strict=True)))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _nodes(self, end: type[Any], depth: int) -> Iterator[_Node]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield self._node(event, depth)

    def _alias_target(self, anchor: str | None, line: int) -> _Node:
        # An anchor is registered when its value is complete, so no value can contain itself.
        if anchor is None or anchor not in self._anchors:
            self._refuse(f"*{anchor} is used here, but there is no &{anchor} before it", line)
        return self._anchors[anchor]

    def _check_tag(self, tag: str | None, allowed: str, line: int) -> None:
        if tag not in (None, "!", _TAG_PREFIX + allowed):
            self._refuse(f"the tag {_short_tag(tag)} is not allowed", line)

    def _refuse_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        text = self._text.splitlines()[line - 1 : line]
        if text and "\t" in text[0][: len(text[0]) - len(text[0].lstrip())]:
            self._refuse("a tab in the indentation: YAML wants spaces", line, error)
        problem = error.problem or error.context or "it does not parse"
        for number in (line - 1, line):
            if "mapping values" in problem and _NO_SPACE.match("".join(self._text.splitlines()[number - 1 : number])):
                self._refuse("not YAML: no space after the colon", number, error)
        if mark and text and "cannot start any token" in problem:
            problem = f"a value that starts with {text[0][mark.column : mark.column + 1]} must be quoted"
        self._refuse(f"not YAML: {_SYNTAX_HINTS.get(problem, problem)}", line, error)

    def _refuse(self, problem: str, line: int, cause: Exception | None = None) -> NoReturn:
        raise DecodeError(problem, line=line, file=self._file) from cause


class _Builder:
    """Turns nodes into JSON and records the line of every value."""

    def __init__(
        self, file: str | None, lines: dict[FieldPath, int], length: int, duplicates: list[str] | None = None
    ) -> None:
        """Without `duplicates`, a key that is written twice is an error; else it is described there."""
        self._file, self._duplicates = file, duplicates
        self._lines = lines
        # Every value takes at least one character, so a text cannot spell out more values than it has characters.
        self._value_budget = length + _MAX_ALIASED_VALUES

    def value(self, node: _Node, path: FieldPath, line: int = 0) -> Any:
        """The JSON of a node. The line of a container is the line of its key; a scalar has its own line."""
        self._spend_budget(node, path)
        if isinstance(node, _Scalar):
            self._lines[path] = node.line
            return self._scalar(node, path)
        self._lines[path] = line or node.line
        if isinstance(node, _Sequence):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return {key: self.value(item, (*path, key), at) for key, (at, item) in self._members(node, path).items()}

    def _members(self, node: _Mapping, path: FieldPath) -> dict[str, tuple[int, _Node]]:
        own: dict[str, tuple[int, _Node]] = {}
        merged: dict[str, tuple[int, _Node]] = {}
        for key_node, item in node.pairs:
            if isinstance(key_node, _Scalar) and key_node.plain and key_node.text == "<<":
                # Where several merged maps have the same key, the first one wins.
                merged = {**self._merge_members(item, path), **merged}
                continue
            key = self._key(key_node, path)
            if key in own and self._duplicates is not None:
                self._duplicates.append(f'line {key_node.line}: key "{key}" already set in map')
            elif key in own:
                twice = f"written twice, on lines {own[key][0]} and {key_node.line}"
                self._refuse(twice, key_node.line, (*path, key))
            own[key] = (key_node.line, item)
        return {**merged, **own} if merged else own

    def _merge_members(self, node: _Node, path: FieldPath) -> dict[str, tuple[int, _Node]]:
        self._spend_budget(node, path)
        if isinstance(node, _Mapping):
            return self._members(node, path)
        if not isinstance(node, _Sequence) or not all(isinstance(item, _Mapping) for item in node.items):
            self._refuse("<< takes an object, or a list of objects", node.line, path)
        members: dict[str, tuple[int, _Node]] = {}
        for item in node.items:
            members = {**self._merge_members(item, path), **members}
        return members

    def _key(self, node: _Node, path: FieldPath) -> str:
        key = self._scalar(node, path) if isinstance(node, _Scalar) else None
        if key is None and isinstance(node, _Mapping):
            self._refuse("{{ }} is of a template: render the file first, as with helm template", node.line, path)
        if key is None:
            self._refuse("a key must be text", node.line, path)
        if isinstance(node, _Scalar) and node.plain and node.text.startswith(_STRANGE_SPACES):
            self._refuse("a no-break space in the indentation: YAML wants spaces", node.line, path)
        return key if isinstance(key, str) else value_text(key)

    def _scalar(self, node: _Scalar, path: FieldPath) -> Any:
        match node.tag:
            case None:
                value = _plain_scalar_value(node.text) if node.plain else node.text
            case "!" | "tag:yaml.org,2002:str" | "tag:yaml.org,2002:timestamp":
                value = node.text
            case "tag:yaml.org,2002:int" | "tag:yaml.org,2002:float":
                value = self._tagged_scalar(node, path, int | float)
            case "tag:yaml.org,2002:bool":
                value = self._tagged_scalar(node, path, bool)
            case "tag:yaml.org,2002:null":
                value = self._tagged_scalar(node, path, type(None))
            case _:
                self._refuse(f"the tag {_short_tag(node.tag)} is not allowed", node.line, path)
        if node.plain and value is node.text and node.text in _NON_JSON_NUMBERS:
            self._refuse(f"{node.text} is not a number in JSON: quote it if it is text", node.line, path)
        return value

    def _tagged_scalar(self, node: _Scalar, path: FieldPath, kind: Any) -> Any:
        value = _plain_scalar_value(node.text)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self._refuse(f"{value_text(node.text)} is not what its tag {_short_tag(node.tag)} says", node.line, path)
        return value

    def _spend_budget(self, node: _Node, path: FieldPath) -> None:
        self._value_budget -= 1
        if self._value_budget < 0:
            self._refuse(f"aliases add more than {_MAX_ALIASED_VALUES:,} values", node.line, path[:1])

    def _refuse(self, problem: str, line: int, path: FieldPath) -> NoReturn:
        raise DecodeError(problem, path=path_text(path), line=line, file=self._file)


def _plain_scalar_value(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _YAML_KEYWORDS:
        return _YAML_KEYWORDS[text]
    if not text or text[0] not in "+-.0123456789" or len(text) > _MAX_NUMBER_LENGTH:
        return text
    digits = text.replace("_", "") if text[0] != "." else text
    if found := _INTEGER.fullmatch(digits):
        base = (8, 16, 2, 10)[(found.lastindex or 4) - 1]
        return int(digits.lower().replace("0o", "0"), base)
    if not _FLOAT.fullmatch(digits):
        return text
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        return text
    # JSON has one kind of number, so 2.0 is the same as 2.
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _short_tag(tag: str | None) -> str:
    return (tag or "").replace(_TAG_PREFIX, "!!")
