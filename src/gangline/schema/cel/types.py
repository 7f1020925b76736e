"""Types of expressions, and when a type is assignable to another: the rules of CEL's type checker."""

from collections.abc import Mapping, Sequence

import msgspec


class CelType(msgspec.Struct, frozen=True, order=False):
    """A type. Objects are equal by name, all other types by their parts."""

    kind: str
    params: "tuple[CelType, ...]" = ()
    name: str = ""
    fields: "Mapping[str, CelType] | None" = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CelType)
            and self.kind == other.kind
            and self.name == other.name
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.params))

    def __str__(self) -> str:
        name = self.name or _DISPLAY_NAMES.get(self.kind, self.kind)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


_DISPLAY_NAMES = {"error": "!error!"}
BOOL, INT, UINT, DOUBLE = CelType("bool"), CelType("int"), CelType("uint"), CelType("double")
STRING, BYTES, NULL = CelType("string"), CelType("bytes"), CelType("null")
TIMESTAMP, DURATION = CelType("timestamp"), CelType("duration")
DYN, ERROR, TYPE = CelType("dyn"), CelType("error"), CelType("type")
SIMPLE_TYPES = {one.kind: one for one in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, DYN, TYPE)}
_EXACT_KINDS = frozenset({"bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "struct"})
_NULLABLE_KINDS = frozenset({"opaque", "struct", "duration", "timestamp", "null"})


def list_type(element: CelType) -> CelType:
    return CelType("list", (element,))


def map_type(key: CelType, value: CelType) -> CelType:
    return CelType("map", (key, value))


def optional_type(inner: CelType) -> CelType:
    return CelType("opaque", (inner,), "optional_type")


def type_of_type(inner: CelType) -> CelType:
    return CelType("type", (inner,))


def type_param(name: str) -> CelType:
    return CelType("param", (), name)


def is_optional(cel_type: CelType) -> bool:
    return cel_type.name == "optional_type"


def is_dyn(cel_type: CelType) -> bool:
    return cel_type.kind == "dyn"


def is_dyn_or_error(cel_type: CelType) -> bool:
    return cel_type.kind in ("dyn", "error")


class TypeSubstitution:
    """The types that type parameters are bound to. Grows while an expression is checked."""

    def __init__(self, mapping: Mapping[CelType, CelType] | None = None) -> None:
        self._mapping = dict(mapping or {})

    def is_assignable(self, actual: Sequence[CelType], formal: Sequence[CelType]) -> bool:
        """Whether each actual type is assignable to its formal type. New bindings are kept only if all are."""
        trial = TypeSubstitution(self._mapping)
        if len(actual) != len(formal) or not all(map(trial._is_type_assignable, actual, formal)):
            return False
        self._mapping = trial._mapping
        return True

    def substitute(self, cel_type: CelType, *, free_as_dyn: bool = False) -> CelType:
        """The type with its parameters replaced by their bindings. `free_as_dyn`: unbound ones become `dyn`."""
        if (bound := self._mapping.get(cel_type)) is not None:
            return self.substitute(bound, free_as_dyn=free_as_dyn)
        if cel_type.kind == "param":
            return DYN if free_as_dyn else cel_type
        if not cel_type.params:
            return cel_type
        inner = tuple(self.substitute(part, free_as_dyn=free_as_dyn) for part in cel_type.params)
        return CelType(cel_type.kind, inner, cel_type.name, cel_type.fields)

    def bind(self, parameter: CelType, to: CelType) -> None:
        self._mapping[parameter] = to

    def _is_type_assignable(self, left: CelType, right: CelType) -> bool:
        if right.kind == "param":
            valid, was_bound = self._try_substitute(left, right)
            if valid or was_bound:
                return valid
        if left.kind == "param":
            return self._try_substitute(right, left)[0]
        if is_dyn_or_error(left) or is_dyn_or_error(right):
            return True
        if "null" in (left.kind, right.kind):
            return (right if left.kind == "null" else left).kind in _NULLABLE_KINDS
        if left.kind in _EXACT_KINDS:
            return left == right
        if left.kind == "type":
            return right.kind == "type"
        same = left.kind == right.kind and left.name == right.name and len(left.params) == len(right.params)
        return same and all(map(self._is_type_assignable, left.params, right.params))

    def _try_substitute(self, cel_type: CelType, parameter: CelType) -> tuple[bool, bool]:
        """Whether the parameter can be bound to the type, and whether it was bound before."""
        if cel_type == parameter:
            return True, True
        if (bound := self._mapping.get(parameter)) is not None:
            if cel_type == bound:
                return True, True
            if self._is_type_assignable(cel_type, bound):
                general = more_general_type(cel_type, bound)
                if self._not_referenced_in(parameter, general):
                    self._mapping[parameter] = general
                return True, True
            return False, True
        if self._not_referenced_in(parameter, cel_type):
            self._mapping[parameter] = cel_type
            return True, False
        return False, False

    def _not_referenced_in(self, parameter: CelType, within: CelType) -> bool:
        if parameter == within:
            return False
        if within.kind == "param":
            bound = self._mapping.get(within)
            return bound is None or self._not_referenced_in(parameter, bound)
        return all(self._not_referenced_in(parameter, part) for part in within.params)


def more_general_type(left: CelType, right: CelType) -> CelType:
    """The more general of two types that are assignable to each other."""
    return left if _is_more_general(left, right) else right


def _is_more_general(left: CelType, right: CelType) -> bool:
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param" or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in ("opaque", "list", "map"):
        same = left.name == right.name and len(left.params) == len(right.params)
        return same and all(map(_is_more_general, left.params, right.params))
    return left == right
