"""What Go's decoder reports about the JSON of a built-in kind: wrong types, unknown fields, duplicate fields.

kube-apiserver decodes objects into Go structs, and its answers quote the decoder. Here objects are plain JSON, so the
same messages are made from the type tree. Nearly all objects are fine: a `DecodingChecker` finds that out in C, by
decoding the bytes a second time into structs made from the tree, and walks over the object only when that fails.
"""

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from gangline.api.meta import JSON
from gangline.schema.typed import scalars
from gangline.schema.typed.structs import RecursiveTypeError, msgspec_type
from gangline.schema.typed.types import TypeNode, TypeShape


class DecodingErrors(msgspec.Struct, frozen=True):
    """What is wrong with an object's JSON, in Go's words."""

    error: str = ""
    """The first value of a wrong type, for which the object is refused."""
    strict: tuple[str, ...] = ()
    """Unknown and duplicate fields in order: warnings, or an error if the client requests strict validation."""


NO_ERRORS = DecodingErrors()


class DecodingChecker:
    """Checks objects of one kind. Prepared on first use and shared by all requests."""

    def __init__(self, tree: TypeNode) -> None:
        self._type_tree = tree

    def errors(self, raw: bytes, obj: JSON) -> DecodingErrors:
        """What is wrong with `raw`, whose decoded form is `obj`. Cheap when nothing is."""
        duplicates = has_duplicates(raw, obj)
        if not duplicates and self._decodes(raw):
            return NO_ERRORS
        if errors := type_errors(obj, self._type_tree):
            return DecodingErrors(error=errors[0])
        if not duplicates and _has_only_known_fields(obj, self._type_tree):
            return NO_ERRORS
        return DecodingErrors(strict=tuple(strict_errors(raw, self._type_tree)))

    @cached_property
    def _decodes(self) -> Callable[[bytes], bool]:
        try:
            decoder = msgspec.json.Decoder(msgspec_type(self._type_tree))
        except RecursiveTypeError:
            return lambda raw: False

        def decodes(raw: bytes) -> bool:
            try:
                decoder.decode(raw)
            except msgspec.DecodeError:
                return False
            return True

        return decodes


def has_duplicates(raw: bytes, obj: JSON) -> bool:
    """Whether some object in `raw` has a field twice. True may be wrong, False never is.

    `obj` is `raw` decoded, so its encoding has the same strings, and one colon for every remaining field.
    """
    return raw.count(b":") != msgspec.json.encode(obj).count(b":") or b"\\u003" in raw


# Unknown and duplicate fields

_CONTAINER_TYPES = (dict, list)
_FieldPairs: TypeAlias = tuple[tuple[str, Any], ...]
"""A JSON object with its fields in order, duplicates included."""


def strict_errors(raw: bytes, tree: TypeNode) -> list[str]:
    """Unknown and duplicate fields in the order of the text, in the words of strict decoding.

    As Go's decoder, it skips the content of unknown fields and free-form JSON. `raw` must be valid JSON.
    """
    # The standard library's decoder, because it can return a field twice.
    pairs = json.loads(raw, object_pairs_hook=tuple)
    return list(dict.fromkeys(_strict_value_errors(pairs, tree, "")))


def duplicate_fields(raw: bytes, obj: Any) -> list[str]:
    """Fields that are twice in some object of `raw`, whose decoded form is `obj`, in the words of strict decoding."""
    if not has_duplicates(raw, obj):
        return []
    return list(dict.fromkeys(_duplicate_field_errors(json.loads(raw, object_pairs_hook=tuple), "")))


def _duplicate_field_errors(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _duplicate_field_errors(item, f"{path}[{index}]")
    elif isinstance(value, tuple):
        names = set()
        for name, item in value:
            inner = f"{path}.{name}" if path else name
            if name in names:
                yield f'duplicate field "{inner}"'
            names.add(name)
            yield from _duplicate_field_errors(item, inner)


def _has_only_known_fields(value: Any, tree: TypeNode) -> bool:
    """Whether the type has all fields of a value. Needed for recursive types, for which there are no structs."""
    if value.__class__ is dict and tree.shape in (TypeShape.OBJECT, TypeShape.MAP):
        for name, item in value.items():
            field_type = tree.field_type(name)
            if field_type is None or (
                item.__class__ in _CONTAINER_TYPES and not _has_only_known_fields(item, field_type)
            ):
                return False
    elif value.__class__ is list and tree.shape is TypeShape.LIST:
        return all(_has_only_known_fields(item, tree.element) for item in value if item.__class__ in _CONTAINER_TYPES)
    return True


def _strict_value_errors(value: Any, tree: TypeNode, path: str) -> Iterator[str]:
    if tree.shape is TypeShape.LIST and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strict_value_errors(item, tree.element, f"{path}[{index}]")
    elif tree.shape in (TypeShape.OBJECT, TypeShape.MAP) and isinstance(value, tuple):
        yield from _strict_field_errors(value, tree, path)


def _strict_field_errors(pairs: _FieldPairs, tree: TypeNode, path: str) -> Iterator[str]:
    names = set()
    for name, item in pairs:
        inner = f"{path}.{name}" if path else name
        field_type = tree.field_type(name)
        if field_type is None:
            yield f'unknown field "{inner}"'
        elif name in names:
            yield f'duplicate field "{inner}"'
        else:
            yield from _strict_value_errors(item, field_type, inner)
        names.add(name)


# Wrong types


def type_errors(obj: Any, tree: TypeNode) -> list[str]:
    """What Go's decoder reports about values of the wrong type, in order. kube-apiserver reports the first only."""
    return list(_value_type_errors(obj, tree, _short_type_name(tree.go_type), ""))


def _value_type_errors(value: Any, tree: TypeNode, struct: str, path: str) -> Iterator[str]:
    """Errors of a value and all values inside.

    `struct` and `path` name the field as Go does: the innermost struct, and the path without indexes.
    """
    if value is None or tree.shape is TypeShape.ANY:
        return
    if tree.shape is TypeShape.SCALAR:
        if problem := scalars.scalar_error(value, tree, struct, path):
            yield problem
    elif tree.shape is TypeShape.LIST:
        if not isinstance(value, list):
            yield scalars.unmarshal_error(value, tree.go_type, struct, path)
            return
        for item in value:
            yield from _value_type_errors(item, tree.element, struct, path)
    elif not isinstance(value, dict):
        yield scalars.unmarshal_error(value, tree.go_type, struct, path)
    elif tree.shape is TypeShape.MAP:
        for item in value.values():
            yield from _value_type_errors(item, tree.element, struct, path)
    else:
        for name, item in value.items():
            if field := tree.fields.get(name):
                yield from _value_type_errors(
                    item, field, _short_type_name(tree.go_type), f"{path}.{name}" if path else name
                )


def _short_type_name(go: str) -> str:
    """`PodSpec` of `v1.PodSpec`."""
    return go.rpartition(".")[2]
