"""Kubernetes' protobuf messages as JSON: one `Message` per Go type, with a table of what reads each of its fields.

The JSON is what Go would write of the struct it reads the message into. So a field that is empty is left out only if
its tag says so, and a struct that is no pointer is there even if the message does not have it. Tables are made when a
message of that type is first read, from what hack/gotypes found in the tags of Go's types.
"""

import base64
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import Any, TypeAlias

from gangline.api.meta import JSON
from gangline.schema.protobuf.special_messages import SPECIAL
from gangline.schema.protobuf.wire import (
    BYTES,
    FIXED64,
    GROUP_END,
    VARINT,
    ProtobufError,
    fixed,
    signed,
    skip,
    truncated,
    varint,
)
from gangline.schema.typed import published
from gangline.schema.typed.published import Member

DEEPEST = 100
"""How deep messages may be nested: as deep as protobuf's own libraries let them."""

ReadBlock: TypeAlias = Callable[[bytes, int, int, JSON, int], None]
"""Takes data, begin, end, the object to put the value into, and how deep it is."""
ReadNumber: TypeAlias = Callable[[int, JSON], None]
Zero: TypeAlias = Callable[[], Any]


class Message:
    """Reads one type of message. Shared; has no state but its tables."""

    def __init__(self, name: str, members: tuple[Member, ...]) -> None:
        self._name, self._members = name, members
        self._convert = SPECIAL.get(name)

    def value(self, data: bytes, at: int, end: int, depth: int = 0) -> Any:
        """The message between `at` and `end`, as JSON. Raises `ProtobufError`, or UnicodeDecodeError."""
        into: JSON = {}
        self.read(data, at, end, into, depth)
        return into if self._convert is None else self._convert(into)

    def zero(self) -> Any:
        """The message that was not sent."""
        return self.value(b"", 0, 0)

    def read(self, data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        """Put the message's fields into an object, over those of an earlier part of it."""
        if depth > DEEPEST:
            raise ProtobufError(f"messages are nested deeper than {DEEPEST}")
        blocks, numbers, always = self._tables
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = varint(data, at - 1, end)
            if (reader := blocks.get(tag)) is not None:
                # Nearly everything is shorter than 128 bytes.
                length = data[at] if at < end else 128
                if length < 128:
                    at += 1
                else:
                    length, at = varint(data, at, end)
                stop = at + length
                if stop > end:
                    raise truncated(end)
                reader(data, at, stop, into, depth)
                at = stop
            elif (put := numbers.get(tag)) is not None:
                if tag & 7 == VARINT:
                    value, at = varint(data, at, end)
                else:
                    stop = fixed(at, end, 8)
                    value, at = int.from_bytes(data[at:stop], "little"), stop
                put(value, into)
            else:
                at = self._unknown(data, at, end, tag)
        for name, zero in always:
            if name not in into:
                into[name] = zero()

    def _unknown(self, data: bytes, at: int, end: int, tag: int) -> int:
        number, wire = tag >> 3, tag & 7
        what = self._name.rpartition(".")[2]
        for member in self._members:
            if member.number == number:
                raise ProtobufError(f"{what}.{member.name}, field {number}, cannot have wire type {wire}")
        if wire == GROUP_END or not 0 < number < 1 << 29:
            raise ProtobufError(f"{tag} is not a tag that a {what} can have")
        return skip(data, at, end, wire)

    # Tables

    @property
    def always(self) -> tuple[tuple[str, Zero], ...]:
        """What Go writes even if it was not sent."""
        return self._tables[2]

    @cached_property
    def _tables(
        self,
    ) -> tuple[Mapping[int, ReadBlock], Mapping[int, ReadNumber], tuple[tuple[str, Zero], ...]]:
        blocks: dict[int, ReadBlock] = {}
        numbers: dict[int, ReadNumber] = {}
        always: list[tuple[str, Zero]] = []
        for member in self._members:
            key = member.number << 3
            if member.type in _NUMBERS and not member.has("m"):
                wire, convert = _NUMBERS[member.type]
                numbers[key | wire] = (_append if member.has("l") else _put)(member, convert)
                if member.has("l"):
                    blocks[key | BYTES] = partial(_packed, numbers[key | wire], wire)
            else:
                blocks[key | BYTES] = _block(member)
            if self._convert is None:
                always += _unsent(member)
        return blocks, numbers, tuple(always)


@cache
def message(name: str) -> Message:
    """The message of a definition."""
    return Message(name, published.messages().messages[name])


# Numbers


def _double(value: int) -> float | int:
    (number,) = struct.unpack("<d", value.to_bytes(8, "little"))
    if not math.isfinite(number):
        raise ProtobufError(f"{number} is not a number that JSON has")
    # Go writes 1, not 1.0.
    return int(number) if number.is_integer() and abs(number) < 1e21 else float(number)


_NUMBERS: dict[str, tuple[int, Callable[[int], Any]]] = {
    "bool": (VARINT, bool),
    "int32": (VARINT, partial(signed, bits=32)),
    "int64": (VARINT, partial(signed, bits=64)),
    "float64": (FIXED64, _double),
}


def _put(member: Member, convert: Callable[[int], Any]) -> ReadNumber:
    name, optional = member.name, member.has("o") and not member.has("p")

    def put(value: int, into: JSON) -> None:
        number = convert(value)
        if number or not optional:
            into[name] = number
        else:
            into.pop(name, None)

    return put


def _append(member: Member, convert: Callable[[int], Any]) -> ReadNumber:
    name = member.name

    def append(value: int, into: JSON) -> None:
        found = into[name] = into.get(name) or []
        found.append(convert(value))

    return append


def _packed(append: ReadNumber, wire: int, data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
    """Many numbers in one block."""
    while at < end:
        if wire == VARINT:
            value, at = varint(data, at, end)
        else:
            stop = fixed(at, end, 8)
            value, at = int.from_bytes(data[at:stop], "little"), stop
        append(value, into)


# Blocks

_Value: TypeAlias = Callable[[bytes, int, int, int], Any]


def _text(data: bytes, at: int, end: int, depth: int) -> str:
    return data[at:end].decode()


def _base64(data: bytes, at: int, end: int, depth: int) -> str:
    return base64.b64encode(data[at:end]).decode()


def _bytes(data: bytes, at: int, end: int, depth: int) -> bytes:
    return data[at:end]


_LEAVES: dict[str, _Value] = {"string": _text, "bytes": _base64, "raw": _bytes}


def _value(kind: str) -> _Value:
    if kind in _LEAVES:
        return _LEAVES[kind]
    inner = message(kind)
    return lambda data, at, end, depth: inner.value(data, at, end, depth + 1)


def _block(member: Member) -> ReadBlock:
    if member.has("m"):
        return _map(member)
    if member.has("l"):
        return _list(member)
    if member.type in _LEAVES:
        return _leaf(member)
    if member.type in SPECIAL:
        return _scalar(member)
    return _inline(member) if member.has("i") else _object(member)


def _leaf(member: Member) -> ReadBlock:
    name, read = member.name, _LEAVES[member.type]
    optional = member.has("o") and not member.has("p")

    def leaf(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        if at < end or not optional:
            into[name] = read(data, at, end, depth)
        else:
            into.pop(name, None)

    return leaf


def _scalar(member: Member) -> ReadBlock:
    name, read, optional = member.name, _value(member.type), member.has("z")

    def scalar(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        into[name] = read(data, at, end, depth)
        if optional and into[name] is None:
            del into[name]

    return scalar


def _object(member: Member) -> ReadBlock:
    name, inner = member.name, message(member.type)

    def nested(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        # A message that comes in parts is merged.
        found = into[name] = into.get(name) or {}
        inner.read(data, at, end, found, depth + 1)

    return nested


def _inline(member: Member) -> ReadBlock:
    inner = message(member.type)
    return lambda data, at, end, into, depth: inner.read(data, at, end, into, depth + 1)


def _list(member: Member) -> ReadBlock:
    name, read = member.name, _value(member.type)

    def item(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        found = into[name] = into.get(name) or []
        found.append(read(data, at, end, depth))

    return item


def _map(member: Member) -> ReadBlock:
    """Every entry is a message of its own."""
    name = member.name
    # Bytes that are missing are empty here, not null.
    key, value = Member(1, "key", "string"), Member(2, "value", member.type, "o" * (member.type == "bytes"))
    entry = Message(f"{name}.entry", (key, value))

    def put(data: bytes, at: int, end: int, into: JSON, depth: int) -> None:
        pair = entry.value(data, at, end, depth + 1)
        found = into[name] = into.get(name) or {}
        found[pair["key"]] = pair.get("value", "")

    return put


# What was not sent

_ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "bytes": None,
    "raw": None,
}


def _unsent(member: Member) -> tuple[tuple[str, Zero], ...]:
    if member.has("i"):
        return message(member.type).always
    alone = not any(member.has(flag) for flag in "lmp")
    if alone and member.type not in _ZEROS:
        # Go never finds a struct empty.
        return () if member.has("z") else ((member.name, message(member.type).zero),)
    constant = _ZEROS[member.type] if alone else None
    return () if member.has("o") else ((member.name, lambda: constant),)
