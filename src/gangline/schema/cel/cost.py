"""What an expression can cost at most, before it ever runs: the estimate by which kube-apiserver refuses a rule.

A unit is about one step. Sizes come from the bounds that the schema sets; a value without a bound counts as large as a
request can be. So a rule over an unbounded list is refused for the list it could get, not for what the rule says.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from gangline.schema.cel import syntax
from gangline.schema.cel.checker import CheckedExpr
from gangline.schema.cel.decl_types import DeclType
from gangline.schema.cel.sizes import MAX_COST, EntrySizes, SizeTracker, literal_size

_TRAVERSAL_FACTOR = 0.1
_REGEX_FACTOR = 0.25
_LIST_COST, _MAP_COST = 10, 30
_IP_ADDRESS_BYTES = 16
_NAME_PATTERN_LENGTH = 128
_NAMED_FORMAT_LENGTH = 64


def estimate_cost(checked: CheckedExpr, declared: DeclType) -> int:
    """The most that one evaluation can cost."""
    return _CostEstimator(checked, declared).cost(checked.parsed.root)


def _saturating_product(left: int, right: int) -> int:
    return min(left * right, MAX_COST)


def _saturating_sum(*costs: int) -> int:
    return min(sum(costs), MAX_COST)


def _scaled_cost(size: int, factor: float) -> int:
    return min(math.ceil(float(size) * factor), MAX_COST)


def _traversal_cost(size: int) -> int:
    return _scaled_cost(size, _TRAVERSAL_FACTOR)


class _CostEstimator:
    """Walks over an expression, adds up costs, and records sizes on the way."""

    def __init__(self, checked: CheckedExpr, declared: DeclType) -> None:
        self._checked_expr = checked
        self._sizes = SizeTracker(checked, declared)

    def cost(self, node: syntax.Expr) -> int:
        match node:
            case syntax.ConstExpr():
                return 0
            case syntax.IdentExpr():
                self._sizes.set_ident_path(node)
                return 1
            case syntax.SelectExpr():
                return self._select_cost(node)
            case syntax.CallExpr():
                return self._call_cost(node)
            case syntax.ListExpr():
                return self._list_cost(node)
            case syntax.MapExpr():
                return self._map_cost(node)
            case syntax.ComprehensionExpr():
                return self._bind_cost(node) if _is_bind(node) else self._comprehension_cost(node)

    def _select_cost(self, node: syntax.SelectExpr) -> int:
        if (name := self._checked_expr.function_names.get(id(node))) is not None:
            self._sizes.set_path(node, (name,))
            return 1
        inner = self.cost(node.operand)
        if node.test_only:
            return inner
        self._sizes.set_path(node, (*self._sizes.path(node.operand), node.field))
        return _saturating_sum(inner, 1) if self._sizes.type(node.operand).kind in ("map", "struct", "param") else inner

    def _list_cost(self, node: syntax.ListExpr) -> int:
        total, largest = _LIST_COST, 0
        for part in node.elements:
            total = _saturating_sum(total, self.cost(part))
            largest = max(largest, self._sizes.size_or_max(part))
        self._sizes.set_entry_sizes(node, EntrySizes("list", 1, largest))
        return total

    def _map_cost(self, node: syntax.MapExpr) -> int:
        total, key, value = _MAP_COST, 0, 0
        for entry in node.entries:
            total = _saturating_sum(total, self.cost(entry.key), self.cost(entry.value))
            key = max(key, self._sizes.size_or_max(entry.key))
            value = max(value, self._sizes.size_or_max(entry.value))
        self._sizes.set_entry_sizes(node, EntrySizes("map", key, value))
        return total

    def _comprehension_cost(self, node: syntax.ComprehensionExpr) -> int:
        total = _saturating_sum(self.cost(node.iter_range), self.cost(node.accu_init))
        self._sizes.push_accumulator(node)
        names = self._sizes.push_iteration_variables(node)
        step_cost = _saturating_sum(self.cost(node.loop_condition), self.cost(node.loop_step))
        self._sizes.pop_locals(*names)
        total = _saturating_sum(total, self.cost(node.result))
        self._sizes.pop_locals(node.accu_var)
        count = self._sizes.size_or_max(node.iter_range)
        self._record_comprehension_size(node, count)
        return _saturating_sum(total, _saturating_product(count, step_cost))

    def _record_comprehension_size(self, node: syntax.ComprehensionExpr, count: int) -> None:
        if isinstance(node.accu_init, syntax.ConstExpr):
            self._sizes.set_size(node, self._sizes.size_or_max(node.accu_init))
        elif isinstance(node.accu_init, syntax.ListExpr | syntax.MapExpr):
            self._sizes.set_size(node, count)
            self._sizes.set_entry_sizes(node, self._sizes.entry_sizes(node.loop_step))

    def _bind_cost(self, node: syntax.ComprehensionExpr) -> int:
        total = _saturating_sum(self.cost(node.iter_range), self.cost(node.accu_init))
        self._sizes.push_accumulator(node)
        total = _saturating_sum(total, self.cost(node.result))
        self._sizes.pop_locals(node.accu_var)
        self._sizes.copy_sizes(node, node.result)
        return total

    def _call_cost(self, node: syntax.CallExpr) -> int:
        name = self._checked_expr.function_names.get(id(node), node.function)
        if name == "dyn":
            inner = self.cost(node.args[0])
            self._sizes.copy_sizes(node, node.args[0])
            return _saturating_sum(1, inner)
        argument_costs = [self.cost(arg) for arg in node.args]
        target = node.target if name == node.function else None
        target_cost = self.cost(target) if target is not None else 0
        call = _Call(node, name, target, self._sizes, self._checked_expr.overloads.get(id(node), []))
        cost, size = self._cost_with_arguments(call, argument_costs)
        if name == "_[_]":
            size = _index_size(call) or size
        self._sizes.set_size(node, size)
        return _saturating_sum(target_cost, cost)

    def _cost_with_arguments(self, call: "_Call", costs: list[int]) -> "_CallCost":
        if call.name in ("_&&_", "_||_"):
            return _saturating_sum(*costs), None
        if call.name == "_?_:_":
            _, yes, no = call.node.args
            self._sizes.unite_entry_sizes(call.node, yes, no)
            return _saturating_sum(costs[0], max(costs[1], costs[2])), max(call.size(1), call.size(2))
        own_cost, size = _own_cost(call)
        return _saturating_sum(own_cost, *costs), size


def _is_bind(node: syntax.ComprehensionExpr) -> bool:
    """`optMap` binds a variable by a loop that never runs."""
    empty = isinstance(node.iter_range, syntax.ListExpr) and not node.iter_range.elements
    never = isinstance(node.loop_condition, syntax.ConstExpr) and node.loop_condition.value is False
    return empty and never and not node.accu_var.startswith("@")


# Costs of calls, without those of their arguments


class _Call(msgspec.Struct, frozen=True, eq=False):
    node: syntax.CallExpr
    name: str
    """The full name of the function: `sets.contains`."""
    target: syntax.Expr | None
    """The receiver of a member call."""
    sizes: SizeTracker
    overloads: list[tuple[str, ...]]
    """Kinds of the arguments of each overload that may be meant."""

    def size(self, index: int) -> int:
        """The size of an argument."""
        return self.sizes.size_or_max(self.node.args[index])

    def target_size(self) -> int:
        assert self.target is not None
        return self.sizes.size_or_max(self.target)


_CallCost: TypeAlias = tuple[int, int | None]
"""A cost, and the size of the result if the function determines it."""
_CostFunction: TypeAlias = Callable[[_Call], _CallCost]


def _own_cost(call: _Call) -> _CallCost:
    function = _MEMBER_COSTS.get(call.name) if call.target is not None else None
    return (function or _FUNCTION_COSTS.get(call.name, _operator_cost))(call)


def _index_size(call: _Call) -> int | None:
    """The size of an element of a list or map. Records the path of the element."""
    container = call.node.args[0]
    kind = next((kinds[0] for kinds in call.overloads if kinds[0] != "opaque"), "")
    if kind not in ("list", "map"):
        return None
    path = call.sizes.path(container)
    call.sizes.set_path(call.node, (*path, "@items" if kind == "list" else "@values"))
    entries = call.sizes.entry_sizes(container)
    return entries.value if entries else None


def _constant_cost(call: _Call) -> _CallCost:
    return 1, None


def _argument_traversal_cost(call: _Call) -> _CallCost:
    return _traversal_cost(call.size(0)), None


def _url_cost(call: _Call) -> _CallCost:
    return _traversal_cost(call.size(0)), call.size(0)


def _canonical_ip_cost(call: _Call) -> _CallCost:
    return _scaled_cost(call.size(0), 2 * _TRAVERSAL_FACTOR), None


def _quote_cost(call: _Call) -> _CallCost:
    return _traversal_cost(call.size(0)), min(call.size(0) * 2 + 2, MAX_COST)


def _set_cost(call: _Call) -> _CallCost:
    factor = 2.0 if call.name == "sets.equivalent" else 1.0
    return _saturating_sum(_scaled_cost(_saturating_product(call.size(0), call.size(1)), factor), 1), None


def _equality_cost(call: _Call) -> _CallCost:
    args = call.node.args
    types = [call.sizes.type(arg) for arg in args]
    if call.name == "_==_" and types[0] == types[1]:
        match types[0].name:
            case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
                return 1, None
            case "kubernetes.NamedFormat":
                return _traversal_cost(_NAMED_FORMAT_LENGTH), None
            case "kubernetes.URL":
                return _traversal_cost(call.sizes.recorded_size(args[1], 1)), None
    return _traversal_cost(min(call.size(0), call.size(1))), None


def _operator_cost(call: _Call) -> _CallCost:
    """The highest cost of the overloads that may be meant."""
    results = [_overload_cost(call, kinds) for kinds in call.overloads]
    sizes = [size for _, size in results if size is not None]
    return max((cost for cost, _ in results), default=1), max(sizes) if sizes else None


def _overload_cost(call: _Call, kinds: tuple[str, ...]) -> _CallCost:
    textual = bool(kinds) and kinds[0] in ("string", "bytes")
    match call.name:
        case "_<_" | "_<=_" | "_>_" | "_>=_" if textual:
            return _traversal_cost(min(call.size(0), call.size(1))), None
        case "_+_" if textual or kinds[0] == "list":
            left, right = call.node.args
            call.sizes.unite_entry_sizes(call.node, left, right)
            size = _saturating_sum(call.size(0), call.size(1))
            return (_traversal_cost(size) if textual else 1), size
        case "@in" if kinds[1] == "list":
            return call.size(1), None
        case "bytes" if kinds == ("string",):
            return _traversal_cost(call.size(0)), min(call.size(0) * 4, MAX_COST)
        case "string" if kinds == ("bytes",):
            return _traversal_cost(call.size(0)), call.size(0)
    return 1, None


def _list_traversal_cost(call: _Call) -> _CallCost:
    assert call.target is not None
    kind = call.sizes.type(call.target)
    if not kind.params:
        return _traversal_cost(call.target_size()), None
    element_cost = 1
    if kind.params[0].kind in ("string", "bytes"):
        element_cost += _traversal_cost(call.sizes.element_size(call.target))
    return _saturating_product(call.target_size(), element_cost), None


def _same_size_cost(call: _Call) -> _CallCost:
    return _traversal_cost(call.target_size()), call.target_size()


def _replace_cost(call: _Call) -> _CallCost:
    size, new = call.target_size(), call.size(1)
    least = literal_size(call.node.args[0]) or 0
    if least == 0:
        result = _saturating_sum(_saturating_product(_saturating_sum(size, 1), new), size)
    else:
        result = size if new <= least else _saturating_product(math.ceil(size / least), new)
    return _scaled_cost(size, 2 * _TRAVERSAL_FACTOR), result


def _split_cost(call: _Call) -> _CallCost:
    args, size = call.node.args, call.target_size()
    limit = args[1].value if len(args) > 1 and isinstance(args[1], syntax.ConstExpr) else size
    return _scaled_cost(size, 2 * _TRAVERSAL_FACTOR), limit % 2**64


def _join_cost(call: _Call) -> _CallCost:
    assert call.target is not None
    count = call.target_size()
    size = _saturating_product(count, call.sizes.element_size(call.target))
    if call.node.args:
        size = _saturating_sum(size, _saturating_product(call.size(0), max(count - 1, 0)))
    return _traversal_cost(size), size


def _pattern_cost(call: _Call) -> int:
    text_cost = _traversal_cost(_saturating_sum(call.target_size(), 1))
    return _saturating_product(text_cost, _scaled_cost(call.size(0), _REGEX_FACTOR))


def _find_cost(call: _Call) -> _CallCost:
    return _pattern_cost(call), call.target_size()


def _matches_cost(call: _Call) -> _CallCost:
    return _pattern_cost(call), None


def _contains_cost(call: _Call) -> _CallCost:
    return _saturating_product(_traversal_cost(call.target_size()), _traversal_cost(call.size(0))), None


def _format_cost(call: _Call) -> _CallCost:
    return _traversal_cost(call.target_size()), None


def _validate_cost(call: _Call) -> _CallCost:
    return _scaled_cost(_traversal_cost(call.size(0)), _NAME_PATTERN_LENGTH * _REGEX_FACTOR), None


def _network_cost(call: _Call) -> _CallCost:
    cost = _traversal_cost(2 * _IP_ADDRESS_BYTES)
    if call.name == "containsCIDR":
        cost += _traversal_cost(_IP_ADDRESS_BYTES) + 1
    if call.sizes.type(call.node.args[0]).kind == "string":
        cost = _saturating_sum(cost, _traversal_cost(call.size(0)))
    return cost, None


_CONSTANT_COST_NAMES = (
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast"
    " format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add sub major minor"
    " patch getScheme getHostname getHost getPort getEscapedPath getQuery isURL"
)
_FUNCTION_COSTS: dict[str, _CostFunction] = {
    **dict.fromkeys(_CONSTANT_COST_NAMES.split(), _constant_cost),
    **dict.fromkeys(
        ["ip", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"], _argument_traversal_cost
    ),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _set_cost),
    "url": _url_cost,
    "ip.isCanonical": _canonical_ip_cost,
    "strings.quote": _quote_cost,
    "_==_": _equality_cost,
    "_!=_": _equality_cost,
}
_MEMBER_COSTS: dict[str, _CostFunction] = {
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"], _list_traversal_cost),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size_cost),
    "ip": _constant_cost,
    "replace": _replace_cost,
    "split": _split_cost,
    "join": _join_cost,
    "find": _find_cost,
    "findAll": _find_cost,
    "matches": _matches_cost,
    "contains": _contains_cost,
    "startsWith": _argument_traversal_cost,
    "endsWith": _argument_traversal_cost,
    "format": _format_cost,
    "validate": _validate_cost,
    "containsIP": _network_cost,
    "containsCIDR": _network_cost,
}
"""Functions that cost this only as members: `text.matches(pattern)`."""
