"""What an expression can cost at most, before it ever runs: the estimate by which the server refuses a rule.

A unit is about one step. Sizes come from the bounds that the schema sets; what has no bound counts as large as a
request can be. So a rule over an unbounded list is refused for what it could be given, not for what it says.
"""

import math

import msgspec

from gangline.schema.cel.check import CheckedExpr
from gangline.schema.cel.declare import DeclType
from gangline.schema.cel.syntax import (
    CallExpr,
    ComprehensionExpr,
    ConstExpr,
    Expr,
    IdentExpr,
    ListExpr,
    MapExpr,
    SelectExpr,
)
from gangline.schema.cel.types import DYN, SIMPLE_TYPES, CelType

MAX_COST = 2**64 - 1
_TRAVERSAL_FACTOR = 0.1
_REGEX_FACTOR = 0.25
_LIST_COST, _MAP_COST = 10, 30
_SCALAR_KINDS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_CONSTANT_COST_NAMES = (
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast"
    " format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add sub major minor"
    " patch getScheme getHostname getHost getPort getEscapedPath getQuery"
)
_CONSTANT_COST_FUNCTIONS = frozenset(_CONSTANT_COST_NAMES.split())
_LIST_TRAVERSALS = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
_ARGUMENT_TRAVERSALS = frozenset(
    {"cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver", "url", "isURL"}
)
_ORDER_OPERATORS = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_IP_ADDRESS_BYTES = 16
_NAME_PATTERN_LENGTH = 128


class _EntrySizes(msgspec.Struct, frozen=True):
    """Sizes of what a list or map holds."""

    kind: str
    key: int
    value: int

    def union(self, other: "_EntrySizes | None") -> "_EntrySizes | None":
        if other is None:
            return None
        return _EntrySizes(self.kind, max(self.key, other.key), max(self.value, other.value))


class _LocalVariable(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    size: int | None
    entries: _EntrySizes | None


def estimate_cost(checked: CheckedExpr, declared: DeclType) -> int:
    """The most an evaluation can cost."""
    return _CostEstimator(checked, declared).cost(checked.parsed.root)


def _saturating_product(one: int, other: int) -> int:
    return min(one * other, MAX_COST)


def _saturating_sum(*costs: int) -> int:
    return min(sum(costs), MAX_COST)


def _scaled_cost(size: int, factor: float) -> int:
    scaled = math.ceil(float(size) * factor)
    return min(scaled, MAX_COST)


class _CostEstimator:
    def __init__(self, checked: CheckedExpr, declared: DeclType) -> None:
        self._checked_expr, self._decl_type = checked, declared
        self._sizes: dict[int, int] = {}
        self._entry_sizes: dict[int, _EntrySizes] = {}
        self._paths: dict[int, tuple[str, ...]] = {}
        self._locals: dict[str, list[_LocalVariable]] = {}

    def cost(self, node: Expr) -> int:
        match node:
            case ConstExpr():
                return 0
            case IdentExpr():
                local = self._local_variable(node.name)
                self._paths[id(node)] = local.path if local else (node.name,)
                return 1
            case SelectExpr():
                return self._select_cost(node)
            case CallExpr():
                return self._call_cost(node)
            case ListExpr():
                return self._list_cost(node)
            case MapExpr():
                return self._map_cost(node)
            case ComprehensionExpr():
                return self._bind_cost(node) if _is_bind(node) else self._comprehension_cost(node)

    def _type(self, node: Expr) -> CelType:
        if isinstance(node, ConstExpr):
            return SIMPLE_TYPES[node.kind]
        return self._checked_expr.types.get(id(node), DYN)

    def _local_variable(self, name: str) -> _LocalVariable | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _path(self, node: Expr) -> tuple[str, ...]:
        if isinstance(node, IdentExpr) and (local := self._local_variable(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), ())

    def _path_size(self, path: tuple[str, ...]) -> int | None:
        """What the schema says about the size of what is at a path."""
        if not path:
            return None
        current: DeclType | None = self._decl_type
        for name in path[1:]:
            if current is None:
                return None
            if name in ("@items", "@values"):
                current = current.element
            elif name == "@keys":
                return 0 if current.element is not None else None
            else:
                current = (current.fields or {}).get(name)
        return current.max_elements if current is not None else None

    def known_size(self, node: Expr) -> int | None:
        known = self._sizes.get(id(node))
        if known is None:
            known = _literal_size(node)
        if known is None:
            known = self._path_size(self._path(node))
            if known is not None:
                self._sizes[id(node)] = known
        if known is None and self._type(node).kind in _SCALAR_KINDS:
            known = 1
        if known is None and isinstance(node, IdentExpr) and (local := self._local_variable(node.name)) is not None:
            known = local.size
        return known

    def _size_or_max(self, node: Expr) -> int:
        found = self.known_size(node)
        return MAX_COST if found is None else found

    def _entry_sizes_of(self, node: Expr) -> _EntrySizes | None:
        if id(node) in self._entry_sizes:
            return self._entry_sizes[id(node)]
        local = self._local_variable(node.name) if isinstance(node, IdentExpr) else None
        return local.entries if local else None

    def _select_cost(self, node: SelectExpr) -> int:
        if (name := self._checked_expr.function_names.get(id(node))) is not None:
            self._paths[id(node)] = (name,)
            return 1
        inner = self.cost(node.operand)
        if node.test_only:
            return inner
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return _saturating_sum(inner, 1) if self._type(node.operand).kind in ("map", "struct", "param") else inner

    def _list_cost(self, node: ListExpr) -> int:
        total, largest = _LIST_COST, 0
        for part in node.elements:
            total = _saturating_sum(total, self.cost(part))
            largest = max(largest, self._size_or_max(part))
        self._entry_sizes[id(node)] = _EntrySizes("list", 1, largest)
        return total

    def _map_cost(self, node: MapExpr) -> int:
        total, key, value = _MAP_COST, 0, 0
        for entry in node.entries:
            total = _saturating_sum(total, self.cost(entry.key), self.cost(entry.value))
            key, value = max(key, self._size_or_max(entry.key)), max(value, self._size_or_max(entry.value))
        self._entry_sizes[id(node)] = _EntrySizes("map", key, value)
        return total

    def _push_local(
        self, name: str, path: tuple[str, ...], size: int | None, entries: _EntrySizes | None = None
    ) -> None:
        self._locals.setdefault(name, []).append(_LocalVariable(path, size, entries))

    def _push_iteration_variables(self, node: ComprehensionExpr) -> list[str]:
        entries, path = self._entry_sizes_of(node.iter_range), self._path(node.iter_range)
        is_list = (entries.kind if entries else self._type(node.iter_range).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.iter_var2:
            self._push_local(node.iter_var, (*path, "@indices" if is_list else "@keys"), key)
            self._push_local(node.iter_var2, (*path, "@items" if is_list else "@values"), value)
            return [node.iter_var, node.iter_var2]
        self._push_local(node.iter_var, (*path, "@items" if is_list else "@keys"), value if is_list else key)
        return [node.iter_var]

    def _comprehension_cost(self, node: ComprehensionExpr) -> int:
        total = _saturating_sum(self.cost(node.iter_range), self.cost(node.accu_init))
        self._push_local(
            node.accu_var,
            self._path(node.accu_init),
            self.known_size(node.accu_init),
            self._entry_sizes_of(node.accu_init),
        )
        names = self._push_iteration_variables(node)
        each = _saturating_sum(self.cost(node.loop_condition), self.cost(node.loop_step))
        for name in names:
            self._locals[name].pop()
        total = _saturating_sum(total, self.cost(node.result))
        self._locals[node.accu_var].pop()
        count = self._size_or_max(node.iter_range)
        self._set_comprehension_size(node, count)
        return _saturating_sum(total, _saturating_product(count, each))

    def _set_comprehension_size(self, node: ComprehensionExpr, count: int) -> None:
        if isinstance(node.accu_init, ConstExpr):
            self._sizes[id(node)] = self._size_or_max(node.accu_init)
        elif isinstance(node.accu_init, ListExpr | MapExpr):
            self._sizes[id(node)] = count
            if (entries := self._entry_sizes_of(node.loop_step)) is not None:
                self._entry_sizes[id(node)] = entries

    def _bind_cost(self, node: ComprehensionExpr) -> int:
        total = _saturating_sum(self.cost(node.iter_range), self.cost(node.accu_init))
        self._push_local(
            node.accu_var,
            self._path(node.accu_init),
            self.known_size(node.accu_init),
            self._entry_sizes_of(node.accu_init),
        )
        total = _saturating_sum(total, self.cost(node.result))
        self._locals[node.accu_var].pop()
        self._copy_size(node, node.result)
        return total

    def _copy_size(self, to: Expr, source: Expr) -> None:
        if (size := self.known_size(source)) is not None:
            self._sizes[id(to)] = size
        if (entries := self._entry_sizes_of(source)) is not None:
            self._entry_sizes[id(to)] = entries

    def _call_cost(self, node: CallExpr) -> int:
        name = self._checked_expr.function_names.get(id(node), node.function)
        if name == "dyn":
            inner = self.cost(node.args[0])
            self._copy_size(node, node.args[0])
            return _saturating_sum(1, inner)
        arguments = [self.cost(arg) for arg in node.args]
        target = node.target if name == node.function else None
        before = self.cost(target) if target is not None else 0
        cost, size = self._function_cost(node, name, target, arguments)
        if name == "_[_]":
            size = self._index_size(node) or size
        if size is None:
            size = self.known_size(node)
        if size is not None:
            self._sizes[id(node)] = size
        return _saturating_sum(before, cost)

    def _index_size(self, node: CallExpr) -> int | None:
        container = node.args[0]
        kind = next((kinds[0] for kinds in self._checked_expr.overloads.get(id(node), []) if kinds[0] != "opaque"), "")
        if kind not in ("list", "map"):
            return None
        self._paths[id(node)] = (*self._path(container), "@items" if kind == "list" else "@values")
        entries = self._entry_sizes_of(container)
        return entries.value if entries else None

    def _function_cost(
        self, node: CallExpr, name: str, target: Expr | None, costs: list[int]
    ) -> tuple[int, int | None]:
        """The cost of a call with its arguments, and the size of its result."""
        match name:
            case "_&&_" | "_||_":
                return _saturating_sum(*costs), None
            case "_?_:_":
                _, yes, no = node.args
                if (entries := self._entry_sizes_of(yes)) is not None and (
                    both := entries.union(self._entry_sizes_of(no))
                ):
                    self._entry_sizes[id(node)] = both
                return _saturating_sum(costs[0], max(costs[1], costs[2])), max(
                    self._size_or_max(yes), self._size_or_max(no)
                )
        own, size = self._own_cost(node, name, target)
        return _saturating_sum(own, *costs), size

    def _own_cost(self, node: CallExpr, name: str, target: Expr | None) -> tuple[int, int | None]:
        args = node.args
        if name in _CONSTANT_COST_FUNCTIONS or (name == "ip" and target is not None):
            return 1, None
        if name in _ARGUMENT_TRAVERSALS or name == "ip":
            size = self._size_or_max(args[0])
            return (
                (1, None)
                if name == "isURL"
                else (_scaled_cost(size, _TRAVERSAL_FACTOR), size if name == "url" else None)
            )
        if name in _LIST_TRAVERSALS and target is not None:
            return self._list_traversal_cost(target), None
        if name.startswith("sets."):
            factor = 2.0 if name == "sets.equivalent" else 1.0
            return _saturating_sum(
                _scaled_cost(_saturating_product(self._size_or_max(args[0]), self._size_or_max(args[1])), factor),
                1,
            ), None
        if target is not None and (found := self._text_cost(node, name, target)) is not None:
            return found
        return self._operator_cost(node, name, args)

    def _list_traversal_cost(self, target: Expr) -> int:
        kind = self._type(target)
        if not kind.params:
            return _scaled_cost(self._size_or_max(target), _TRAVERSAL_FACTOR)
        each = 1
        if kind.params[0].kind in ("string", "bytes"):
            found = self._path_size((*self._path(target), "@items")) if self._path(target) else None
            each += _scaled_cost(MAX_COST if found is None else found, _TRAVERSAL_FACTOR)
        return _saturating_product(self._size_or_max(target), each)

    def _text_cost(self, node: CallExpr, name: str, target: Expr) -> tuple[int, int | None] | None:
        args, size = node.args, self._size_or_max(target)
        match name:
            case "lowerAscii" | "upperAscii" | "substring" | "trim":
                return _scaled_cost(size, _TRAVERSAL_FACTOR), size
            case "replace":
                return _scaled_cost(size, 2 * _TRAVERSAL_FACTOR), self._replace_size(size, args)
            case "split":
                limit = args[1].value if len(args) > 1 and isinstance(args[1], ConstExpr) else size
                return _scaled_cost(size, 2 * _TRAVERSAL_FACTOR), limit % 2**64
            case "join":
                return self._join_cost(target, args)
            case "find" | "findAll":
                return self._pattern_cost(target, args[0]), size
            case "matches":
                return self._pattern_cost(target, args[0]), None
            case "contains":
                part = _scaled_cost(self._size_or_max(args[0]), _TRAVERSAL_FACTOR)
                return _saturating_product(_scaled_cost(size, _TRAVERSAL_FACTOR), part), None
            case "startsWith" | "endsWith":
                return _scaled_cost(self._size_or_max(args[0]), _TRAVERSAL_FACTOR), None
            case "format":
                return _scaled_cost(size, _TRAVERSAL_FACTOR), None
            case "validate":
                return _scaled_cost(
                    _scaled_cost(self._size_or_max(args[0]), _TRAVERSAL_FACTOR),
                    _NAME_PATTERN_LENGTH * _REGEX_FACTOR,
                ), None
            case "containsIP" | "containsCIDR":
                return self._network_cost(name, args[0]), None
        return None

    def _pattern_cost(self, text: Expr, pattern: Expr) -> int:
        return _saturating_product(
            _scaled_cost(_saturating_sum(self._size_or_max(text), 1), _TRAVERSAL_FACTOR),
            _scaled_cost(self._size_or_max(pattern), _REGEX_FACTOR),
        )

    def _replace_size(self, size: int, args: list[Expr]) -> int:
        least = _literal_size(args[0]) or 0
        new = self._size_or_max(args[1])
        if least == 0:
            return _saturating_sum(_saturating_product(_saturating_sum(size, 1), new), size)
        if new <= least:
            return size
        return _saturating_product(math.ceil(size / least), new)

    def _join_cost(self, target: Expr, args: list[Expr]) -> tuple[int, int]:
        count = self._size_or_max(target)
        path = self._path(target)
        element = self._path_size((*path, "@items")) if path else None
        size = _saturating_product(count, MAX_COST if element is None else element)
        if args:
            size = _saturating_sum(size, _saturating_product(self._size_or_max(args[0]), max(count - 1, 0)))
        return _scaled_cost(size, _TRAVERSAL_FACTOR), size

    def _network_cost(self, name: str, other: Expr) -> int:
        cost = _scaled_cost(2 * _IP_ADDRESS_BYTES, _TRAVERSAL_FACTOR)
        if name == "containsCIDR":
            cost += _scaled_cost(_IP_ADDRESS_BYTES, _TRAVERSAL_FACTOR) + 1
        return (
            _saturating_sum(cost, _scaled_cost(self._size_or_max(other), _TRAVERSAL_FACTOR))
            if self._type(other).kind == "string"
            else cost
        )

    def _operator_cost(self, node: CallExpr, name: str, args: list[Expr]) -> tuple[int, int | None]:
        """The dearest of the overloads that may be meant."""
        if name in ("_==_", "_!=_"):
            return self._equality_cost(args, name), None
        if name == "ip.isCanonical":
            return _scaled_cost(self._size_or_max(args[0]), 2 * _TRAVERSAL_FACTOR), None
        if name == "strings.quote":
            size = self._size_or_max(args[0])
            return _scaled_cost(size, _TRAVERSAL_FACTOR), min(size * 2 + 2, MAX_COST)
        found = [
            self._overload_cost(node, name, args, kinds) for kinds in self._checked_expr.overloads.get(id(node), [])
        ]
        sizes = [size for _, size in found if size is not None]
        return max((cost for cost, _ in found), default=1), max(sizes) if sizes else None

    def _overload_cost(
        self, node: CallExpr, name: str, args: list[Expr], kinds: tuple[str, ...]
    ) -> tuple[int, int | None]:
        textual = bool(kinds) and kinds[0] in ("string", "bytes")
        if name in _ORDER_OPERATORS and textual:
            return _scaled_cost(min(self._size_or_max(args[0]), self._size_or_max(args[1])), _TRAVERSAL_FACTOR), None
        if name == "_+_" and (textual or kinds[0] == "list"):
            size = self._concatenation_size(node, args)
            return (_scaled_cost(size, _TRAVERSAL_FACTOR) if textual else 1), size
        if name == "@in" and kinds[1] == "list":
            return self._size_or_max(args[1]), None
        if name == "bytes" and kinds == ("string",):
            size = self._size_or_max(args[0])
            return _scaled_cost(size, _TRAVERSAL_FACTOR), min(size * 4, MAX_COST)
        if name == "string" and kinds == ("bytes",):
            return _scaled_cost(self._size_or_max(args[0]), _TRAVERSAL_FACTOR), self._size_or_max(args[0])
        return 1, None

    def _equality_cost(self, args: list[Expr], name: str) -> int:
        types = [self._type(arg) for arg in args]
        if name == "_==_" and types[0] == types[1]:
            match types[0].name:
                case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
                    return 1
                case "kubernetes.NamedFormat":
                    return _scaled_cost(64, _TRAVERSAL_FACTOR)
                case "kubernetes.URL":
                    return _scaled_cost(self._sizes.get(id(args[1]), 1), _TRAVERSAL_FACTOR)
        return _scaled_cost(min(self._size_or_max(args[0]), self._size_or_max(args[1])), _TRAVERSAL_FACTOR)

    def _concatenation_size(self, node: CallExpr, args: list[Expr]) -> int:
        entries = self._entry_sizes_of(args[0])
        if entries is not None and (both := entries.union(self._entry_sizes_of(args[1]))) is not None:
            self._entry_sizes[id(node)] = both
        return _saturating_sum(self._size_or_max(args[0]), self._size_or_max(args[1]))


def _literal_size(node: Expr) -> int | None:
    match node:
        case ConstExpr():
            return len(node.value) if node.kind in ("string", "bytes") else 1
        case ListExpr():
            return len(node.elements)
        case MapExpr():
            return len(node.entries)
    return None


def _is_bind(node: ComprehensionExpr) -> bool:
    """`optMap` binds a variable by a loop that never runs."""
    empty = isinstance(node.iter_range, ListExpr) and not node.iter_range.elements
    never = isinstance(node.loop_condition, ConstExpr) and node.loop_condition.value is False
    return empty and never and not node.accu_var.startswith("@")
