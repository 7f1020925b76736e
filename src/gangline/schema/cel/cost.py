"""What an expression can cost at most, before it ever runs: the estimate by which the server refuses a rule.

A unit is about one step. Sizes come from the bounds that the schema sets; what has no bound counts as large as a
request can be. So a rule over an unbounded list is refused for what it could be given, not for what it says.
"""

import math

import msgspec

from gangline.schema.cel.check import Checked
from gangline.schema.cel.declare import Declared
from gangline.schema.cel.syntax import Call, Const, Expr, Ident, ListOf, Loop, MapOf, Select
from gangline.schema.cel.types import DYN, SIMPLE, Type

UNKNOWN = 2**64 - 1
_TRAVERSE = 0.1
_PATTERN = 0.25
_NEW_LIST, _NEW_MAP = 10, 30
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_CHEAP_NAMES = (
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast"
    " format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add sub major minor"
    " patch getScheme getHostname getHost getPort getEscapedPath getQuery"
)
_CHEAP = frozenset(_CHEAP_NAMES.split())
_OVER_ELEMENTS = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
_READS_ARGUMENT = frozenset(
    {"cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver", "url", "isURL"}
)
_ORDER = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_ADDRESS = 16
_NAME_PATTERN = 128


class _Entries(msgspec.Struct, frozen=True):
    """Sizes of what a list or map holds."""

    kind: str
    key: int
    value: int

    def union(self, other: "_Entries | None") -> "_Entries | None":
        if other is None:
            return None
        return _Entries(self.kind, max(self.key, other.key), max(self.value, other.value))


class _Local(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    size: int | None
    entries: _Entries | None


def estimate(checked: Checked, declared: Declared) -> int:
    """The most an evaluation can cost."""
    return _Estimator(checked, declared).cost(checked.parsed.root)


def _times(one: int, other: int) -> int:
    return min(one * other, UNKNOWN)


def _plus(*costs: int) -> int:
    return min(sum(costs), UNKNOWN)


def _scaled(size: int, factor: float) -> int:
    scaled = math.ceil(float(size) * factor)
    return min(scaled, UNKNOWN)


class _Estimator:
    def __init__(self, checked: Checked, declared: Declared) -> None:
        self._checked, self._declared = checked, declared
        self._sizes: dict[int, int] = {}
        self._entries: dict[int, _Entries] = {}
        self._paths: dict[int, tuple[str, ...]] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expr) -> int:
        match node:
            case Const():
                return 0
            case Ident():
                local = self._local(node.name)
                self._paths[id(node)] = local.path if local else (node.name,)
                return 1
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Loop():
                return self._bind(node) if _is_bind(node) else self._loop(node)

    def _type(self, node: Expr) -> Type:
        if isinstance(node, Const):
            return SIMPLE[node.kind]
        return self._checked.types.get(id(node), DYN)

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _path(self, node: Expr) -> tuple[str, ...]:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), ())

    def _declared_size(self, path: tuple[str, ...]) -> int | None:
        """What the schema says about the size of what is at a path."""
        if not path:
            return None
        current: Declared | None = self._declared
        for name in path[1:]:
            if current is None:
                return None
            if name in ("@items", "@values"):
                current = current.element
            elif name == "@keys":
                return 0 if current.element is not None else None
            else:
                current = (current.fields or {}).get(name)
        return current.most if current is not None else None

    def size(self, node: Expr) -> int | None:
        known = self._sizes.get(id(node))
        if known is None:
            known = _literal_size(node)
        if known is None:
            known = self._declared_size(self._path(node))
            if known is not None:
                self._sizes[id(node)] = known
        if known is None and self._type(node).kind in _SCALARS:
            known = 1
        if known is None and isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            known = local.size
        return known

    def _size(self, node: Expr) -> int:
        found = self.size(node)
        return UNKNOWN if found is None else found

    def _entries_of(self, node: Expr) -> _Entries | None:
        if id(node) in self._entries:
            return self._entries[id(node)]
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local else None

    def _select(self, node: Select) -> int:
        if (name := self._checked.calls.get(id(node))) is not None:
            self._paths[id(node)] = (name,)
            return 1
        inner = self.cost(node.operand)
        if node.test:
            return inner
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return _plus(inner, 1) if self._type(node.operand).kind in ("map", "struct", "param") else inner

    def _list(self, node: ListOf) -> int:
        total, largest = _NEW_LIST, 0
        for part in node.elements:
            total = _plus(total, self.cost(part))
            largest = max(largest, self._size(part))
        self._entries[id(node)] = _Entries("list", 1, largest)
        return total

    def _map(self, node: MapOf) -> int:
        total, key, value = _NEW_MAP, 0, 0
        for entry in node.entries:
            total = _plus(total, self.cost(entry.key), self.cost(entry.value))
            key, value = max(key, self._size(entry.key)), max(value, self._size(entry.value))
        self._entries[id(node)] = _Entries("map", key, value)
        return total

    def _push(
        self, name: str, path: tuple[str, ...], size: int | None, entries: _Entries | None = None
    ) -> None:
        self._locals.setdefault(name, []).append(_Local(path, size, entries))

    def _push_loop(self, node: Loop) -> list[str]:
        entries, path = self._entries_of(node.range), self._path(node.range)
        is_list = (entries.kind if entries else self._type(node.range).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.variable2:
            self._push(node.variable, (*path, "@indices" if is_list else "@keys"), key)
            self._push(node.variable2, (*path, "@items" if is_list else "@values"), value)
            return [node.variable, node.variable2]
        self._push(node.variable, (*path, "@items" if is_list else "@keys"), value if is_list else key)
        return [node.variable]

    def _loop(self, node: Loop) -> int:
        total = _plus(self.cost(node.range), self.cost(node.start))
        self._push(
            node.accumulator, self._path(node.start), self.size(node.start), self._entries_of(node.start)
        )
        names = self._push_loop(node)
        each = _plus(self.cost(node.condition), self.cost(node.step))
        for name in names:
            self._locals[name].pop()
        total = _plus(total, self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._size(node.range)
        self._loop_sizes(node, count)
        return _plus(total, _times(count, each))

    def _loop_sizes(self, node: Loop, count: int) -> None:
        if isinstance(node.start, Const):
            self._sizes[id(node)] = self._size(node.start)
        elif isinstance(node.start, ListOf | MapOf):
            self._sizes[id(node)] = count
            if (entries := self._entries_of(node.step)) is not None:
                self._entries[id(node)] = entries

    def _bind(self, node: Loop) -> int:
        total = _plus(self.cost(node.range), self.cost(node.start))
        self._push(
            node.accumulator, self._path(node.start), self.size(node.start), self._entries_of(node.start)
        )
        total = _plus(total, self.cost(node.result))
        self._locals[node.accumulator].pop()
        self._copy(node, node.result)
        return total

    def _copy(self, to: Expr, source: Expr) -> None:
        if (size := self.size(source)) is not None:
            self._sizes[id(to)] = size
        if (entries := self._entries_of(source)) is not None:
            self._entries[id(to)] = entries

    def _call(self, node: Call) -> int:
        name = self._checked.calls.get(id(node), node.function)
        if name == "dyn":
            inner = self.cost(node.args[0])
            self._copy(node, node.args[0])
            return _plus(1, inner)
        arguments = [self.cost(arg) for arg in node.args]
        target = node.target if name == node.function else None
        before = self.cost(target) if target is not None else 0
        cost, size = self._function(node, name, target, arguments)
        if name == "_[_]":
            size = self._index(node) or size
        if size is None:
            size = self.size(node)
        if size is not None:
            self._sizes[id(node)] = size
        return _plus(before, cost)

    def _index(self, node: Call) -> int | None:
        container = node.args[0]
        kind = next(
            (kinds[0] for kinds in self._checked.overloads.get(id(node), []) if kinds[0] != "opaque"), ""
        )
        if kind not in ("list", "map"):
            return None
        self._paths[id(node)] = (*self._path(container), "@items" if kind == "list" else "@values")
        entries = self._entries_of(container)
        return entries.value if entries else None

    def _function(
        self, node: Call, name: str, target: Expr | None, costs: list[int]
    ) -> tuple[int, int | None]:
        """The cost of a call with its arguments, and the size of its result."""
        match name:
            case "_&&_" | "_||_":
                return _plus(*costs), None
            case "_?_:_":
                _, yes, no = node.args
                if (entries := self._entries_of(yes)) is not None and (
                    both := entries.union(self._entries_of(no))
                ):
                    self._entries[id(node)] = both
                return _plus(costs[0], max(costs[1], costs[2])), max(self._size(yes), self._size(no))
        own, size = self._own_cost(node, name, target)
        return _plus(own, *costs), size

    def _own_cost(self, node: Call, name: str, target: Expr | None) -> tuple[int, int | None]:
        args = node.args
        if name in _CHEAP or (name == "ip" and target is not None):
            return 1, None
        if name in _READS_ARGUMENT or name == "ip":
            size = self._size(args[0])
            return (
                (1, None) if name == "isURL" else (_scaled(size, _TRAVERSE), size if name == "url" else None)
            )
        if name in _OVER_ELEMENTS and target is not None:
            return self._over_elements(target), None
        if name.startswith("sets."):
            factor = 2.0 if name == "sets.equivalent" else 1.0
            return _plus(_scaled(_times(self._size(args[0]), self._size(args[1])), factor), 1), None
        if target is not None and (found := self._text_cost(node, name, target)) is not None:
            return found
        return self._operator(node, name, args)

    def _over_elements(self, target: Expr) -> int:
        kind = self._type(target)
        if not kind.params:
            return _scaled(self._size(target), _TRAVERSE)
        each = 1
        if kind.params[0].kind in ("string", "bytes"):
            found = self._declared_size((*self._path(target), "@items")) if self._path(target) else None
            each += _scaled(UNKNOWN if found is None else found, _TRAVERSE)
        return _times(self._size(target), each)

    def _text_cost(self, node: Call, name: str, target: Expr) -> tuple[int, int | None] | None:
        args, size = node.args, self._size(target)
        match name:
            case "lowerAscii" | "upperAscii" | "substring" | "trim":
                return _scaled(size, _TRAVERSE), size
            case "replace":
                return _scaled(size, 2 * _TRAVERSE), self._replaced(size, args)
            case "split":
                limit = args[1].value if len(args) > 1 and isinstance(args[1], Const) else size
                return _scaled(size, 2 * _TRAVERSE), limit % 2**64
            case "join":
                return self._joined(target, args)
            case "find" | "findAll":
                return self._pattern_cost(target, args[0]), size
            case "matches":
                return self._pattern_cost(target, args[0]), None
            case "contains":
                part = _scaled(self._size(args[0]), _TRAVERSE)
                return _times(_scaled(size, _TRAVERSE), part), None
            case "startsWith" | "endsWith":
                return _scaled(self._size(args[0]), _TRAVERSE), None
            case "format":
                return _scaled(size, _TRAVERSE), None
            case "validate":
                return _scaled(_scaled(self._size(args[0]), _TRAVERSE), _NAME_PATTERN * _PATTERN), None
            case "containsIP" | "containsCIDR":
                return self._network_cost(name, args[0]), None
        return None

    def _pattern_cost(self, text: Expr, pattern: Expr) -> int:
        return _times(_scaled(_plus(self._size(text), 1), _TRAVERSE), _scaled(self._size(pattern), _PATTERN))

    def _replaced(self, size: int, args: list[Expr]) -> int:
        least = _literal_size(args[0]) or 0
        new = self._size(args[1])
        if least == 0:
            return _plus(_times(_plus(size, 1), new), size)
        if new <= least:
            return size
        return _times(math.ceil(size / least), new)

    def _joined(self, target: Expr, args: list[Expr]) -> tuple[int, int]:
        count = self._size(target)
        path = self._path(target)
        element = self._declared_size((*path, "@items")) if path else None
        size = _times(count, UNKNOWN if element is None else element)
        if args:
            size = _plus(size, _times(self._size(args[0]), max(count - 1, 0)))
        return _scaled(size, _TRAVERSE), size

    def _network_cost(self, name: str, other: Expr) -> int:
        cost = _scaled(2 * _ADDRESS, _TRAVERSE)
        if name == "containsCIDR":
            cost += _scaled(_ADDRESS, _TRAVERSE) + 1
        return (
            _plus(cost, _scaled(self._size(other), _TRAVERSE)) if self._type(other).kind == "string" else cost
        )

    def _operator(self, node: Call, name: str, args: list[Expr]) -> tuple[int, int | None]:
        """The dearest of the overloads that may be meant."""
        if name in ("_==_", "_!=_"):
            return self._equality(args, name), None
        if name == "ip.isCanonical":
            return _scaled(self._size(args[0]), 2 * _TRAVERSE), None
        if name == "strings.quote":
            size = self._size(args[0])
            return _scaled(size, _TRAVERSE), min(size * 2 + 2, UNKNOWN)
        found = [
            self._overload(node, name, args, kinds) for kinds in self._checked.overloads.get(id(node), [])
        ]
        sizes = [size for _, size in found if size is not None]
        return max((cost for cost, _ in found), default=1), max(sizes) if sizes else None

    def _overload(
        self, node: Call, name: str, args: list[Expr], kinds: tuple[str, ...]
    ) -> tuple[int, int | None]:
        textual = bool(kinds) and kinds[0] in ("string", "bytes")
        if name in _ORDER and textual:
            return _scaled(min(self._size(args[0]), self._size(args[1])), _TRAVERSE), None
        if name == "_+_" and (textual or kinds[0] == "list"):
            size = self._added(node, args)
            return (_scaled(size, _TRAVERSE) if textual else 1), size
        if name == "@in" and kinds[1] == "list":
            return self._size(args[1]), None
        if name == "bytes" and kinds == ("string",):
            size = self._size(args[0])
            return _scaled(size, _TRAVERSE), min(size * 4, UNKNOWN)
        if name == "string" and kinds == ("bytes",):
            return _scaled(self._size(args[0]), _TRAVERSE), self._size(args[0])
        return 1, None

    def _equality(self, args: list[Expr], name: str) -> int:
        types = [self._type(arg) for arg in args]
        if name == "_==_" and types[0] == types[1]:
            match types[0].name:
                case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
                    return 1
                case "kubernetes.NamedFormat":
                    return _scaled(64, _TRAVERSE)
                case "kubernetes.URL":
                    return _scaled(self._sizes.get(id(args[1]), 1), _TRAVERSE)
        return _scaled(min(self._size(args[0]), self._size(args[1])), _TRAVERSE)

    def _added(self, node: Call, args: list[Expr]) -> int:
        entries = self._entries_of(args[0])
        if entries is not None and (both := entries.union(self._entries_of(args[1]))) is not None:
            self._entries[id(node)] = both
        return _plus(self._size(args[0]), self._size(args[1]))


def _literal_size(node: Expr) -> int | None:
    match node:
        case Const():
            return len(node.value) if node.kind in ("string", "bytes") else 1
        case ListOf():
            return len(node.elements)
        case MapOf():
            return len(node.entries)
    return None


def _is_bind(node: Loop) -> bool:
    """`optMap` binds a variable by a loop that never runs."""
    empty = isinstance(node.range, ListOf) and not node.range.elements
    never = isinstance(node.condition, Const) and node.condition.value is False
    return empty and never and not node.accumulator.startswith("@")
