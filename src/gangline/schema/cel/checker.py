"""Type checking of expressions, with kube-apiserver's messages: undefined fields, wrong arguments, unknown names."""

from collections.abc import Callable, Mapping

import msgspec

from gangline.schema.cel.signatures import TYPE_NAMES, Overload, overloads_by_name
from gangline.schema.cel.stdlib import FUNCTIONS
from gangline.schema.cel.syntax import (
    CallExpr,
    ComprehensionExpr,
    ConstExpr,
    Expr,
    ExpressionError,
    IdentExpr,
    ListExpr,
    MapExpr,
    ParsedExpr,
    SelectExpr,
    parse,
    walk,
)
from gangline.schema.cel.types import (
    BOOL,
    DURATION,
    DYN,
    ERROR,
    INT,
    SIMPLE_TYPES,
    TIMESTAMP,
    CelType,
    TypeSubstitution,
    is_dyn,
    is_dyn_or_error,
    is_optional,
    list_type,
    map_type,
    more_general_type,
    optional_type,
    type_of_type,
    type_param,
)
from gangline.schema.cel.values import CelError
from gangline.schema.formats import go_duration_nanos, is_date_time
from gangline.schema.regex import PatternError, compile_pattern

_MAX_ERRORS = 100


_NOT_RUNNABLE_TYPES = {"timestamp": TIMESTAMP, "duration": DURATION}
"""Type names that pass the check, but cannot be evaluated."""


_PATTERN_CALLS = frozenset({"matches", "find", "findAll"})
_CONVERSIONS = frozenset({"bool", "double", "int", "uint"})


class InstantiationError(ExpressionError):
    """An expression passes the check, but no program can be made of it."""


class CheckedExpr(msgspec.Struct, frozen=True, eq=False):
    """An expression without type errors."""

    parsed: ParsedExpr
    types: dict[int, CelType]
    """Types by the identity of their node, because the nodes of an expanded macro share one id."""
    result: CelType
    variables: frozenset[str]
    """The variables that the expression uses."""
    function_names: dict[int, str]
    """Names of functions, types and variables that look like members, such as `sets.contains`, by their node's identity."""
    overloads: dict[int, list[tuple[str, ...]]]
    """For each call, by its identity, the kinds of the arguments of the matching overloads: several if some are `dyn`.
    """


def check_expression(source: str, variables: Mapping[str, CelType]) -> CheckedExpr:
    """Parse and check an expression. Raises `ExpressionError` with all errors, or `InstantiationError`."""
    parsed = parse(source)
    checker = _Checker(variables)
    result = checker.check(parsed.root)
    errors = checker.errors or list(_literal_errors(parsed, checker))
    if errors:
        errors.sort(key=lambda one: parsed.positions.get(one[0], 0))
        raise ExpressionError("\n".join(parsed.located_error(*error) for error in errors[:_MAX_ERRORS]))
    if reason := _instantiation_error(parsed):
        raise InstantiationError(reason)
    types = {node: checker.substitution.substitute(error, free_as_dyn=True) for node, error in checker.types.items()}
    resolved = checker.substitution.substitute(result, free_as_dyn=True)
    return CheckedExpr(
        parsed, types, resolved, frozenset(checker.used_variables), checker.function_names, checker.overloads
    )


class _Checker:
    def __init__(self, variables: Mapping[str, CelType]) -> None:
        self.substitution = TypeSubstitution()
        self.types: dict[int, CelType] = {}
        self.errors: list[tuple[int, str]] = []
        self.used_variables: set[str] = set()
        self.function_names: dict[int, str] = {}
        self.overloads: dict[int, list[tuple[str, ...]]] = {}
        self._scopes: list[dict[str, CelType]] = [dict(variables)]
        self._param_count = 0

    def check(self, node: Expr) -> CelType:
        result = self._check_node(node)
        self.types[id(node)] = result
        return result

    def _check_node(self, node: Expr) -> CelType:
        match node:
            case ConstExpr():
                return SIMPLE_TYPES[node.kind]
            case IdentExpr():
                return self._check_ident(node)
            case SelectExpr():
                return self._check_select(node)
            case CallExpr():
                return self._check_call(node)
            case ListExpr():
                return self._check_list(node)
            case MapExpr():
                return self._check_map(node)
            case ComprehensionExpr():
                return self._check_comprehension(node)

    def _add_error(self, node: int, sentence: str) -> CelType:
        self.errors.append((node, sentence))
        return ERROR

    def _lookup(self, name: str) -> CelType | None:
        for scope in reversed(self._scopes):
            if name in scope:
                self.used_variables.add(name)
                return scope[name]
        declared = TYPE_NAMES.get(name) or _NOT_RUNNABLE_TYPES.get(name)
        return type_of_type(declared) if declared is not None else None

    def _check_ident(self, node: IdentExpr) -> CelType:
        declared = self._lookup(node.name)
        return declared or self._add_error(node.id, f"undeclared reference to '{node.name}' (in container '')")

    def _check_select(self, node: SelectExpr) -> CelType:
        name = qualified_name(node)
        if name is not None and name in TYPE_NAMES:
            self.function_names[id(node)] = name
            return type_of_type(TYPE_NAMES[name])
        if name is not None and (variable := self._scopes[0].get(name)) is not None:
            self.function_names[id(node)] = name
            self.used_variables.add(name)
            return variable
        field_type = self._field_type(node.id, node.operand, node.field)
        return BOOL if node.test_only else self.substitution.substitute(field_type)

    def _field_type(self, node: int, operand: Expr, field: str, *, optional: bool = False) -> CelType:
        operand_type = self.substitution.substitute(self.check(operand))
        inner = operand_type.params[0] if is_optional(operand_type) else operand_type
        result = DYN
        match inner.kind:
            case "map":
                result = inner.params[1]
            case "struct" if inner.fields is not None:
                # A reserved word may be written with or without escapes.
                field_type = inner.fields.get(field) or inner.fields.get(f"__{field}__")
                result = field_type or self._add_error(node, f"undefined field '{field}'")
            case "param":
                self.substitution.is_assignable([DYN], [inner])
            case _ if not is_dyn_or_error(inner):
                self._add_error(node, f"type '{inner}' does not support field selection")
        return optional_type(result) if optional or is_optional(operand_type) else result

    def _check_call(self, node: CallExpr) -> CelType:
        if node.function == "_?._":
            return self._check_optional_field(node)
        arguments = [self.check(arg) for arg in node.args]
        overloads = overloads_by_name()
        if node.target is None:
            return self._resolve_overload(node, node.function, overloads.get(node.function), None, arguments)
        prefix = qualified_name(node.target)
        name = f"{prefix}.{node.function}"
        if prefix is not None and name in overloads:
            self.function_names[id(node)] = name
            return self._resolve_overload(node, name, overloads[name], None, arguments)
        target = self.check(node.target)
        return self._resolve_overload(node, node.function, overloads.get(node.function), target, arguments)

    def _check_optional_field(self, node: CallExpr) -> CelType:
        operand, field = node.args
        if not (isinstance(field, ConstExpr) and field.kind == "string"):
            return self._add_error(field.id, "unsupported optional field selection")
        return self.substitution.substitute(self._field_type(node.id, operand, field.value, optional=True))

    def _resolve_overload(
        self,
        node: CallExpr,
        name: str,
        overloads: list[Overload] | None,
        target: CelType | None,
        arguments: list[CelType],
    ) -> CelType:
        if overloads is None:
            return self._add_error(node.id, f"undeclared reference to '{name}' (in container '')")
        if name in ("_&&_", "_||_"):
            return self._check_logical(node, arguments)
        actual = arguments if target is None else [target, *arguments]
        result: CelType | None = None
        for overload in overloads:
            if overload.member != (target is not None):
                continue
            *formal, formal_result = self._instantiated((*overload.arguments, overload.result))
            if self.substitution.is_assignable(actual, formal):
                overload_result = self.substitution.substitute(formal_result)
                self.overloads.setdefault(id(node), []).append(tuple(part.kind for part in overload.arguments))
                result = overload_result if result is None or result == overload_result else DYN
        if result is not None:
            return result
        return self._add_no_overload(node.id, name, actual, member=target is not None)

    def _add_no_overload(self, node: int, name: str, actual: list[CelType], *, member: bool) -> CelType:
        names = [str(self.substitution.substitute(argument, free_as_dyn=True)) for argument in actual]
        signature = f"{names[0]}.({', '.join(names[1:])})" if member else f"({', '.join(names)})"
        return self._add_error(node, f"found no matching overload for '{name}' applied to '{signature}'")

    def _check_logical(self, node: CallExpr, arguments: list[CelType]) -> CelType:
        result = BOOL
        for arg, actual in zip(node.args, arguments, strict=True):
            if not self.substitution.is_assignable([actual], [BOOL]):
                result = self._add_mismatch(arg.id, BOOL, actual)
        return result

    def _instantiated(self, types: tuple[CelType, ...]) -> list[CelType]:
        """The same types with fresh type parameters."""
        substitution = TypeSubstitution()
        for name in {parameter.name for cel_type in types for parameter in _type_params(cel_type)}:
            substitution.bind(type_param(name), self._new_param())
        return [substitution.substitute(cel_type) for cel_type in types]

    def _new_param(self) -> CelType:
        self._param_count += 1
        return type_param(f"_var{self._param_count}")

    def _add_mismatch(self, node: int, expected: CelType, actual: CelType) -> CelType:
        return self._add_error(node, f"expected type '{expected}' but found '{actual}'")

    def _joined_type(self, joined: CelType | None, element: CelType) -> CelType:
        if joined is None:
            return element
        return more_general_type(joined, element) if self.substitution.is_assignable([joined], [element]) else DYN

    def _unwrap_optional(self, node: Expr, actual: CelType, *, optional: bool) -> CelType:
        if not optional:
            return actual
        if is_optional(actual):
            return actual.params[0]
        if not is_dyn(actual):
            self._add_mismatch(node.id, optional_type(actual), actual)
        return actual

    def _check_list(self, node: ListExpr) -> CelType:
        element: CelType | None = None
        for index, part in enumerate(node.elements):
            actual = self._unwrap_optional(part, self.check(part), optional=index in node.optional_indices)
            element = self._joined_type(element, actual)
        return list_type(element or self._new_param())

    def _check_map(self, node: MapExpr) -> CelType:
        if node.message_name:
            sentence = f"undeclared reference to '{node.message_name}' (in container '')"
            return self._add_error(node.id, sentence)
        key: CelType | None = None
        value: CelType | None = None
        for entry in node.entries:
            key = self._joined_type(key, self.check(entry.key))
            actual = self._unwrap_optional(entry.value, self.check(entry.value), optional=entry.optional)
            value = self._joined_type(value, actual)
        return map_type(key or self._new_param(), value or self._new_param())

    def _check_comprehension(self, node: ComprehensionExpr) -> CelType:
        range_type = self.substitution.substitute(self.check(node.iter_range))
        accumulator_type = self.check(node.accu_init)
        self._scopes.append({node.accu_var: accumulator_type})
        self._scopes.append(self._loop_variables(node, range_type))
        self._expect_type(node.loop_condition, BOOL)
        self._expect_type(node.loop_step, accumulator_type)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self.substitution.substitute(result)

    def _loop_variables(self, node: ComprehensionExpr, range_type: CelType) -> dict[str, CelType]:
        match range_type.kind:
            case "list":
                first, second = range_type.params[0], range_type.params[0]
                if node.iter_var2:
                    first = INT
            case "map":
                first, second = range_type.params
            case "dyn" | "error" | "param":
                self.substitution.is_assignable([DYN], [range_type])
                first = second = DYN
            case _:
                sentence = f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)"
                first = second = self._add_error(node.iter_range.id, sentence)
        return {node.iter_var: first, **({node.iter_var2: second} if node.iter_var2 else {})}

    def _expect_type(self, node: Expr, expected: CelType) -> None:
        actual = self.check(node)
        if not self.substitution.is_assignable([expected], [actual]):
            self._add_mismatch(node.id, expected, actual)


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` as one name; None for anything but names and dots."""
    if isinstance(node, IdentExpr):
        return node.name
    if isinstance(node, SelectExpr) and not node.test_only:
        prefix = qualified_name(node.operand)
        return f"{prefix}.{node.field}" if prefix is not None else None
    return None


def _type_params(cel_type: CelType) -> list[CelType]:
    return (
        [cel_type] if cel_type.kind == "param" else [part for inner in cel_type.params for part in _type_params(inner)]
    )


def _literal_errors(parsed: ParsedExpr, checker: _Checker) -> list[tuple[int, str]]:
    """Errors of string constants that can never be parsed, and of lists and maps of mixed types."""
    errors = []
    for node in walk(parsed.root):
        if isinstance(node, CallExpr) and (test := _LITERAL_PREDICATES.get(node.function)) and node.args:
            arg = node.args[0]
            if isinstance(arg, ConstExpr) and arg.kind == "string" and not test(arg.value):
                errors.append((arg.id, f"invalid {node.function} argument"))
    exempt = {below.id for node in walk(parsed.root) if _is_format_call(node) for below in walk(node)}
    for node in walk(parsed.root):
        if node.id in exempt:
            continue
        if isinstance(node, ListExpr):
            errors += _mixed_type_errors(node.elements, checker)
        elif isinstance(node, MapExpr):
            errors += _mixed_type_errors([entry.key for entry in node.entries], checker)
            errors += _mixed_type_errors([entry.value for entry in node.entries], checker)
    return errors


def _is_format_call(node: Expr) -> bool:
    return isinstance(node, CallExpr) and node.function == "format" and node.target is not None


def _mixed_type_errors(parts: list[Expr], checker: _Checker) -> list[tuple[int, str]]:
    first: CelType | None = None
    for part in parts:
        actual = checker.substitution.substitute(checker.types[id(part)], free_as_dyn=True)
        actual = actual.params[0] if is_optional(actual) else actual
        if first is not None and actual != first:
            return [(part.id, f"expected type '{first}' but found '{actual}'")]
        first = first or actual
    return []


def _instantiation_error(parsed: ParsedExpr) -> str:
    """Why an expression that passes the check cannot be evaluated; empty if it can."""
    for node in walk(parsed.root):
        if isinstance(node, IdentExpr) and node.name in _NOT_RUNNABLE_TYPES:
            return f"reference to undefined type: {node.name}"
        if isinstance(node, CallExpr) and node.args and (error := _constant_error(node)):
            return error
    return ""


def _constant_error(call: CallExpr) -> str:
    """Why a conversion or pattern of a constant fails. Such calls are evaluated in advance, and fail in advance."""
    last = call.args[0 if call.function in ("find", "findAll") else -1]
    if not isinstance(last, ConstExpr):
        return ""
    try:
        if call.function in _PATTERN_CALLS and last.kind == "string":
            compile_pattern(last.value)
        elif call.function in _CONVERSIONS and call.target is None and len(call.args) == 1:
            FUNCTIONS[call.function](last.value)
    except (PatternError, CelError) as error:
        return str(error)
    return ""


def _is_pattern(text: str) -> bool:
    try:
        compile_pattern(text)
    except PatternError:
        return False
    return True


_LITERAL_PREDICATES: dict[str, Callable[[str], bool]] = {
    "duration": lambda text: go_duration_nanos(text) is not None,
    "timestamp": is_date_time,
    "matches": _is_pattern,
}
