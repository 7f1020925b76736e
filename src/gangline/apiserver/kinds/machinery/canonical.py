"""Objects as kube-apiserver writes them back: zero values omitted or filled in, quantities and times canonical.

kube-apiserver decodes a request into Go structs and encodes these again. A null, empty or zero value is omitted or
written as zero, depending on the field: `env: []` is omitted, `emptyDir: {}` is kept, `status` is added. The
declaration of the field in Go decides:

    a pointer         null is omitted, zero is kept
    a struct          is always written, even if the request does not have it
    anything else     zero is omitted: an empty string, an empty list

Without `omitempty`, a value that would be omitted is written as zero or null.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import quantities
from gangline.schema.typed import types
from gangline.schema.typed.openapi import definition_type
from gangline.schema.typed.types import TypeNode

_ZERO_VALUES: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "byte": "",
    "quantity": "0",
    "int-or-string": 0,
}
# Structs that stay as clients send them. Server-side apply reads managedFields and writes them as Go would, so that a
# walk through them on every request would change nothing.
_OPAQUE_STRUCTS = {"v1.ManagedFieldsEntry"}
# What to do with a field. Small numbers, because this loop runs over every field of every pod.
_OMIT_ZERO, _OMIT_NULL, _WRITE_ALWAYS, _STRUCT_POINTER, _STRUCT_VALUE, _CONVERT = range(6)
_SCALAR_ELEMENTS, _QUANTITIES, _STRUCT_LIST, _STRUCT_MAP, _DROP = range(6, 11)
_is_canonical_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").fullmatch
_is_canonical_micro_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z").fullmatch


class Canonicalizer:
    """One struct: what to do with each field, and which fields are always written. Built on first use."""

    __slots__ = ("_actions", "_field_types", "always_written")

    def __init__(self, declared: Mapping[str, TypeNode]) -> None:
        self._field_types = declared
        self._actions: dict[str, tuple[int, Any]] | None = None
        self.always_written: tuple[tuple[str, Any], ...] = ()

    @property
    def actions(self) -> dict[str, tuple[int, Any]]:
        """What to do with each field. Built on first use, because most structs are never used."""
        if self._actions is None:
            self._actions = {name: _field_action(declared) for name, declared in self._field_types.items()}
            self.always_written = tuple(_always_written(self._field_types, self._actions))
        return self._actions

    def canonicalize(self, obj: JSON) -> None:  # noqa: C901  one loop, no calls: it runs over every field of every pod
        """Make `obj` what the server would write, in place. Unknown fields are dropped. Raises `QuantityError`."""
        dropped: list[str] | None = None
        fields = self._actions or self.actions
        for name, value in obj.items():
            action, argument = fields.get(name, _UNKNOWN_FIELD)
            if action == _OMIT_ZERO:
                keep = bool(value)
            elif value is None:
                keep = action in (_WRITE_ALWAYS, _STRUCT_VALUE)
                if keep:
                    obj[name] = argument.zero_value() if action == _STRUCT_VALUE else argument
            elif action <= _WRITE_ALWAYS:
                keep = True
            elif action in (_STRUCT_POINTER, _STRUCT_VALUE):
                argument.canonicalize(value)
                keep = True
            elif action == _CONVERT:
                obj[name] = argument(value)
                keep = True
            else:
                keep = action != _DROP and _canonicalize_elements(obj, name, value, action, argument)
            if not keep:
                dropped = [*dropped, name] if dropped else [name]
        if dropped:
            for name in dropped:
                del obj[name]
        for name, zero in self.always_written:
            if name not in obj:
                obj[name] = zero.zero_value() if zero.__class__ is Canonicalizer else zero

    def zero_value(self) -> JSON:
        """The zero value of the struct."""
        fresh: JSON = {}
        self.canonicalize(fresh)
        return fresh

    def field_canonicalizer(self, name: str) -> "Canonicalizer":
        """The canonicalizer of a field that is a struct."""
        inner: Canonicalizer = self.actions[name][1]
        return inner


def _canonicalize_elements(obj: JSON, name: str, value: Any, action: int, argument: Any) -> bool:
    if action == _SCALAR_ELEMENTS:
        if None in (value.values() if value.__class__ is dict else value):
            obj[name] = _without_nulls(value, argument)
    elif action == _QUANTITIES:
        quantities.canonicalize_quantities(value)
    elif action == _STRUCT_LIST:
        canonicalize = argument.canonicalize
        for index, item in enumerate(value):
            if item is None:
                value[index] = argument.zero_value()
            else:
                canonicalize(item)
    elif action == _STRUCT_MAP:
        for item in value.values():
            argument.canonicalize(item)
    return bool(value)


def _without_nulls(value: Any, zero: Any) -> Any:
    if isinstance(value, dict):
        return {key: zero if one is None else one for key, one in value.items()}
    return [zero if one is None else one for one in value]


def canonical_time(text: str) -> str:
    """A `metav1.Time` in whole seconds and UTC. An invalid time is returned as it is: decoding reports it."""
    if _is_canonical_time(text):
        return text
    moment = _parse_time(text)
    return text if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(text: str) -> str:
    """A `metav1.MicroTime` in microseconds and UTC. An invalid time is returned as it is."""
    if _is_canonical_micro_time(text):
        return text
    moment = _parse_time(text)
    return text if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "time": canonical_time,
    "micro-time": canonical_micro_time,
    "quantity": quantities.canonical_quantity,
}
_UNKNOWN_FIELD: tuple[int, Any] = (_DROP, None)
_CANONICALIZERS: dict[int, Canonicalizer] = {}


@cache
def canonicalizer(struct: str) -> Canonicalizer:
    """The canonicalizer of a struct of Kubernetes' API, `core.v1.Pod`. Shared. Raises LookupError for an unknown one."""
    return _struct_canonicalizer(definition_type(struct if struct.startswith("io.k8s.") else f"io.k8s.api.{struct}"))


def _always_written(
    declared: Mapping[str, TypeNode], rules: Mapping[str, tuple[int, Any]]
) -> Iterator[tuple[str, Any]]:
    for name, (action, argument) in rules.items():
        if action in (_WRITE_ALWAYS, _STRUCT_VALUE):
            yield name, argument
        elif action in (_CONVERT, _STRUCT_LIST, _SCALAR_ELEMENTS) and not declared[name].omit_empty:
            yield name, None if declared[name].pointer else _ZERO_VALUES.get(declared[name].scalar)


def _struct_canonicalizer(declared: TypeNode) -> Canonicalizer:
    """The canonicalizer of a struct, one per struct: all references to it share the mapping of its fields."""
    fields = declared.fields
    return _CANONICALIZERS.setdefault(id(fields), Canonicalizer(fields))


def _field_action(declared: TypeNode) -> tuple[int, Any]:
    if declared.shape is types.TypeShape.OBJECT:
        return (_STRUCT_POINTER if declared.pointer else _STRUCT_VALUE), _struct_canonicalizer(declared)
    if declared.scalar in _CONVERTERS:
        return _CONVERT, _CONVERTERS[declared.scalar]
    if declared.pointer:
        return (_OMIT_NULL if declared.omit_empty else _WRITE_ALWAYS), None
    if declared.shape is types.TypeShape.LIST:
        return _list_action(declared.element)
    if declared.shape is types.TypeShape.MAP:
        return _map_action(declared.element)
    return (_OMIT_ZERO, None) if declared.omit_empty else (_WRITE_ALWAYS, _ZERO_VALUES.get(declared.scalar))


def _list_action(element: TypeNode) -> tuple[int, Any]:
    if element.shape is types.TypeShape.OBJECT and element.go_type not in _OPAQUE_STRUCTS:
        return _STRUCT_LIST, _struct_canonicalizer(element)
    return _SCALAR_ELEMENTS, _ZERO_VALUES.get(element.scalar)


def _map_action(element: TypeNode) -> tuple[int, Any]:
    if element.scalar == "quantity":
        return _QUANTITIES, None
    if element.shape is types.TypeShape.OBJECT:
        return _STRUCT_MAP, _struct_canonicalizer(element)
    return _SCALAR_ELEMENTS, _ZERO_VALUES.get(element.scalar)
