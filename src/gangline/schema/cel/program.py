"""Programs: checked expressions as Python functions of their variables.

Each node becomes a closure. Errors are exceptions, except in accumulators of loops, where they are values: a later
element may still decide an `exists`. The cost is counted during evaluation, which stops at a limit.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gangline.schema.cel.checker import CheckedExpr
from gangline.schema.cel.signatures import TYPE_NAMES
from gangline.schema.cel.stdlib import FUNCTIONS
from gangline.schema.cel.syntax import (
    CallExpr,
    ComprehensionExpr,
    ConstExpr,
    Expr,
    IdentExpr,
    ListExpr,
    MapExpr,
    SelectExpr,
    walk,
)
from gangline.schema.cel.values import (
    NO_SUCH_OVERLOAD,
    OPTIONAL_NONE,
    CelError,
    CelOptional,
    CelUInt,
    ListView,
    MapView,
    ObjectView,
    TypeValue,
    find_value,
    map_keys,
    values_equal,
)

Activation: TypeAlias = dict[str, Any]
Evaluator: TypeAlias = Callable[[Activation], Any]
_COST_VARIABLE = "@work"


class CostLimitExceeded(CelError):
    """An evaluation exceeded its cost limit."""


class CelProgram:
    """An expression that can be evaluated."""

    def __init__(self, checked: CheckedExpr, limit: int) -> None:
        self.checked_expr = checked
        self._cost_limit = limit
        self._base_cost = evaluation_cost(checked.parsed.root)
        self._evaluator = _compile_node(checked.parsed.root, checked)

    def run(self, variables: Mapping[str, Any]) -> tuple[Any, int]:
        """The result and the cost. Raises `CelError`; `CostLimitExceeded` is one."""
        scope: Activation = {**variables, _COST_VARIABLE: [self._base_cost, self._cost_limit]}
        try:
            return self._evaluator(scope), scope[_COST_VARIABLE][0]
        except RecursionError:
            raise CostLimitExceeded("operation cancelled: actual cost limit exceeded") from None


def evaluation_cost(node: Expr) -> int:
    """The cost of evaluating a node once. Loops add the cost of their iterations."""
    return sum(1 for one in walk(node) if isinstance(one, CallExpr | IdentExpr | SelectExpr))


class ErrorValue:
    """An error in place of a value. Reading the variable that holds it raises the error."""

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error


def _compile_node(node: Expr, checked: CheckedExpr) -> Evaluator:
    match node:
        case ConstExpr():
            value = CelUInt(node.value) if node.kind == "uint" else node.value
            return lambda scope: value
        case IdentExpr():
            return _compile_ident(node.name, checked)
        case SelectExpr():
            return _compile_select(node, checked)
        case CallExpr():
            return _compile_call(node, checked)
        case ListExpr():
            return _compile_list(node, checked)
        case MapExpr():
            return _compile_map(node, checked)
        case ComprehensionExpr():
            return _compile_comprehension(node, checked)


def _compile_ident(name: str, checked: CheckedExpr) -> Evaluator:
    if name in TYPE_NAMES and name not in checked.variables:
        type_value = TypeValue(name)
        return lambda scope: type_value

    def variable(scope: Activation) -> Any:
        value = scope[name]
        if value.__class__ is ErrorValue:
            raise value.error
        return value

    return variable


def _compile_select(node: SelectExpr, checked: CheckedExpr) -> Evaluator:
    if (type_name := checked.function_names.get(id(node))) is not None:
        if type_name in checked.variables:
            return _compile_ident(type_name, checked)
        type_value = TypeValue(type_name)
        return lambda scope: type_value
    operand, field = _compile_node(node.operand, checked), node.field
    if node.test_only:
        return lambda scope: _has_field(operand(scope), field)

    def select(scope: Activation) -> Any:
        value = operand(scope)
        if value.__class__ is ObjectView:
            field_value, present = value.find(field)
            if present:
                return field_value
            raise CelError(f"no such key: {field}")
        return _select_field(value, field)

    return select


def _select_field(value: Any, field: str) -> Any:
    if isinstance(value, CelOptional):
        return _optional_field(value, field)
    if isinstance(value, MapView | dict):
        field_value, present = find_value(value, field)
        if present:
            return field_value
    raise CelError(f"no such key: {field}")


def _has_field(value: Any, field: str) -> bool:
    if isinstance(value, CelOptional):
        return value.present and _has_field(value.value, field)
    if isinstance(value, ObjectView | MapView | dict):
        return find_value(value, field)[1]
    return False


def _optional_field(value: Any, field: Any) -> CelOptional:
    if isinstance(value, CelOptional):
        return _optional_field(value.value, field) if value.present else OPTIONAL_NONE
    if isinstance(value, ObjectView | MapView | dict):
        field_value, present = find_value(value, field)
        return CelOptional(field_value) if present else OPTIONAL_NONE
    raise CelError(NO_SUCH_OVERLOAD)


def _optional_index(value: Any, key: Any) -> CelOptional:
    if isinstance(value, CelOptional):
        return _optional_index(value.value, key) if value.present else OPTIONAL_NONE
    if isinstance(value, ListView | list):
        return CelOptional(value[key]) if _is_index(key) and 0 <= key < len(value) else OPTIONAL_NONE
    return _optional_field(value, key)


def _is_index(key: Any) -> bool:
    return isinstance(key, int) and key.__class__ is not bool


def _index_value(value: Any, key: Any) -> Any:
    if isinstance(value, ListView | list):
        if not _is_index(key):
            raise CelError(f"unsupported index type '{key.__class__.__name__}' in list")
        if 0 <= key < len(value):
            return value[key]
        raise CelError(f"index out of bounds: {key}")
    if isinstance(value, ObjectView | MapView | dict):
        element, present = find_value(value, key)
        if present:
            return element
        raise CelError(f"no such key: {key}")
    if isinstance(value, CelOptional):
        return _optional_index(value, key)
    raise CelError(f"no such key: {key}")


def _compile_call(node: CallExpr, checked: CheckedExpr) -> Evaluator:
    name = checked.function_names.get(id(node), node.function)
    parts = node.args if node.target is None or name != node.function else [node.target, *node.args]
    args = [_compile_node(part, checked) for part in parts]
    match name:
        case "_&&_":
            return _compile_logical(args[0], args[1], decides=False)
        case "_||_":
            return _compile_logical(args[0], args[1], decides=True)
        case "_?_:_":
            return _compile_conditional(args[0], args[1], args[2])
        case "@not_strictly_false":
            return _compile_not_strictly_false(args[0])
        case "_==_":
            left, right = args
            return lambda scope: values_equal(left(scope), right(scope))
        case "_!=_":
            left, right = args
            return lambda scope: not values_equal(left(scope), right(scope))
        case "_?._":
            operand, field = args
            return lambda scope: _optional_field(operand(scope), field(scope))
    return _compile_function(name, args)


_INDEXING: dict[str, Callable[[Any, Any], Any]] = {"_[_]": _index_value, "_[?_]": _optional_index}


def _compile_function(name: str, args: list[Evaluator]) -> Evaluator:
    work: Callable[..., Any] = _INDEXING.get(name) or FUNCTIONS[name]
    if len(args) == 2:
        left, right = args
        return lambda scope: work(left(scope), right(scope))
    return lambda scope: work(*[arg(scope) for arg in args])


def _compile_logical(first: Evaluator, second: Evaluator, *, decides: bool) -> Evaluator:
    """The operand that decides the result wins, even over an error of the other operand."""

    def evaluate(scope: Activation) -> bool:
        failed: CelError | None = None
        for side in (first, second):
            try:
                value = side(scope)
            except CostLimitExceeded:
                raise
            except CelError as error:
                failed = failed or error
                continue
            if value.__class__ is bool:
                if value == decides:
                    return decides
            else:
                failed = failed or CelError(NO_SUCH_OVERLOAD)
        if failed is not None:
            raise failed
        return not decides

    return evaluate


def _compile_conditional(test: Evaluator, yes: Evaluator, no: Evaluator) -> Evaluator:
    def choose(scope: Activation) -> Any:
        value = test(scope)
        if value.__class__ is not bool:
            raise CelError(NO_SUCH_OVERLOAD)
        return yes(scope) if value else no(scope)

    return choose


def _compile_not_strictly_false(inner: Evaluator) -> Evaluator:
    def check(scope: Activation) -> bool:
        try:
            return bool(inner(scope) is not False)
        except CostLimitExceeded:
            raise
        except CelError:
            return True

    return check


def _compile_list(node: ListExpr, checked: CheckedExpr) -> Evaluator:
    parts = [_compile_node(part, checked) for part in node.elements]
    if not node.optional_indices:
        return lambda scope: [part(scope) for part in parts]

    def build(scope: Activation) -> list[Any]:
        elements = []
        for index, part in enumerate(parts):
            value = part(scope)
            if index not in node.optional_indices:
                elements.append(value)
            elif value.present:
                elements.append(value.value)
        return elements

    return build


def _compile_map(node: MapExpr, checked: CheckedExpr) -> Evaluator:
    parts = [
        (_compile_node(entry.key, checked), _compile_node(entry.value, checked), entry.optional)
        for entry in node.entries
    ]

    def build(scope: Activation) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for key, value, optional in parts:
            element = value(scope)
            if optional and not element.present:
                continue
            entries[key(scope)] = element.value if optional else element
        return entries

    return build


def _compile_comprehension(node: ComprehensionExpr, checked: CheckedExpr) -> Evaluator:
    iter_range, start, result = (
        _compile_node(part, checked) for part in (node.iter_range, node.accu_init, node.result)
    )
    condition, step = _compile_node(node.loop_condition, checked), _compile_node(node.loop_step, checked)
    first, second, accumulator = node.iter_var, node.iter_var2, node.accu_var
    step_cost = evaluation_cost(node.loop_condition) + evaluation_cost(node.loop_step)

    def run(outer: Activation) -> Any:
        pairs = _iteration_pairs(iter_range(outer), two=bool(second))
        scope = {**outer, accumulator: start(outer)}
        work = scope[_COST_VARIABLE]
        for first_value, second_value in pairs:
            scope[first] = first_value
            if second:
                scope[second] = second_value
            if not condition(scope):
                break
            work[0] += step_cost
            if work[0] > work[1]:
                raise CostLimitExceeded("operation cancelled: actual cost limit exceeded")
            scope[accumulator] = _step_result(step, scope)
        return result(scope)

    return run


def _step_result(step: Evaluator, scope: Activation) -> Any:
    try:
        return step(scope)
    except CostLimitExceeded:
        raise
    except CelError as error:
        return ErrorValue(error)


def _iteration_pairs(value: Any, *, two: bool) -> list[tuple[Any, Any]]:
    if isinstance(value, ListView | list):
        return (
            list(enumerate(_elements_with_errors(value)))
            if two
            else [(part, None) for part in _elements_with_errors(value)]
        )
    if isinstance(value, ObjectView | MapView | dict):
        return [(key, find_value(value, key)[0] if two else None) for key in map_keys(value)]
    names = {str: "String", bool: "Bool", CelUInt: "Uint", float: "Double", bytes: "Bytes"}
    raise CelError(f"got 'types.{names.get(value.__class__, 'Int')}', expected iterable type")


def _elements_with_errors(value: Any) -> list[Any]:
    """The elements, with errors for those that cannot be converted. An error counts only if the loop reads it."""
    if isinstance(value, list):
        return value
    elements: list[Any] = []
    for index in range(len(value)):
        try:
            elements.append(value[index])
        except CelError as error:
            elements.append(ErrorValue(error))
    return elements
