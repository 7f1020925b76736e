"""Objects as the real server writes them back: zero values left out or filled in, quantities and times canonical.

kube-apiserver decodes a request into structs and encodes those again. What was null, empty or zero disappears or
comes back as a zero, by the field: `env: []` goes, `emptyDir: {}` stays, `status` appears. What Go declares of a
field decides:

    a pointer         null goes, zero stays
    a struct          is always written, also when nobody wrote it
    anything else     zero goes: no text, an empty list

and without `omitempty` what would go is written instead, as zero or null.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import quantities
from gangline.schema.typed import types
from gangline.schema.typed.openapi import type_named
from gangline.schema.typed.types import Type

_ZEROS: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "byte": "",
    "quantity": "0",
    "int-or-string": 0,
}
# Structs that are kept as they come. apply/managed.py reads managedFields as the client sent them and writes them as Go
# would; to walk through them here, on every request, would find nothing.
_OPAQUE = {"v1.ManagedFieldsEntry"}
# What to do with a field. Small numbers, because this loop runs over every field of every pod.
_ZERO_GOES, _NULL_GOES, _ALWAYS, _STRUCT, _VALUE, _CONVERT = range(6)
_TEXTS, _AMOUNTS, _STRUCTS, _STRUCT_MAP, _GONE = range(6, 11)
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").fullmatch
_PLAIN_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z").fullmatch


class Shape:
    """One struct: what becomes of each field, and what is there even if nobody wrote it. Worked out on first use."""

    __slots__ = ("_declared", "_fields", "always")

    def __init__(self, declared: Mapping[str, Type]) -> None:
        self._declared = declared
        self._fields: dict[str, tuple[int, Any]] | None = None
        self.always: tuple[tuple[str, Any], ...] = ()

    @property
    def fields(self) -> dict[str, tuple[int, Any]]:
        """What to do with each field. Not built before it is asked for: most structs never are."""
        if self._fields is None:
            self._fields = {name: _rule(declared) for name, declared in self._declared.items()}
            self.always = tuple(_always(self._declared, self._fields))
        return self._fields

    def fit(self, obj: JSON) -> None:  # noqa: C901  one loop, no calls: it runs over every field of every pod
        """Make `obj` what the server would write, in place. Unknown fields go. Raises `QuantityError`."""
        gone: list[str] | None = None
        fields = self._fields or self.fields
        for name, value in obj.items():
            todo, argument = fields.get(name, _UNKNOWN)
            if todo == _ZERO_GOES:
                keep = bool(value)
            elif value is None:
                keep = todo in (_ALWAYS, _VALUE)
                if keep:
                    obj[name] = argument.empty() if todo == _VALUE else argument
            elif todo <= _ALWAYS:
                keep = True
            elif todo in (_STRUCT, _VALUE):
                argument.fit(value)
                keep = True
            elif todo == _CONVERT:
                obj[name] = argument(value)
                keep = True
            else:
                keep = todo != _GONE and _fit_many(obj, name, value, todo, argument)
            if not keep:
                gone = [*gone, name] if gone else [name]
        if gone:
            for name in gone:
                del obj[name]
        for name, zero in self.always:
            if name not in obj:
                obj[name] = zero.empty() if zero.__class__ is Shape else zero

    def empty(self) -> JSON:
        """The struct nobody wrote anything into."""
        fresh: JSON = {}
        self.fit(fresh)
        return fresh

    def part(self, name: str) -> "Shape":
        """The shape of a field that is a struct."""
        found: Shape = self.fields[name][1]
        return found


def _fit_many(obj: JSON, name: str, value: Any, todo: int, argument: Any) -> bool:
    if todo == _TEXTS:
        if None in (value.values() if value.__class__ is dict else value):
            obj[name] = _without_nulls(value, argument)
    elif todo == _AMOUNTS:
        quantities.canonical_amounts(value)
    elif todo == _STRUCTS:
        fit = argument.fit
        for index, item in enumerate(value):
            if item is None:
                value[index] = argument.empty()
            else:
                fit(item)
    elif todo == _STRUCT_MAP:
        for item in value.values():
            argument.fit(item)
    return bool(value)


def _without_nulls(value: Any, zero: Any) -> Any:
    if isinstance(value, dict):
        return {key: zero if one is None else one for key, one in value.items()}
    return [zero if one is None else one for one in value]


def canonical_time(text: str) -> str:
    """A `metav1.Time`: whole seconds, in UTC. What is no time is left alone: decoding complains about it."""
    if _PLAIN_TIME(text):
        return text
    moment = _moment(text)
    return text if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(text: str) -> str:
    """A `metav1.MicroTime`: microseconds, in UTC."""
    if _PLAIN_MICRO_TIME(text):
        return text
    moment = _moment(text)
    return text if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "time": canonical_time,
    "micro-time": canonical_micro_time,
    "quantity": quantities.canonical,
}
_UNKNOWN: tuple[int, Any] = (_GONE, None)
_SHAPES: dict[int, Shape] = {}


@cache
def shape(struct: str) -> Shape:
    """The shape of a struct of Kubernetes' API: `core.v1.Pod`. Shared. Raises LookupError when there is none."""
    return _struct(type_named(f"io.k8s.api.{struct}"))


def _always(declared: Mapping[str, Type], rules: Mapping[str, tuple[int, Any]]) -> Iterator[tuple[str, Any]]:
    for name, (todo, argument) in rules.items():
        if todo in (_ALWAYS, _VALUE):
            yield name, argument
        elif todo in (_CONVERT, _STRUCTS, _TEXTS) and not declared[name].omit:
            yield name, None if declared[name].pointer else _ZEROS.get(declared[name].scalar)


def _struct(declared: Type) -> Shape:
    """One shape for each struct: its fields are the same mapping, whoever refers to it."""
    fields = declared.fields
    return _SHAPES.setdefault(id(fields), Shape(fields))


def _rule(declared: Type) -> tuple[int, Any]:
    if declared.shape is types.Shape.OBJECT:
        return (_STRUCT if declared.pointer else _VALUE), _struct(declared)
    if declared.scalar in _CONVERTERS:
        return _CONVERT, _CONVERTERS[declared.scalar]
    if declared.pointer:
        return (_NULL_GOES if declared.omit else _ALWAYS), None
    if declared.shape is types.Shape.LIST:
        return _list(declared.element)
    if declared.shape is types.Shape.MAP:
        return _map(declared.element)
    return (_ZERO_GOES, None) if declared.omit else (_ALWAYS, _ZEROS.get(declared.scalar))


def _list(element: Type) -> tuple[int, Any]:
    if element.shape is types.Shape.OBJECT and element.go not in _OPAQUE:
        return _STRUCTS, _struct(element)
    return _TEXTS, _ZEROS.get(element.scalar)


def _map(element: Type) -> tuple[int, Any]:
    if element.scalar == "quantity":
        return _AMOUNTS, None
    if element.shape is types.Shape.OBJECT:
        return _STRUCT_MAP, _struct(element)
    return _TEXTS, _ZEROS.get(element.scalar)
