"""The protobuf form of OpenAPI v2 documents, which kubectl insists on. Definitions only: nobody there reads paths."""

import struct
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gangline.api.meta import JSON

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The same; clients still ask for it by this name, which is no valid media type."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def encode(document: JSON) -> bytes:
    """A document as bytes of `openapi.v2.Document`. Of its parts, `swagger`, `info` and `definitions` are written."""
    info = document.get("info", {})
    told = _text(1, info.get("title", "")) + _text(2, info.get("version", ""))
    definitions = _named_schemas(document.get("definitions", {}))
    return _text(1, document["swagger"]) + _part(2, told) + _part(8, b"") + _part(9, definitions)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers as their 64-bit complement
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, value: str) -> bytes:
    return _part(number, value.encode())


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _any(number: int, value: Any) -> bytes:
    # As YAML text, and JSON is that.
    return _part(number, _part(2, msgspec.json.encode(value)))


def _anys(number: int, values: Iterable[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _schemas(number: int, values: Iterable[JSON]) -> bytes:
    return b"".join(_part(number, _schema(value)) for value in values)


def _named_schemas(schemas: Mapping[str, JSON]) -> bytes:
    return b"".join(_part(1, _text(1, name) + _part(2, _schema(found))) for name, found in schemas.items())


def _properties(number: int, value: Mapping[str, JSON]) -> bytes:
    return _part(number, _named_schemas(value))


def _additional(number: int, value: JSON | bool) -> bytes:
    return _part(number, _integer(2, value) if isinstance(value, bool) else _part(1, _schema(value)))


def _type(number: int, value: str | list[str]) -> bytes:
    return _part(number, _texts(1, [value] if isinstance(value, str) else value))


def _items(number: int, value: JSON) -> bytes:
    return _part(number, _part(1, _schema(value)))


_FIELDS: Mapping[str, tuple[int, Callable[[int, Any], bytes]]] = MappingProxyType(
    {
        "$ref": (1, _text),
        "format": (2, _text),
        "title": (3, _text),
        "description": (4, _text),
        "default": (5, _any),
        "multipleOf": (6, _double),
        "maximum": (7, _double),
        "exclusiveMaximum": (8, _integer),
        "minimum": (9, _double),
        "exclusiveMinimum": (10, _integer),
        "maxLength": (11, _integer),
        "minLength": (12, _integer),
        "pattern": (13, _text),
        "maxItems": (14, _integer),
        "minItems": (15, _integer),
        "uniqueItems": (16, _integer),
        "maxProperties": (17, _integer),
        "minProperties": (18, _integer),
        "required": (19, _texts),
        "enum": (20, _anys),
        "additionalProperties": (21, _additional),
        "type": (22, _type),
        "items": (23, _items),
        "allOf": (24, _schemas),
        "properties": (25, _properties),
    }
)


def _schema(schema: JSON) -> bytes:
    """What version 2 has no word for (`oneOf`, `nullable` ...) is left out."""
    parts: list[bytes] = []
    for name, value in schema.items():
        if name.startswith("x-"):
            parts.append(_part(31, _text(1, name) + _any(2, value)))
        elif name in _FIELDS:
            number, write = _FIELDS[name]
            parts.append(write(number, value))
    return b"".join(parts)
