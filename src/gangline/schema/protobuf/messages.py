"""Kubernetes' protobuf messages as JSON: one `MessageReader` per Go type, with tables of readers for its fields.

The JSON is what Go writes of the struct that it decodes the message into. So an empty field is omitted only if its tag
says so, and a struct that is no pointer is present even if the message does not have it. Tables are built when a
message of the type is first read, from the tags of Go's types, which hack/gotypes extracts.

A reader with a `FieldSelection` passes over all other fields, whatever their size. It is made for a stream of objects
that are much alike, and remembers what it made of the same bytes before.
"""

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import Any, TypeAlias

from gangline.api.meta import JSON
from gangline.schema.protobuf.definitions import message_members
from gangline.schema.protobuf.special_messages import JSON_CONVERTERS
from gangline.schema.protobuf.wire import (
    BYTES,
    FIXED64,
    GROUP_END,
    VARINT,
    ProtobufError,
    fixed_end,
    read_varint,
    skip_value,
    to_signed,
    truncated_error,
)
from gangline.schema.typed.published import MessageField

MAX_REMEMBERED_MESSAGES, MAX_REMEMBERED_BYTES = 1024, 512
"""What a selective reader remembers for one field: so many messages of at most this size. Beyond that it forgets all."""
MAX_MESSAGE_DEPTH = 100
"""How deep messages may be nested, as in protobuf's own libraries."""

BlockReader: TypeAlias = Callable[[bytes, int, int, JSON, int], None]
"""Takes the data, start, end, the object to put the value into, and the depth."""
NumberReader: TypeAlias = Callable[[int, JSON], None]
ZeroFactory: TypeAlias = Callable[[], Any]
FieldSelection: TypeAlias = Mapping[str, "FieldSelection"]
"""The fields to read, by their name in JSON, and of nested messages the fields of those."""


class _AllFields(Mapping[str, Any]):
    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> "FieldSelection":
        return self

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ALL_FIELDS: FieldSelection = _AllFields()
"""A selection of whatever a message has."""


class MessageReader:
    """Reads one type of message. Shared; it has no state except its tables."""

    def __init__(self, name: str, members: tuple[MessageField, ...], select: FieldSelection | None = None) -> None:
        self._name, self._fields = name, members
        self._json_converter = JSON_CONVERTERS.get(name)
        self._selection = None if self._json_converter is not None else select

    def read_value(self, data: bytes, at: int, end: int, depth: int = 0) -> Any:
        """The message between `at` and `end` as JSON. Raises `ProtobufError` or UnicodeDecodeError."""
        into: JSON = {}
        self.read_into(data, at, end, into, depth)
        return into if self._json_converter is None else self._json_converter(into)

    def zero_value(self) -> Any:
        """The JSON of an absent message."""
        return self.read_value(b"", 0, 0)

    def read_into(self, data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        """Put the message's fields into an object, over those of an earlier part of the message."""
        if depth > MAX_MESSAGE_DEPTH:
            raise ProtobufError(f"messages are nested deeper than {MAX_MESSAGE_DEPTH}")
        blocks, numbers, always = self._reader_tables
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = read_varint(data, at - 1, end)
            if (reader := blocks.get(tag)) is not None:
                # Nearly all blocks are shorter than 128 bytes.
                length = data[at] if at < end else 128
                if length < 128:
                    at += 1
                else:
                    length, at = read_varint(data, at, end)
                stop = at + length
                if stop > end:
                    raise truncated_error(end)
                reader(data, at, stop, into, depth)
                at = stop
            elif (put := numbers.get(tag)) is not None:
                if tag & 7 == VARINT:
                    value = data[at] if at < end else 128
                    if value < 128:
                        at += 1
                    else:
                        value, at = read_varint(data, at, end)
                else:
                    stop = fixed_end(at, end, 8)
                    value, at = int.from_bytes(data[at:stop], "little"), stop
                put(value, into)
            else:
                at = self._skip_unknown(data, at, end, tag)
        for name, zero in always:
            if name not in into:
                into[name] = zero()

    def _skip_unknown(self, data: bytes, at: int, end: int, tag: int) -> int:
        number, wire = tag >> 3, tag & 7
        what = self._name.rpartition(".")[2]
        for member in self._fields:
            if member.number == number:
                raise ProtobufError(f"{what}.{member.name}, field {number}, cannot have wire type {wire}")
        if wire == GROUP_END or not 0 < number < 1 << 29:
            raise ProtobufError(f"{tag} is not a tag that a {what} can have")
        return skip_value(data, at, end, wire)

    # Tables

    @property
    def always_written(self) -> tuple[tuple[str, ZeroFactory], ...]:
        """The fields that Go writes even if the message does not have them."""
        return self._reader_tables[2]

    @cached_property
    def _reader_tables(
        self,
    ) -> tuple[Mapping[int, BlockReader], Mapping[int, NumberReader], tuple[tuple[str, ZeroFactory], ...]]:
        blocks: dict[int, BlockReader] = {}
        numbers: dict[int, NumberReader] = {}
        always: list[tuple[str, ZeroFactory]] = []
        for member in self._fields:
            key = member.number << 3
            if not self._is_selected(member):
                blocks[key | BYTES] = _pass_over_block
                if member.type in _NUMBER_TYPES:
                    numbers[key | _NUMBER_TYPES[member.type][0]] = _pass_over_number
                continue
            if member.type in _NUMBER_TYPES and not member.has_flag("m"):
                wire, convert = _NUMBER_TYPES[member.type]
                numbers[key | wire] = (_repeated_number_reader if member.has_flag("l") else _number_reader)(
                    member, convert
                )
                if member.has_flag("l"):
                    blocks[key | BYTES] = partial(_read_packed, numbers[key | wire], wire)
            else:
                blocks[key | BYTES] = _block_reader(member, self._nested_selection(member))
            if self._json_converter is None:
                always += _always_written(member, self._nested_selection(member))
        return blocks, numbers, tuple(always)

    def _is_selected(self, member: MessageField) -> bool:
        return self._selection is None or member.has_flag("i") or member.name in self._selection

    def _nested_selection(self, member: MessageField) -> FieldSelection | None:
        if self._selection is None or member.has_flag("i"):
            return self._selection
        return self._selection[member.name]


@cache
def message_reader(name: str) -> MessageReader:
    """The shared reader of a definition."""
    return selective_reader(name, None)


def selective_reader(name: str, select: FieldSelection | None) -> MessageReader:
    """A reader of some fields of a definition."""
    return MessageReader(name, message_members(name), select)


def _nested_reader(name: str, select: FieldSelection | None) -> MessageReader:
    return message_reader(name) if select is None else selective_reader(name, select)


def _pass_over_block(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
    """Leave a block out."""


def _pass_over_number(value: int, into: JSON) -> None:
    """Leave a number out."""


# Numbers


def _decode_double(value: int) -> float | int:
    (number,) = struct.unpack("<d", value.to_bytes(8, "little"))
    if not math.isfinite(number):
        raise ProtobufError(f"{number} is not a number that JSON has")
    # Go writes 1, not 1.0.
    return int(number) if number.is_integer() and abs(number) < 1e21 else float(number)


_NUMBER_TYPES: dict[str, tuple[int, Callable[[int], Any]]] = {
    "bool": (VARINT, bool),
    "int32": (VARINT, partial(to_signed, bits=32)),
    "int64": (VARINT, partial(to_signed, bits=64)),
    "float64": (FIXED64, _decode_double),
}


def _number_reader(member: MessageField, convert: Callable[[int], Any]) -> NumberReader:
    name, optional = member.name, member.has_flag("o") and not member.has_flag("p")

    def put(value: int, into: JSON) -> None:
        number = convert(value)
        if number or not optional:
            into[name] = number
        else:
            into.pop(name, None)

    return put


def _repeated_number_reader(member: MessageField, convert: Callable[[int], Any]) -> NumberReader:
    name = member.name

    def append(value: int, into: JSON) -> None:
        numbers = into[name] = into.get(name) or []
        numbers.append(convert(value))

    return append


def _read_packed(append: NumberReader, wire: int, data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
    """Read several numbers in one block."""
    while at < end:
        if wire == VARINT:
            value, at = read_varint(data, at, end)
        else:
            stop = fixed_end(at, end, 8)
            value, at = int.from_bytes(data[at:stop], "little"), stop
        append(value, into)


# Blocks

_ValueReader: TypeAlias = Callable[[bytes, int, int, int], Any]


def _read_text(data: bytes, at: int, end: int, depth: int) -> str:
    return data[at:end].decode()


def _read_base64(data: bytes, at: int, end: int, depth: int) -> str:
    return base64.b64encode(data[at:end]).decode()


def _read_bytes(data: bytes, at: int, end: int, depth: int) -> bytes:
    return data[at:end]


_LEAF_READERS: dict[str, _ValueReader] = {"string": _read_text, "bytes": _read_base64, "raw": _read_bytes}


def _value_reader(kind: str, select: FieldSelection | None) -> _ValueReader:
    if kind in _LEAF_READERS:
        return _LEAF_READERS[kind]
    inner = _nested_reader(kind, select)
    return _plain_reader(inner) if select is None else _remembering(inner)


def _plain_reader(inner: MessageReader) -> _ValueReader:
    return lambda data, at, end, depth: inner.read_value(data, at, end, depth + 1)


def _remembering(inner: MessageReader) -> _ValueReader:
    """A reader that reads equal messages once. What it returns is shared, and must not be changed."""
    values: dict[bytes, Any] = {}

    def read(data: bytes, at: int, end: int, depth: int) -> Any:
        if end - at > MAX_REMEMBERED_BYTES:
            return inner.read_value(data, at, end, depth + 1)
        content = data[at:end]
        value = values.get(content)
        if value is None:
            if len(values) >= MAX_REMEMBERED_MESSAGES:
                values.clear()
            value = values[content] = inner.read_value(data, at, end, depth + 1)
        return value

    return read


def _block_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    if member.has_flag("m"):
        return _map_reader(member, select)
    if member.has_flag("l"):
        return _list_reader(member, select)
    if member.type in _LEAF_READERS:
        return _leaf_reader(member)
    if member.type in JSON_CONVERTERS:
        return _scalar_reader(member, select)
    return _inline_reader(member, select) if member.has_flag("i") else _object_reader(member, select)


def _leaf_reader(member: MessageField) -> BlockReader:
    name, read = member.name, _LEAF_READERS[member.type]
    optional = member.has_flag("o") and not member.has_flag("p")

    def read_leaf(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        if at < end or not optional:
            into[name] = read(data, at, end, depth)
        else:
            into.pop(name, None)

    return read_leaf


def _scalar_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    name, read, optional = member.name, _value_reader(member.type, select), member.has_flag("z")

    def read_scalar(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        into[name] = read(data, at, end, depth)
        if optional and into[name] is None:
            del into[name]

    return read_scalar


def _object_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    name, inner = member.name, _nested_reader(member.type, select)

    def read_nested(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        # Several parts of a message are merged.
        message = into[name] = into.get(name) or {}
        inner.read_into(data, at, end, message, depth + 1)

    return read_nested


def _inline_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    inner = _nested_reader(member.type, select)
    return lambda data, at, end, into, depth: inner.read_into(data, at, end, into, depth + 1)


def _list_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    name, read = member.name, _value_reader(member.type, select)

    def read_item(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        items = into[name] = into.get(name) or []
        items.append(read(data, at, end, depth))

    return read_item


def _map_reader(member: MessageField, select: FieldSelection | None) -> BlockReader:
    """A reader of map entries, each of which is a message."""
    name = member.name
    # Absent bytes are empty in maps, not null.
    key, value = (
        MessageField(1, "key", "string"),
        MessageField(2, "value", member.type, "o" * (member.type == "bytes")),
    )
    entry = MessageReader(f"{name}.entry", (key, value))
    read = _plain_reader(entry) if select is None else _remembering(entry)

    def put(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        pair = read(data, at, end, depth)
        entries = into[name] = into.get(name) or {}
        entries[pair["key"]] = pair.get("value", "")

    return put


# Absent fields

_ZERO_VALUES: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "bytes": None,
    "raw": None,
}


def _always_written(member: MessageField, select: FieldSelection | None) -> tuple[tuple[str, ZeroFactory], ...]:
    if member.has_flag("i"):
        return _nested_reader(member.type, select).always_written
    singular = not any(member.has_flag(flag) for flag in "lmp")
    if singular and member.type not in _ZERO_VALUES:
        # For Go a struct is never empty.
        return () if member.has_flag("z") else ((member.name, _nested_reader(member.type, select).zero_value),)
    constant = _ZERO_VALUES[member.type] if singular else None
    return () if member.has_flag("o") else ((member.name, lambda: constant),)
