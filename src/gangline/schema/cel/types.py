"""Types of expressions, and when one fits where another is wanted: the rules of CEL's type checker."""

from collections.abc import Mapping, Sequence

import msgspec


class Type(msgspec.Struct, frozen=True, order=False):
    """A type. Objects are told apart by name, all others by what they consist of."""

    kind: str
    params: "tuple[Type, ...]" = ()
    name: str = ""
    fields: "Mapping[str, Type] | None" = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Type)
            and self.kind == other.kind
            and self.name == other.name
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.params))

    def __str__(self) -> str:
        name = self.name or _SHOWN.get(self.kind, self.kind)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


_SHOWN = {"error": "!error!"}
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
DYN, ERROR, TYPE = Type("dyn"), Type("error"), Type("type")
SIMPLE = {
    one.kind: one for one in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, DYN, TYPE)
}
_PLAIN = frozenset({"bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "struct"})
_NULLABLE = frozenset({"opaque", "struct", "duration", "timestamp", "null"})


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(inner: Type) -> Type:
    return Type("opaque", (inner,), "optional_type")


def type_of(inner: Type) -> Type:
    return Type("type", (inner,))


def param(name: str) -> Type:
    return Type("param", (), name)


def is_optional(one: Type) -> bool:
    return one.name == "optional_type"


def is_dyn(one: Type) -> bool:
    return one.kind == "dyn"


def is_wild(one: Type) -> bool:
    return one.kind in ("dyn", "error")


class Bindings:
    """What type parameters stand for. Grows while an expression is checked."""

    def __init__(self, known: Mapping[Type, Type] | None = None) -> None:
        self._known = dict(known or {})

    def fits(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether each given type may stand where the other is wanted. What is learned is kept only if all do."""
        trial = Bindings(self._known)
        if len(given) != len(wanted) or not all(map(trial._assignable, given, wanted)):
            return False
        self._known = trial._known
        return True

    def resolved(self, one: Type, *, free_as_dyn: bool = False) -> Type:
        """With parameters replaced by what they stand for."""
        if (known := self._known.get(one)) is not None:
            return self.resolved(known, free_as_dyn=free_as_dyn)
        if one.kind == "param":
            return DYN if free_as_dyn else one
        if not one.params:
            return one
        inner = tuple(self.resolved(part, free_as_dyn=free_as_dyn) for part in one.params)
        return Type(one.kind, inner, one.name, one.fields)

    def bind(self, one: Type, to: Type) -> None:
        self._known[one] = to

    def _assignable(self, one: Type, other: Type) -> bool:
        if other.kind == "param":
            valid, known = self._substitutes(one, other)
            if valid or known:
                return valid
        if one.kind == "param":
            return self._substitutes(other, one)[0]
        if is_wild(one) or is_wild(other):
            return True
        if "null" in (one.kind, other.kind):
            return (other if one.kind == "null" else one).kind in _NULLABLE
        if one.kind in _PLAIN:
            return one == other
        if one.kind == "type":
            return other.kind == "type"
        same = one.kind == other.kind and one.name == other.name and len(one.params) == len(other.params)
        return same and all(map(self._assignable, one.params, other.params))

    def _substitutes(self, one: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter may stand for the type, and whether it stood for one already."""
        if one == parameter:
            return True, True
        if (known := self._known.get(parameter)) is not None:
            if one == known:
                return True, True
            if self._assignable(one, known):
                general = most_general(one, known)
                if self._free_of(parameter, general):
                    self._known[parameter] = general
                return True, True
            return False, True
        if self._free_of(parameter, one):
            self._known[parameter] = one
            return True, False
        return False, False

    def _free_of(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return False
        if within.kind == "param":
            known = self._known.get(within)
            return known is None or self._free_of(parameter, known)
        return all(self._free_of(parameter, part) for part in within.params)


def most_general(one: Type, other: Type) -> Type:
    """The one that says less, of two that fit each other."""
    return one if _says_less(one, other) else other


def _says_less(one: Type, other: Type) -> bool:
    if is_dyn(one) or one.kind == "param":
        return True
    if is_dyn(other) or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.kind in ("opaque", "list", "map"):
        same = one.name == other.name and len(one.params) == len(other.params)
        return same and all(map(_says_less, one.params, other.params))
    return one == other
