"""How large the values of an expression can be: what cost estimates multiply with.

Sizes are numbers of elements of lists and maps, and lengths of strings and bytes. They come from literals and from the
bounds that the schema sets.
"""

import msgspec

from gangline.schema.cel.checker import CheckedExpr
from gangline.schema.cel.decl_types import DeclType
from gangline.schema.cel.syntax import ComprehensionExpr, ConstExpr, Expr, IdentExpr, ListExpr, MapExpr
from gangline.schema.cel.types import DYN, SIMPLE_TYPES, CelType

MAX_COST = 2**64 - 1
"""The largest cost, and the size of a value without bounds."""
_SCALAR_KINDS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})

FieldPath = tuple[str, ...]
"""The fields that lead from a variable to a value; `@items`, `@keys`, `@values` and `@indices` stand for elements."""


class EntrySizes(msgspec.Struct, frozen=True):
    """The largest sizes of the keys and values in a list or map."""

    kind: str
    key: int
    value: int

    def union(self, other: "EntrySizes | None") -> "EntrySizes | None":
        if other is None:
            return None
        return EntrySizes(self.kind, max(self.key, other.key), max(self.value, other.value))


class _LocalVariable(msgspec.Struct, frozen=True):
    path: FieldPath
    size: int | None
    entries: EntrySizes | None


class SizeTracker:
    """The sizes of the nodes of one expression, recorded while the cost estimate walks over it."""

    def __init__(self, checked: CheckedExpr, declared: DeclType) -> None:
        self._checked_expr, self._decl_type = checked, declared
        self._sizes: dict[int, int] = {}
        self._entry_sizes: dict[int, EntrySizes] = {}
        self._paths: dict[int, FieldPath] = {}
        self._locals: dict[str, list[_LocalVariable]] = {}

    def type(self, node: Expr) -> CelType:
        """The type of a node by the checker; `dyn` if the checker has none."""
        if isinstance(node, ConstExpr):
            return SIMPLE_TYPES[node.kind]
        return self._checked_expr.types.get(id(node), DYN)

    def path(self, node: Expr) -> FieldPath:
        """Where in the object the value of a node is; empty if the value is computed."""
        if isinstance(node, IdentExpr) and (local := self._local_variable(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), ())

    def set_path(self, node: Expr, path: FieldPath) -> None:
        self._paths[id(node)] = path

    def set_ident_path(self, node: IdentExpr) -> None:
        """Record where a variable points to: a local one to its value, any other to itself."""
        local = self._local_variable(node.name)
        self._paths[id(node)] = local.path if local else (node.name,)

    def element_size(self, node: Expr) -> int:
        """The size of an element of a list by the schema; `MAX_COST` if the schema sets no bound."""
        path = self.path(node)
        size = self._path_size((*path, "@items")) if path else None
        return MAX_COST if size is None else size

    def _path_size(self, path: FieldPath) -> int | None:
        """The size that the schema allows at a path."""
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

    def _known_size(self, node: Expr) -> int | None:
        """The largest size of a node's value; None if nothing bounds it."""
        size = self._sizes.get(id(node))
        if size is None:
            size = literal_size(node)
        if size is None:
            size = self._path_size(self.path(node))
            if size is not None:
                self._sizes[id(node)] = size
        if size is None and self.type(node).kind in _SCALAR_KINDS:
            size = 1
        if size is None and isinstance(node, IdentExpr) and (local := self._local_variable(node.name)) is not None:
            size = local.size
        return size

    def size_or_max(self, node: Expr) -> int:
        size = self._known_size(node)
        return MAX_COST if size is None else size

    def recorded_size(self, node: Expr, default: int) -> int:
        """The size that was recorded for a node, without looking further."""
        return self._sizes.get(id(node), default)

    def set_size(self, node: Expr, size: int | None) -> None:
        """Record the size of a node's value; None records what is known of the size otherwise."""
        if size is None:
            size = self._known_size(node)
        if size is not None:
            self._sizes[id(node)] = size

    def entry_sizes(self, node: Expr) -> EntrySizes | None:
        if id(node) in self._entry_sizes:
            return self._entry_sizes[id(node)]
        local = self._local_variable(node.name) if isinstance(node, IdentExpr) else None
        return local.entries if local else None

    def set_entry_sizes(self, node: Expr, entries: EntrySizes | None) -> None:
        """Record the sizes of entries. None records nothing."""
        if entries is not None:
            self._entry_sizes[id(node)] = entries

    def unite_entry_sizes(self, node: Expr, one: Expr, other: Expr) -> None:
        """Record for a node that its value has the entries of one or of both of these."""
        if (entries := self.entry_sizes(one)) is not None:
            self.set_entry_sizes(node, entries.union(self.entry_sizes(other)))

    def copy_sizes(self, node: Expr, source: Expr) -> None:
        """Record for a node the sizes of another one."""
        if (size := self._known_size(source)) is not None:
            self.set_size(node, size)
        self.set_entry_sizes(node, self.entry_sizes(source))

    def _local_variable(self, name: str) -> _LocalVariable | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push_local(self, name: str, path: FieldPath, size: int | None, entries: EntrySizes | None = None) -> None:
        self._locals.setdefault(name, []).append(_LocalVariable(path, size, entries))

    def push_accumulator(self, node: ComprehensionExpr) -> None:
        """Bring the accumulator of a comprehension into scope, until `pop_locals`."""
        start = node.accu_init
        self._push_local(node.accu_var, self.path(start), self._known_size(start), self.entry_sizes(start))

    def push_iteration_variables(self, node: ComprehensionExpr) -> list[str]:
        """Bring the loop variables of a comprehension into scope, until `pop_locals`. Returns their names."""
        entries, path = self.entry_sizes(node.iter_range), self.path(node.iter_range)
        is_list = (entries.kind if entries else self.type(node.iter_range).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.iter_var2:
            self._push_local(node.iter_var, (*path, "@indices" if is_list else "@keys"), key)
            self._push_local(node.iter_var2, (*path, "@items" if is_list else "@values"), value)
            return [node.iter_var, node.iter_var2]
        self._push_local(node.iter_var, (*path, "@items" if is_list else "@keys"), value if is_list else key)
        return [node.iter_var]

    def pop_locals(self, *names: str) -> None:
        for name in names:
            self._locals[name].pop()


def literal_size(node: Expr) -> int | None:
    """The size of a constant, list or map as it is written; None for any other expression."""
    match node:
        case ConstExpr():
            return len(node.value) if node.kind in ("string", "bytes") else 1
        case ListExpr():
            return len(node.elements)
        case MapExpr():
            return len(node.entries)
    return None
