"""Types of expressions, and when one fits where another is wanted: the rules of CEL's type checker."""

from collections.abc import Mapping, Sequence

import msgspec


class CelType(msgspec.Struct, frozen=True, order=False):
    """A type. Objects are told apart by name, all others by what they consist of."""

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


def is_optional(one: CelType) -> bool:
    return one.name == "optional_type"


def is_dyn(one: CelType) -> bool:
    return one.kind == "dyn"


def is_dyn_or_error(one: CelType) -> bool:
    return one.kind in ("dyn", "error")


class TypeSubstitution:
    """What type parameters stand for. Grows while an expression is checked."""

    def __init__(self, known: Mapping[CelType, CelType] | None = None) -> None:
        self._mapping = dict(known or {})

    def is_assignable(self, given: Sequence[CelType], wanted: Sequence[CelType]) -> bool:
        """Whether each given type may stand where the other is wanted. What is learned is kept only if all do."""
        trial = TypeSubstitution(self._mapping)
        if len(given) != len(wanted) or not all(map(trial._is_type_assignable, given, wanted)):
            return False
        self._mapping = trial._mapping
        return True

    def substitute(self, one: CelType, *, free_as_dyn: bool = False) -> CelType:
        """With parameters replaced by what they stand for."""
        if (known := self._mapping.get(one)) is not None:
            return self.substitute(known, free_as_dyn=free_as_dyn)
        if one.kind == "param":
            return DYN if free_as_dyn else one
        if not one.params:
            return one
        inner = tuple(self.substitute(part, free_as_dyn=free_as_dyn) for part in one.params)
        return CelType(one.kind, inner, one.name, one.fields)

    def bind(self, one: CelType, to: CelType) -> None:
        self._mapping[one] = to

    def _is_type_assignable(self, one: CelType, other: CelType) -> bool:
        if other.kind == "param":
            valid, known = self._try_substitute(one, other)
            if valid or known:
                return valid
        if one.kind == "param":
            return self._try_substitute(other, one)[0]
        if is_dyn_or_error(one) or is_dyn_or_error(other):
            return True
        if "null" in (one.kind, other.kind):
            return (other if one.kind == "null" else one).kind in _NULLABLE_KINDS
        if one.kind in _EXACT_KINDS:
            return one == other
        if one.kind == "type":
            return other.kind == "type"
        same = one.kind == other.kind and one.name == other.name and len(one.params) == len(other.params)
        return same and all(map(self._is_type_assignable, one.params, other.params))

    def _try_substitute(self, one: CelType, parameter: CelType) -> tuple[bool, bool]:
        """Whether the parameter may stand for the type, and whether it stood for one already."""
        if one == parameter:
            return True, True
        if (known := self._mapping.get(parameter)) is not None:
            if one == known:
                return True, True
            if self._is_type_assignable(one, known):
                general = more_general_type(one, known)
                if self._not_referenced_in(parameter, general):
                    self._mapping[parameter] = general
                return True, True
            return False, True
        if self._not_referenced_in(parameter, one):
            self._mapping[parameter] = one
            return True, False
        return False, False

    def _not_referenced_in(self, parameter: CelType, within: CelType) -> bool:
        if parameter == within:
            return False
        if within.kind == "param":
            known = self._mapping.get(within)
            return known is None or self._not_referenced_in(parameter, known)
        return all(self._not_referenced_in(parameter, part) for part in within.params)


def more_general_type(one: CelType, other: CelType) -> CelType:
    """The one that says less, of two that fit each other."""
    return one if _is_more_general(one, other) else other


def _is_more_general(one: CelType, other: CelType) -> bool:
    if is_dyn(one) or one.kind == "param":
        return True
    if is_dyn(other) or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.kind in ("opaque", "list", "map"):
        same = one.name == other.name and len(one.params) == len(other.params)
        return same and all(map(_is_more_general, one.params, other.params))
    return one == other
