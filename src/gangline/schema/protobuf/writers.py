"""JSON as Kubernetes' protobuf messages, the other way round than `messages.py`: one `MessageWriter` per Go type.

The bytes are those that Go writes of the struct that it decodes the JSON into: fields in order of their numbers, and
those without a value as zero, unless they are pointers, lists or maps.
"""

import base64
import struct
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, TypeAlias

from gangline.api.meta import JSON
from gangline.schema.protobuf.definitions import message_members
from gangline.schema.protobuf.special_messages import SPECIAL_WRITERS
from gangline.schema.protobuf.wire import BYTES, FIXED64, VARINT, ProtobufError, block, varint
from gangline.schema.typed.published import MessageField

ValueWriter: TypeAlias = Callable[[Any], bytes]
_WholeObject: TypeAlias = None
_Row: TypeAlias = tuple[str | _WholeObject, bytes, ValueWriter]
"""The name of a field (None for fields of an inlined struct), its bytes without a value, and its writer."""


class MessageWriter:
    """Writes one type of message. Shared; it has no state except its tables."""

    def __init__(self, name: str, members: tuple[MessageField, ...], *, strict: bool) -> None:
        self._name, self._members, self._strict = name, members, strict

    def write(self, value: JSON) -> bytes:
        """The message of a JSON object.

        Raises TypeError, AttributeError or ValueError for a value that does not fit its field; a strict writer also
        `ProtobufError` for a field that the message does not have.
        """
        get, parts = value.get, list[bytes]()
        add = parts.append
        for name, absent, put in self._rows:
            if name is None:
                add(put(value))
            elif (member := get(name)) is not None:
                add(put(member))
            elif absent:
                add(absent)
        if self._strict and not self.names.issuperset(value):
            unknown = next(name for name in value if name not in self.names)
            raise ProtobufError(f"{self._name.rpartition('.')[2]} has no field {unknown}")
        return b"".join(parts)

    @cached_property
    def names(self) -> frozenset[str]:
        """The fields of the JSON object, with those of inlined structs."""
        names: set[str] = set()
        for member in self._members:
            names.update(message_writer(member.type).names if member.has_flag("i") else (member.name,))
        return frozenset(names)

    @cached_property
    def _rows(self) -> tuple[_Row, ...]:
        members = sorted(self._members, key=lambda member: member.number)
        return tuple(_row(member, strict=self._strict) for member in members)


@cache
def message_writer(name: str, *, strict: bool = False) -> MessageWriter:
    """The shared writer of a definition."""
    return MessageWriter(name, message_members(name), strict=strict)


def _row(member: MessageField, *, strict: bool) -> _Row:
    if member.has_flag("i"):
        # The names of an inlined struct are checked by the one around it.
        return None, b"", _field_writer(member, message_writer(member.type).write)
    write = _value_writer(member.type, strict=strict)
    if member.has_flag("m"):
        return member.name, b"", _map_writer(member, write)
    put = _field_writer(member, write)
    if member.has_flag("l"):
        return member.name, b"", _list_writer(put)
    if member.has_flag("p") or member.type in ("bytes", "raw"):
        return member.name, b"", put
    return member.name, _zero_field(member), put


def _field_writer(member: MessageField, write: ValueWriter) -> ValueWriter:
    if member.type in _NUMBER_WIRES:
        tag = varint(member.number << 3 | _NUMBER_WIRES[member.type])
        return lambda value: tag + write(value)
    tag = varint(member.number << 3 | BYTES)

    def put(value: Any) -> bytes:
        content = write(value)
        return b"%b%b%b" % (tag, varint(len(content)), content)

    return put


def _list_writer(put: ValueWriter) -> ValueWriter:
    def write(value: Any) -> bytes:
        if type(value) is not list:
            raise TypeError(f"{type(value).__name__} is not a list")
        return b"".join([put(item) for item in value])

    return write


def _map_writer(member: MessageField, write: ValueWriter) -> ValueWriter:
    tag = varint(member.number << 3 | BYTES)
    put_key = _field_writer(MessageField(1, "key", "string"), _write_text)
    put_value = _field_writer(MessageField(2, "value", member.type), write)

    def write_entries(value: Any) -> bytes:
        parts: list[bytes] = []
        # As Go sorts them.
        for key in sorted(value):
            entry = put_key(key) + put_value(value[key])
            parts.append(b"%b%b%b" % (tag, varint(len(entry)), entry))
        return b"".join(parts)

    return write_entries


def _value_writer(kind: str, *, strict: bool) -> ValueWriter:
    if kind in _SCALAR_WRITERS:
        return _SCALAR_WRITERS[kind]
    if kind in SPECIAL_WRITERS:
        return SPECIAL_WRITERS[kind]
    if kind in _SCHEMA_UNIONS:
        return _SCHEMA_UNIONS[kind]
    return message_writer(kind, strict=strict).write


def _zero_field(member: MessageField) -> bytes:
    if member.type in _ZERO_NUMBERS:
        return varint(member.number << 3 | _NUMBER_WIRES[member.type]) + _ZERO_NUMBERS[member.type]
    if member.type == "string":
        return block(member.number, b"")
    if member.type in SPECIAL_WRITERS:
        return block(member.number, SPECIAL_WRITERS[member.type](None))
    return block(member.number, message_writer(member.type).write({}))


# Scalars

_NUMBER_WIRES = {"bool": VARINT, "int32": VARINT, "int64": VARINT, "float64": FIXED64}
_ZERO_NUMBERS = {"bool": b"\0", "int32": b"\0", "int64": b"\0", "float64": bytes(8)}


def _write_bool(value: Any) -> bytes:
    if value is True:
        return b"\1"
    if value is False:
        return b"\0"
    raise TypeError(f"{type(value).__name__} is not a boolean")


def _write_int(value: Any) -> bytes:
    if type(value) is not int:
        raise TypeError(f"{type(value).__name__} is not an integer")
    return varint(value)


def _write_text(value: Any) -> bytes:
    encoded: bytes = value.encode()
    return encoded


_SCALAR_WRITERS: dict[str, ValueWriter] = {
    "bool": _write_bool,
    "int32": _write_int,
    "int64": _write_int,
    "float64": lambda value: struct.pack("<d", value),
    "string": _write_text,
    "bytes": lambda value: base64.b64decode(value, validate=True),
    "raw": bytes,
}


# Schemas of custom resources: a schema, or something else in its place

_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


def _write_schema(value: Any) -> bytes:
    return message_writer(_APIEXTENSIONS + "JSONSchemaProps").write(value)


def _write_schema_or_bool(value: Any) -> bytes:
    return b"\x08" + _write_bool(value) if isinstance(value, bool) else b"\x08\1" + block(2, _write_schema(value))


def _write_schema_or_list(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join([block(2, _write_schema(item)) for item in value])
    return block(1, _write_schema(value))


def _write_schema_or_names(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join([block(2, _write_text(item)) for item in value])
    return block(1, _write_schema(value))


_SCHEMA_UNIONS: dict[str, ValueWriter] = {
    _APIEXTENSIONS + "JSONSchemaPropsOrBool": _write_schema_or_bool,
    _APIEXTENSIONS + "JSONSchemaPropsOrArray": _write_schema_or_list,
    _APIEXTENSIONS + "JSONSchemaPropsOrStringArray": _write_schema_or_names,
}
