"""Label and field selectors: parsing and matching.

Syntax, meaning and error texts are kube-apiserver's, so that the server, the scheduler, the command line and the SDK
agree
with a cluster to the letter. All values are immutable and can be shared and cached.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import msgspec

from gangline.api.meta import JSON
from gangline.api.names import label_value_problems, qualified_name_problems
from gangline.base.errors import InputError


class SelectorError(InputError):
    """A selector that cannot be parsed. The text is that of kube-apiserver's 400 response."""


class SelectorOperator(StrEnum):
    """How a requirement compares. Each value is the operator's spelling in a selector."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = ">"
    LESS_THAN = "<"


NODE_OPERATORS = {
    "In": SelectorOperator.IN,
    "NotIn": SelectorOperator.NOT_IN,
    "Exists": SelectorOperator.EXISTS,
    "DoesNotExist": SelectorOperator.DOES_NOT_EXIST,
    "Gt": SelectorOperator.GREATER_THAN,
    "Lt": SelectorOperator.LESS_THAN,
}
"""The operators of node selectors, by their names on the wire."""


_EQUALITY_OPERATORS = (SelectorOperator.EQUALS, SelectorOperator.DOUBLE_EQUALS, SelectorOperator.IN)
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_MAX_INT64 = 2**63 - 1


class Requirement(msgspec.Struct, frozen=True):
    """One term of a label selector."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet the requirement. Labels without the key meet `!=` and `notin`."""
        value = labels.get(self.key)
        match self.operator:
            case SelectorOperator.EXISTS:
                return value is not None
            case SelectorOperator.DOES_NOT_EXIST:
                return value is None
            case SelectorOperator.NOT_EQUALS | SelectorOperator.NOT_IN:
                return value not in self.values
            case SelectorOperator.GREATER_THAN | SelectorOperator.LESS_THAN:
                return value is not None and self._compares(value)
            case _:
                return value in self.values

    def _compares(self, value: str) -> bool:
        number, limit = _parse_int64(value), _parse_int64(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator is SelectorOperator.GREATER_THAN else number < limit

    def __str__(self) -> str:
        match self.operator:
            case SelectorOperator.EXISTS:
                return self.key
            case SelectorOperator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case SelectorOperator.IN | SelectorOperator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case _:
                return f"{self.key}{self.operator}{','.join(self.values)}"


class LabelSelector:
    """Requirements that must all be met. Equal selectors have the same text, however they were written."""

    __slots__ = ("_equal", "_never", "_rest", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = (), *, never: bool = False) -> None:
        """Requirements are not checked here; `parse` and `from_json` check them. `never` matches nothing."""
        self.requirements: Final = tuple(sorted(requirements, key=lambda term: term.key))
        self._never = never
        # Nearly every selector consists of equalities only, and it is matched against every object of every event.
        self._equal = [(term.key, term.values[0]) for term in self.requirements if _is_equality(term)]
        self._rest = [term for term in self.requirements if not _is_equality(term)]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The selector of a text such as `a=b,c!=d,e in (x,y),f notin (z),g,!h,n>1`. Empty text matches everything.

        Raises `SelectorError`.
        """
        return cls(_Parser(text).requirements())

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self:
        """A selector for all of these labels, unchecked: the selector of a Service or ReplicationController."""
        return cls(Requirement(key, SelectorOperator.EQUALS, (value,)) for key, value in labels.items())

    @classmethod
    def from_json(cls, selector: Mapping[str, Any] | None) -> Self:
        """The selector of a JSON selector. None matches nothing, `{}` everything. Raises `SelectorError`."""
        if selector is None:
            return cls(never=True)
        terms = [
            checked_requirement(key, SelectorOperator.EQUALS, (value,))
            for key, value in (selector.get("matchLabels") or {}).items()
        ]
        return cls([*terms, *map(_expression_requirement, selector.get("matchExpressions") or ())])

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        for term in self._rest:
            if not term.matches(labels):
                return False
        return not self._never

    def exact_value(self, key: str) -> str | None:
        """The only value that this label can have; None if there are several. An index can then answer the query."""
        for term in self.requirements:
            if term.key == key:
                return term.values[0] if term.operator in _EQUALITY_OPERATORS and len(term.values) == 1 else None
        return None

    def __bool__(self) -> bool:
        """False if the selector matches everything."""
        return self._never or bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"LabelSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LabelSelector) and self.requirements == other.requirements and self._never == other._never
        )

    def __hash__(self) -> int:
        return hash((self.requirements, self._never))


def _is_equality(term: Requirement) -> bool:
    return term.operator in (SelectorOperator.EQUALS, SelectorOperator.DOUBLE_EQUALS)


_EXPRESSION_OPERATORS: Final = {
    "In": SelectorOperator.IN,
    "NotIn": SelectorOperator.NOT_IN,
    "Exists": SelectorOperator.EXISTS,
    "DoesNotExist": SelectorOperator.DOES_NOT_EXIST,
}


def _expression_requirement(expression: Mapping[str, Any]) -> Requirement:
    name = str(expression.get("operator", ""))
    operator = _EXPRESSION_OPERATORS.get(name)
    if operator is None:
        raise SelectorError(f"{_quoted(name)} is not a valid label selector operator")
    return checked_requirement(str(expression.get("key", "")), operator, tuple(expression.get("values") or ()))


def checked_requirement(key: str, operator: SelectorOperator, values: tuple[str, ...]) -> Requirement:
    """A requirement with a valid key and valid values. Raises `SelectorError` with everything that is wrong."""
    wrong = (
        [_invalid_value_message("key", key, problem)] if (problem := "; ".join(qualified_name_problems(key))) else []
    )
    wrong += _value_count_problems(operator, values)
    if operator in (SelectorOperator.GREATER_THAN, SelectorOperator.LESS_THAN):
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        wrong += [
            _invalid_value_message(f"values[{at}]", value, rule)
            for at, value in enumerate(values)
            if _parse_int64(value) is None
        ]
    for at, value in enumerate(values):
        if problem := "; ".join(label_value_problems(value)):
            wrong.append(_invalid_value_message(f"values[{at}][{key}]", value, problem))
    if wrong:
        raise SelectorError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    return Requirement(key, operator, values)


def _value_count_problems(operator: SelectorOperator, values: tuple[str, ...]) -> list[str]:
    match operator:
        case SelectorOperator.IN | SelectorOperator.NOT_IN:
            well, rule = bool(values), "for 'in', 'notin' operators, values set can't be empty"
        case SelectorOperator.EXISTS | SelectorOperator.DOES_NOT_EXIST:
            well, rule = not values, "values set must be empty for exists and does not exist"
        case SelectorOperator.GREATER_THAN | SelectorOperator.LESS_THAN:
            well, rule = len(values) == 1, "for 'Gt', 'Lt' operators, exactly one value is required"
        case _:
            well, rule = len(values) == 1, "exact-match compatibility requires one single value"
    return [] if well else [f"values: Invalid value: {msgspec.json.encode(values).decode()}: {rule}"]


def _parse_int64(text: str) -> int | None:
    """The 64-bit integer of a text; None if it is not one."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_MAX_INT64 - 1 <= number <= _MAX_INT64 else None


def _invalid_value_message(path: str, value: str, problem: str) -> str:
    return f"{path}: Invalid value: {_quoted(value)}: {problem}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


class _SelectorToken(NamedTuple):
    kind: str
    """An operator or sign as written, "name", or "end"."""
    text: str


_NAME_TOKEN, _END_TOKEN = "name", "end"
_TOKEN_PATTERN = re.compile(r"(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)")
_BINARY_OPERATORS = {
    "in": SelectorOperator.IN,
    "notin": SelectorOperator.NOT_IN,
    "=": SelectorOperator.EQUALS,
    "==": SelectorOperator.DOUBLE_EQUALS,
    "!=": SelectorOperator.NOT_EQUALS,
    ">": SelectorOperator.GREATER_THAN,
    "<": SelectorOperator.LESS_THAN,
}
_BINARY_NAMES = "in, notin, =, ==, !=, gt, lt"


def _tokens(text: str) -> Iterator[_SelectorToken]:
    for match in _TOKEN_PATTERN.finditer(text):
        sign = match[1]
        yield _SelectorToken(sign if sign in _BINARY_OPERATORS or sign in "!()," else _NAME_TOKEN, sign)
    yield _SelectorToken(_END_TOKEN, "")


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._position = 0

    def requirements(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while (token := self._peek()).kind != _END_TOKEN:
            if token.kind not in (_NAME_TOKEN, "!"):
                raise SelectorError(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            requirements.append(self._parse_requirement())
            if self._at_end_after_comma():
                break
        return requirements

    def _parse_requirement(self) -> Requirement:
        try:
            return self._requirement()
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None

    def _at_end_after_comma(self) -> bool:
        """Consume the comma. True at the end of the text."""
        token = self._next()
        if token.kind == _END_TOKEN:
            return True
        if token.kind != ",":
            raise SelectorError(f"found '{token.text}', expected: ',' or 'end of string'")
        after = self._peek()
        if after.kind not in (_NAME_TOKEN, "!"):
            raise SelectorError(f"found '{after.text}', expected: identifier after ','")
        return False

    def _requirement(self) -> Requirement:
        token = self._next()
        negated = token.kind == "!"
        if negated:
            token = self._next()
        if token.kind != _NAME_TOKEN:
            raise SelectorError(f"found '{token.text}', expected: identifier")
        key = token.text
        if problem := "; ".join(qualified_name_problems(key)):
            raise SelectorError(_invalid_value_message("<nil>", key, problem))
        if negated:
            return checked_requirement(key, SelectorOperator.DOES_NOT_EXIST, ())
        if self._peek().kind in (_END_TOKEN, ","):
            return checked_requirement(key, SelectorOperator.EXISTS, ())
        operator = self._operator()
        set_based = operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)
        values = self._values() if set_based else {self._exact_text()}
        return checked_requirement(key, operator, tuple(sorted(values)))

    def _operator(self) -> SelectorOperator:
        # Not `_next`: only here are `in` and `notin` operators and not names.
        token = self._tokens[self._position]
        self._position += 1
        operator = _BINARY_OPERATORS.get(token.kind)
        if operator is None:
            raise SelectorError(f"found '{token.text}', expected: {_BINARY_NAMES}")
        return operator

    def _exact_text(self) -> str:
        if self._peek().kind in (_END_TOKEN, ","):
            return ""
        token = self._next()
        if token.kind != _NAME_TOKEN:
            raise SelectorError(f"found '{token.text}', expected: identifier")
        return token.text

    def _values(self) -> set[str]:
        """The values in `(x,y)`. Nothing before, between or after commas is the empty value."""
        token = self._next()
        if token.kind != "(":
            raise SelectorError(f"found '{token.text}' expected: '('")
        first = self._peek()
        if first.kind not in (_NAME_TOKEN, ",", ")"):
            raise SelectorError(f"found '{first.text}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            values.add(self._set_element())
            token = self._next()
            if token.kind == ")":
                return values
            if token.kind != ",":
                raise SelectorError(f"found '{token.text}', expected: ',' or ')'")

    def _set_element(self) -> str:
        token = self._peek()
        if token.kind in (",", ")"):
            return ""
        if token.kind != _NAME_TOKEN:
            raise SelectorError(f"found '{token.text}', expected: ',', or identifier")
        return self._next().text

    def _peek(self) -> _SelectorToken:
        token = self._tokens[self._position]
        return _SelectorToken(_NAME_TOKEN, token.text) if token.kind in ("in", "notin") else token

    def _next(self) -> _SelectorToken:
        token = self._peek()
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token


FieldReader = Callable[[JSON], str]
"""Reads one selectable field of an object as text; empty if the field is absent."""


class SelectableFields(msgspec.Struct, frozen=True):
    """The fields of a kind that a field selector may name."""

    fields: Mapping[str, FieldReader]
    refusal: str = "field label not supported: {label}"

    def reader(self, label: str) -> FieldReader:
        """The reader of a field. Raises `SelectorError` for a field that is not selectable."""
        field = self.fields.get(label)
        if field is None:
            raise SelectorError(self.refusal.format(label=label, quoted=_quoted(label)))
        return field


class FieldTerm(NamedTuple):
    field: str
    negated: bool
    value: str
    read: FieldReader

    def __str__(self) -> str:
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'!=' if self.negated else '='}{escaped}"


class FieldSelector:
    """Fields that must have a value, or must not have it."""

    __slots__ = ("terms",)

    def __init__(self, terms: Iterable[FieldTerm] = ()) -> None:
        self.terms: Final = tuple(terms)

    @classmethod
    def parse(cls, text: str, fields: SelectableFields) -> Self:
        r"""The selector of `metadata.name=x,status.phase!=Running`; `\,`, `\=`, `\\` escape. Raises `SelectorError`."""
        parts = [_parse_field_term(part, text) for part in sorted(re.findall(r"(?:\\.|[^\\,]|\\$)+", text, re.DOTALL))]
        return cls(FieldTerm(name, negated, value, fields.reader(name)) for name, negated, value in parts)

    def matches(self, obj: JSON) -> bool:
        return all((term.read(obj) == term.value) is not term.negated for term in self.terms)

    def exact_value(self, field: str) -> str | None:
        """The only value that this field can have; None if there are several. An index can then answer the query."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)

    def __bool__(self) -> bool:
        """False if the selector matches everything."""
        return bool(self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"


def exact_field_value(text: str, field: str) -> str | None:
    """The only value that the text of a field selector allows a field to have, whatever other fields it names.

    None if there are several, or if the text cannot be parsed.
    """
    return FieldSelector.parse(text, _ANY_FIELDS).exact_value(field) if is_field_selector(text) else None


def is_field_selector(text: str) -> bool:
    """Whether the text of a field selector can be parsed, whatever fields it names."""
    try:
        FieldSelector.parse(text, _ANY_FIELDS)
    except SelectorError:
        return False
    return True


class _AnyField(dict[str, FieldReader]):
    def get(self, label: str, default: object = None) -> FieldReader:
        return lambda obj: ""


_ANY_FIELDS = SelectableFields(_AnyField())


def _parse_field_term(part: str, selector_text: str) -> tuple[str, bool, str]:
    match = re.search(r"!=|==|=", part)
    if match is None:
        raise SelectorError(f"invalid selector: '{selector_text}'; can't understand '{part}'")
    return part[: match.start()], match[0] == "!=", _unescape(part[match.end() :])


def _unescape(value: str) -> str:
    for match in re.finditer(r"\\(.?)|[,=]", value, re.DOTALL):
        if match[0] in (",", "="):
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(match[0])}")
        if match[1] not in ("\\", ",", "=") or not match[1]:
            raise SelectorError(f"invalid field selector: invalid escape sequence: {match[0]}")
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
