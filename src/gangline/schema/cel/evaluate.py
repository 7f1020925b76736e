"""Programs: checked expressions as Python functions of their variables.

Each node becomes a closure. Errors are exceptions, except in accumulators of loops, where they wait: a later element
may still decide an `exists`. Work is counted, and stopped when it is too much.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gangline.schema.cel.check import Checked
from gangline.schema.cel.library import FUNCTIONS
from gangline.schema.cel.signatures import TYPE_NAMES
from gangline.schema.cel.syntax import Call, Const, Expr, Ident, ListOf, Loop, MapOf, Select, walk
from gangline.schema.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    CelError,
    ListView,
    MapView,
    ObjectView,
    Optional,
    TypeValue,
    UInt,
    equal,
    find,
    keys_of,
)

Scope: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Scope], Any]
_WORK = "@work"


class TooExpensive(CelError):
    """More work than one evaluation may do."""


class Program:
    """A runnable expression."""

    def __init__(self, checked: Checked, limit: int) -> None:
        self.checked = checked
        self._limit = limit
        self._own = weight(checked.parsed.root)
        self._run = _compiled(checked.parsed.root, checked)

    def run(self, variables: Mapping[str, Any]) -> tuple[Any, int]:
        """The result and the work done. Raises `CelError`, `TooExpensive` among them; both carry the work as `work`."""
        scope: Scope = {**variables, _WORK: [self._own, self._limit]}
        try:
            return self._run(scope), scope[_WORK][0]
        except RecursionError:
            raise TooExpensive("operation cancelled: actual cost limit exceeded") from None


def weight(node: Expr) -> int:
    """Work of evaluating a node once; loops count what they do besides."""
    return sum(1 for one in walk(node) if isinstance(one, Call | Ident | Select))


class Failed:
    """An error in place of a value: whatever reads it fails so."""

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error


def _compiled(node: Expr, checked: Checked) -> Step:
    match node:
        case Const():
            value = UInt(node.value) if node.kind == "uint" else node.value
            return lambda scope: value
        case Ident():
            return _name(node.name, checked)
        case Select():
            return _select(node, checked)
        case Call():
            return _call(node, checked)
        case ListOf():
            return _list(node, checked)
        case MapOf():
            return _map(node, checked)
        case Loop():
            return _loop(node, checked)


def _name(name: str, checked: Checked) -> Step:
    if name.startswith("@"):
        return _accumulator(name)
    if name in TYPE_NAMES and name not in checked.names:
        named = TypeValue(name)
        return lambda scope: named

    def variable(scope: Scope) -> Any:
        value = scope[name]
        if value.__class__ is Failed:
            raise value.error
        return value

    return variable


def _accumulator(name: str) -> Step:
    def so_far(scope: Scope) -> Any:
        value = scope[name]
        if value.__class__ is Failed:
            raise value.error
        return value

    return so_far


def _select(node: Select, checked: Checked) -> Step:
    if (named := checked.calls.get(id(node))) is not None:
        known = TypeValue(named)
        return lambda scope: known
    operand, field = _compiled(node.operand, checked), node.field
    if node.test:
        return lambda scope: _present(operand(scope), field)

    def select(scope: Scope) -> Any:
        value = operand(scope)
        if value.__class__ is ObjectView:
            found, there = value.find(field)
            if there:
                return found
            raise CelError(f"no such key: {field}")
        return _selected(value, field)

    return select


def _selected(value: Any, field: str) -> Any:
    if isinstance(value, Optional):
        return _optional_field(value, field)
    if isinstance(value, MapView | dict):
        found, there = find(value, field)
        if there:
            return found
    raise CelError(f"no such key: {field}")


def _present(value: Any, field: str) -> bool:
    if isinstance(value, Optional):
        return value.present and _present(value.value, field)
    if isinstance(value, ObjectView | MapView | dict):
        return find(value, field)[1]
    return False


def _optional_field(value: Any, field: Any) -> Optional:
    if isinstance(value, Optional):
        return _optional_field(value.value, field) if value.present else NOTHING
    if isinstance(value, ObjectView | MapView | dict):
        found, there = find(value, field)
        return Optional(found) if there else NOTHING
    raise CelError(NO_OVERLOAD)


def _optional_index(value: Any, key: Any) -> Optional:
    if isinstance(value, Optional):
        return _optional_index(value.value, key) if value.present else NOTHING
    if isinstance(value, ListView | list):
        return Optional(value[key]) if _is_index(key) and 0 <= key < len(value) else NOTHING
    return _optional_field(value, key)


def _is_index(key: Any) -> bool:
    return isinstance(key, int) and key.__class__ is not bool


def _index(value: Any, key: Any) -> Any:
    if isinstance(value, ListView | list):
        if not _is_index(key):
            raise CelError(f"unsupported index type '{key.__class__.__name__}' in list")
        if 0 <= key < len(value):
            return value[key]
        raise CelError(f"index out of bounds: {key}")
    if isinstance(value, ObjectView | MapView | dict):
        found, there = find(value, key)
        if there:
            return found
        raise CelError(f"no such key: {key}")
    if isinstance(value, Optional):
        return _optional_index(value, key)
    raise CelError(f"no such key: {key}")


def _call(node: Call, checked: Checked) -> Step:
    name = checked.calls.get(id(node), node.function)
    parts = node.args if node.target is None or name != node.function else [node.target, *node.args]
    args = [_compiled(part, checked) for part in parts]
    match name:
        case "_&&_":
            return _logical(args[0], args[1], decides=False)
        case "_||_":
            return _logical(args[0], args[1], decides=True)
        case "_?_:_":
            return _conditional(args[0], args[1], args[2])
        case "@not_strictly_false":
            return _not_strictly_false(args[0])
        case "_==_":
            one, other = args
            return lambda scope: equal(one(scope), other(scope))
        case "_!=_":
            one, other = args
            return lambda scope: not equal(one(scope), other(scope))
        case "_?._":
            operand, field = args
            return lambda scope: _optional_field(operand(scope), field(scope))
    return _function(name, args)


_INDEXING: dict[str, Callable[[Any, Any], Any]] = {"_[_]": _index, "_[?_]": _optional_index}


def _function(name: str, args: list[Step]) -> Step:
    work: Callable[..., Any] = _INDEXING.get(name) or FUNCTIONS[name]
    if len(args) == 2:
        one, other = args
        return lambda scope: work(one(scope), other(scope))
    return lambda scope: work(*[arg(scope) for arg in args])


def _logical(left: Step, right: Step, *, decides: bool) -> Step:
    """The side that decides wins, even over an error of the other."""

    def both(scope: Scope) -> bool:
        failed: CelError | None = None
        for side in (left, right):
            try:
                value = side(scope)
            except TooExpensive:
                raise
            except CelError as error:
                failed = failed or error
                continue
            if value.__class__ is bool:
                if value == decides:
                    return decides
            else:
                failed = failed or CelError(NO_OVERLOAD)
        if failed is not None:
            raise failed
        return not decides

    return both


def _conditional(test: Step, yes: Step, no: Step) -> Step:
    def choose(scope: Scope) -> Any:
        value = test(scope)
        if value.__class__ is not bool:
            raise CelError(NO_OVERLOAD)
        return yes(scope) if value else no(scope)

    return choose


def _not_strictly_false(inner: Step) -> Step:
    def check(scope: Scope) -> bool:
        try:
            return bool(inner(scope) is not False)
        except TooExpensive:
            raise
        except CelError:
            return True

    return check


def _list(node: ListOf, checked: Checked) -> Step:
    parts = [_compiled(part, checked) for part in node.elements]
    if not node.optional:
        return lambda scope: [part(scope) for part in parts]

    def build(scope: Scope) -> list[Any]:
        built = []
        for index, part in enumerate(parts):
            value = part(scope)
            if index not in node.optional:
                built.append(value)
            elif value.present:
                built.append(value.value)
        return built

    return build


def _map(node: MapOf, checked: Checked) -> Step:
    parts = [
        (_compiled(one.key, checked), _compiled(one.value, checked), one.optional) for one in node.entries
    ]

    def build(scope: Scope) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        for key, value, optional in parts:
            found = value(scope)
            if optional and not found.present:
                continue
            built[key(scope)] = found.value if optional else found
        return built

    return build


def _loop(node: Loop, checked: Checked) -> Step:
    over, start, result = (_compiled(part, checked) for part in (node.range, node.start, node.result))
    condition, step = _compiled(node.condition, checked), _compiled(node.step, checked)
    first, second, accumulator = node.variable, node.variable2, node.accumulator
    each = weight(node.condition) + weight(node.step)

    def run(outer: Scope) -> Any:
        pairs = _pairs(over(outer), two=bool(second))
        scope = {**outer, accumulator: start(outer)}
        work = scope[_WORK]
        for one, other in pairs:
            scope[first] = one
            if second:
                scope[second] = other
            if not condition(scope):
                break
            work[0] += each
            if work[0] > work[1]:
                raise TooExpensive("operation cancelled: actual cost limit exceeded")
            scope[accumulator] = _kept(step, scope)
        return result(scope)

    return run


def _kept(step: Step, scope: Scope) -> Any:
    try:
        return step(scope)
    except TooExpensive:
        raise
    except CelError as error:
        return Failed(error)


def _pairs(value: Any, *, two: bool) -> list[tuple[Any, Any]]:
    if isinstance(value, ListView | list):
        return list(enumerate(_lazily(value))) if two else [(part, None) for part in _lazily(value)]
    if isinstance(value, ObjectView | MapView | dict):
        return [(key, find(value, key)[0] if two else None) for key in keys_of(value)]
    names = {str: "String", bool: "Bool", UInt: "Uint", float: "Double", bytes: "Bytes"}
    raise CelError(f"got 'types.{names.get(value.__class__, 'Int')}', expected iterable type")


def _lazily(value: Any) -> list[Any]:
    """Elements, with an error where one cannot be read: it counts only if the loop looks at it."""
    if isinstance(value, list):
        return value
    found: list[Any] = []
    for index in range(len(value)):
        try:
            found.append(value[index])
        except CelError as error:
            found.append(Failed(error))
    return found
