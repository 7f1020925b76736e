"""Type checking of expressions, with the server's sentences: undefined fields, wrong arguments, unknown names."""

from collections.abc import Callable, Mapping

import msgspec

from gangline.schema.cel.library import FUNCTIONS
from gangline.schema.cel.signatures import TYPE_NAMES, Overload, functions
from gangline.schema.cel.syntax import (
    Call,
    Const,
    Expr,
    ExpressionError,
    Ident,
    ListOf,
    Loop,
    MapOf,
    Parsed,
    Select,
    parse,
    walk,
)
from gangline.schema.cel.types import (
    BOOL,
    DURATION,
    DYN,
    ERROR,
    INT,
    SIMPLE,
    TIMESTAMP,
    Bindings,
    Type,
    is_dyn,
    is_optional,
    is_wild,
    list_of,
    map_of,
    most_general,
    optional_of,
    param,
    type_of,
)
from gangline.schema.cel.values import CelError
from gangline.schema.formats import go_duration, is_date_time
from gangline.schema.regex import PatternError, compiled

_MOST_ERRORS = 100


_WITHOUT_VALUE = {"timestamp": TIMESTAMP, "duration": DURATION}
"""Names of types that can be written, and then not run."""


_PATTERN_CALLS = frozenset({"matches", "find", "findAll"})
_CONVERSIONS = frozenset({"bool", "double", "int", "uint"})


class NotRunnable(ExpressionError):
    """An expression that checks, of which no program can be made."""


class Checked(msgspec.Struct, frozen=True, eq=False):
    """An expression that is known to make sense."""

    parsed: Parsed
    types: dict[int, Type]
    """By identity of the node, because the parts of a macro share its number."""
    result: Type
    names: frozenset[str]
    """Variables that are used."""
    calls: dict[int, str]
    """Names of functions that look like calls of a member, as `sets.contains`; by identity of the node."""
    overloads: dict[int, list[tuple[str, ...]]]
    """Kinds of the arguments of each overload that may be meant, by identity of the call. Several if some are `dyn`."""


def check(source: str, variables: Mapping[str, Type]) -> Checked:
    """Parse and check. Raises `ExpressionError` with all mistakes, or `NotRunnable`."""
    parsed = parse(source)
    checker = _Checker(variables)
    result = checker.check(parsed.root)
    mistakes = checker.mistakes or list(_wrong_literals(parsed, checker))
    if mistakes:
        mistakes.sort(key=lambda one: parsed.positions.get(one[0], 0))
        raise ExpressionError("\n".join(parsed.located(*one) for one in mistakes[:_MOST_ERRORS]))
    if wrong := _instantiation_mistake(parsed):
        raise NotRunnable(wrong)
    types = {node: checker.bindings.resolved(one, free_as_dyn=True) for node, one in checker.types.items()}
    resolved = checker.bindings.resolved(result, free_as_dyn=True)
    return Checked(parsed, types, resolved, frozenset(checker.used), checker.calls, checker.overloads)


class _Checker:
    def __init__(self, variables: Mapping[str, Type]) -> None:
        self.bindings = Bindings()
        self.types: dict[int, Type] = {}
        self.mistakes: list[tuple[int, str]] = []
        self.used: set[str] = set()
        self.calls: dict[int, str] = {}
        self.overloads: dict[int, list[tuple[str, ...]]] = {}
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._fresh = 0

    def check(self, node: Expr) -> Type:
        found = self._check(node)
        self.types[id(node)] = found
        return found

    def _check(self, node: Expr) -> Type:
        match node:
            case Const():
                return SIMPLE[node.kind]
            case Ident():
                return self._name(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Loop():
                return self._loop(node)

    def _mistake(self, node: int, sentence: str) -> Type:
        self.mistakes.append((node, sentence))
        return ERROR

    def _lookup(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                self.used.add(name)
                return scope[name]
        named = TYPE_NAMES.get(name) or _WITHOUT_VALUE.get(name)
        return type_of(named) if named is not None else None

    def _name(self, node: Ident) -> Type:
        found = self._lookup(node.name)
        return found or self._mistake(node.id, f"undeclared reference to '{node.name}' (in container '')")

    def _select(self, node: Select) -> Type:
        name = qualified(node)
        if name is not None and name in TYPE_NAMES:
            self.calls[id(node)] = name
            return type_of(TYPE_NAMES[name])
        found = self._field(node.id, node.operand, node.field)
        return BOOL if node.test else self.bindings.resolved(found)

    def _field(self, node: int, operand: Expr, field: str, *, optional: bool = False) -> Type:
        whole = self.bindings.resolved(self.check(operand))
        inner = whole.params[0] if is_optional(whole) else whole
        result = DYN
        match inner.kind:
            case "map":
                result = inner.params[1]
            case "struct" if inner.fields is not None:
                # A reserved word is written as it is or escaped.
                found = inner.fields.get(field) or inner.fields.get(f"__{field}__")
                result = found or self._mistake(node, f"undefined field '{field}'")
            case "param":
                self.bindings.fits([DYN], [inner])
            case _ if not is_wild(inner):
                self._mistake(node, f"type '{inner}' does not support field selection")
        return optional_of(result) if optional or is_optional(whole) else result

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            return self._optional_field(node)
        arguments = [self.check(arg) for arg in node.args]
        known = functions()
        if node.target is None:
            return self._resolve(node, node.function, known.get(node.function), None, arguments)
        prefix = qualified(node.target)
        name = f"{prefix}.{node.function}"
        if prefix is not None and name in known:
            self.calls[id(node)] = name
            return self._resolve(node, name, known[name], None, arguments)
        target = self.check(node.target)
        return self._resolve(node, node.function, known.get(node.function), target, arguments)

    def _optional_field(self, node: Call) -> Type:
        operand, field = node.args
        if not (isinstance(field, Const) and field.kind == "string"):
            return self._mistake(field.id, "unsupported optional field selection")
        return self.bindings.resolved(self._field(node.id, operand, field.value, optional=True))

    def _resolve(
        self,
        node: Call,
        name: str,
        overloads: list[Overload] | None,
        target: Type | None,
        arguments: list[Type],
    ) -> Type:
        if overloads is None:
            return self._mistake(node.id, f"undeclared reference to '{name}' (in container '')")
        if name in ("_&&_", "_||_"):
            return self._logical(node, arguments)
        given = arguments if target is None else [target, *arguments]
        result: Type | None = None
        for overload in overloads:
            if overload.member != (target is not None):
                continue
            *wanted, gives = self._instance((*overload.arguments, overload.result))
            if self.bindings.fits(given, wanted):
                one = self.bindings.resolved(gives)
                self.overloads.setdefault(id(node), []).append(
                    tuple(part.kind for part in overload.arguments)
                )
                result = one if result is None or result == one else DYN
        if result is not None:
            return result
        return self._no_overload(node.id, name, given, member=target is not None)

    def _no_overload(self, node: int, name: str, given: list[Type], *, member: bool) -> Type:
        shown = [str(self.bindings.resolved(one, free_as_dyn=True)) for one in given]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self._mistake(node, f"found no matching overload for '{name}' applied to '{signature}'")

    def _logical(self, node: Call, arguments: list[Type]) -> Type:
        result = BOOL
        for arg, found in zip(node.args, arguments, strict=True):
            if not self.bindings.fits([found], [BOOL]):
                result = self._mismatch(arg.id, BOOL, found)
        return result

    def _instance(self, types: tuple[Type, ...]) -> list[Type]:
        """The same types with parameters of their own."""
        own = Bindings()
        for name in {part.name for one in types for part in _params(one)}:
            own.bind(param(name), self._new_param())
        return [own.resolved(one) for one in types]

    def _new_param(self) -> Type:
        self._fresh += 1
        return param(f"_var{self._fresh}")

    def _mismatch(self, node: int, wanted: Type, found: Type) -> Type:
        return self._mistake(node, f"expected type '{wanted}' but found '{found}'")

    def _joined(self, known: Type | None, found: Type) -> Type:
        if known is None:
            return found
        return most_general(known, found) if self.bindings.fits([known], [found]) else DYN

    def _unwrapped(self, node: Expr, found: Type, *, optional: bool) -> Type:
        if not optional:
            return found
        if is_optional(found):
            return found.params[0]
        if not is_dyn(found):
            self._mismatch(node.id, optional_of(found), found)
        return found

    def _list(self, node: ListOf) -> Type:
        element: Type | None = None
        for index, part in enumerate(node.elements):
            found = self._unwrapped(part, self.check(part), optional=index in node.optional)
            element = self._joined(element, found)
        return list_of(element or self._new_param())

    def _map(self, node: MapOf) -> Type:
        if node.message:
            sentence = f"undeclared reference to '{node.message}' (in container '')"
            return self._mistake(node.id, sentence)
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._joined(key, self.check(entry.key))
            found = self._unwrapped(entry.value, self.check(entry.value), optional=entry.optional)
            value = self._joined(value, found)
        return map_of(key or self._new_param(), value or self._new_param())

    def _loop(self, node: Loop) -> Type:
        over = self.bindings.resolved(self.check(node.range))
        start = self.check(node.start)
        self._scopes.append({node.accumulator: start})
        self._scopes.append(self._loop_variables(node, over))
        self._expect(node.condition, BOOL)
        self._expect(node.step, start)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self.bindings.resolved(result)

    def _loop_variables(self, node: Loop, over: Type) -> dict[str, Type]:
        match over.kind:
            case "list":
                first, second = over.params[0], over.params[0]
                if node.variable2:
                    first = INT
            case "map":
                first, second = over.params
            case "dyn" | "error" | "param":
                self.bindings.fits([DYN], [over])
                first = second = DYN
            case _:
                sentence = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
                first = second = self._mistake(node.range.id, sentence)
        return {node.variable: first, **({node.variable2: second} if node.variable2 else {})}

    def _expect(self, node: Expr, wanted: Type) -> None:
        found = self.check(node)
        if not self.bindings.fits([wanted], [found]):
            self._mismatch(node.id, wanted, found)


def qualified(node: Expr) -> str | None:
    """`a.b.c` as one name; None when it is more than names and dots."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        prefix = qualified(node.operand)
        return f"{prefix}.{node.field}" if prefix is not None else None
    return None


def _params(one: Type) -> list[Type]:
    return [one] if one.kind == "param" else [part for inner in one.params for part in _params(inner)]


def _wrong_literals(parsed: Parsed, checker: _Checker) -> list[tuple[int, str]]:
    """Constants that can never be read, and lists and maps of mixed types."""
    wrong = []
    for node in walk(parsed.root):
        if isinstance(node, Call) and (test := _LITERAL_TESTS.get(node.function)) and node.args:
            arg = node.args[0]
            if isinstance(arg, Const) and arg.kind == "string" and not test(arg.value):
                wrong.append((arg.id, f"invalid {node.function} argument"))
    exempt = {below.id for node in walk(parsed.root) if _is_format(node) for below in walk(node)}
    for node in walk(parsed.root):
        if node.id in exempt:
            continue
        if isinstance(node, ListOf):
            wrong += _mixed(node.elements, checker)
        elif isinstance(node, MapOf):
            wrong += _mixed([entry.key for entry in node.entries], checker)
            wrong += _mixed([entry.value for entry in node.entries], checker)
    return wrong


def _is_format(node: Expr) -> bool:
    return isinstance(node, Call) and node.function == "format" and node.target is not None


def _mixed(parts: list[Expr], checker: _Checker) -> list[tuple[int, str]]:
    first: Type | None = None
    for part in parts:
        found = checker.bindings.resolved(checker.types[id(part)], free_as_dyn=True)
        found = found.params[0] if is_optional(found) else found
        if first is not None and found != first:
            return [(part.id, f"expected type '{first}' but found '{found}'")]
        first = first or found
    return []


def _instantiation_mistake(parsed: Parsed) -> str:
    """What checks but cannot be run."""
    for node in walk(parsed.root):
        if isinstance(node, Ident) and node.name in _WITHOUT_VALUE:
            return f"reference to undefined type: {node.name}"
        if isinstance(node, Call) and node.args and (wrong := _constant_mistake(node)):
            return wrong
    return ""


def _constant_mistake(call: Call) -> str:
    """Conversions and patterns of constants are worked out beforehand, and then fail beforehand."""
    last = call.args[0 if call.function in ("find", "findAll") else -1]
    if not isinstance(last, Const):
        return ""
    try:
        if call.function in _PATTERN_CALLS and last.kind == "string":
            compiled(last.value)
        elif call.function in _CONVERSIONS and call.target is None and len(call.args) == 1:
            FUNCTIONS[call.function](last.value)
    except (PatternError, CelError) as error:
        return str(error)
    return ""


def _is_pattern(text: str) -> bool:
    try:
        compiled(text)
    except PatternError:
        return False
    return True


_LITERAL_TESTS: dict[str, Callable[[str], bool]] = {
    "duration": lambda text: go_duration(text) is not None,
    "timestamp": is_date_time,
    "matches": _is_pattern,
}
