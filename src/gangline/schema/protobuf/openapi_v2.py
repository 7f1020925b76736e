"""The protobuf form of OpenAPI v2 documents, which kubectl requires. Definitions only: kubectl does not read paths."""

import struct
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.protobuf.wire import FIXED64, VARINT, block, varint

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
LEGACY_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The same by an older name, which is no valid media type and which clients still send."""


def encode(document: JSON) -> bytes:
    """A document as bytes of `openapi.v2.Document`, with its `swagger`, `info` and `definitions`."""
    info = document.get("info", {})
    info_message = _encode_text(1, info.get("title", "")) + _encode_text(2, info.get("version", ""))
    definitions = _encode_named_schemas(document.get("definitions", {}))
    return _encode_text(1, document["swagger"]) + block(2, info_message) + block(8, b"") + block(9, definitions)


def _encode_text(number: int, value: str) -> bytes:
    return block(number, value.encode())


def _encode_double(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def _encode_integer(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(int(value))


def _encode_texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(_encode_text(number, value) for value in values)


def _encode_any(number: int, value: Any) -> bytes:
    # As YAML text, which includes JSON.
    return block(number, block(2, msgspec.json.encode(value)))


def _encode_anys(number: int, values: Iterable[Any]) -> bytes:
    return b"".join(_encode_any(number, value) for value in values)


def _encode_schemas(number: int, values: Iterable[JSON]) -> bytes:
    return b"".join(block(number, _encode_schema(value)) for value in values)


def _encode_named_schemas(schemas: Mapping[str, JSON]) -> bytes:
    return b"".join(
        block(1, _encode_text(1, name) + block(2, _encode_schema(schema))) for name, schema in schemas.items()
    )


def _encode_properties(number: int, value: Mapping[str, JSON]) -> bytes:
    return block(number, _encode_named_schemas(value))


def _encode_additional(number: int, value: JSON | bool) -> bytes:
    return block(number, _encode_integer(2, value) if isinstance(value, bool) else block(1, _encode_schema(value)))


def _encode_type(number: int, value: str | list[str]) -> bytes:
    return block(number, _encode_texts(1, [value] if isinstance(value, str) else value))


def _encode_items(number: int, value: JSON) -> bytes:
    return block(number, block(1, _encode_schema(value)))


_KEYWORD_ENCODERS: Mapping[str, tuple[int, Callable[[int, Any], bytes]]] = MappingProxyType(
    {
        "$ref": (1, _encode_text),
        "format": (2, _encode_text),
        "title": (3, _encode_text),
        "description": (4, _encode_text),
        "default": (5, _encode_any),
        "multipleOf": (6, _encode_double),
        "maximum": (7, _encode_double),
        "exclusiveMaximum": (8, _encode_integer),
        "minimum": (9, _encode_double),
        "exclusiveMinimum": (10, _encode_integer),
        "maxLength": (11, _encode_integer),
        "minLength": (12, _encode_integer),
        "pattern": (13, _encode_text),
        "maxItems": (14, _encode_integer),
        "minItems": (15, _encode_integer),
        "uniqueItems": (16, _encode_integer),
        "maxProperties": (17, _encode_integer),
        "minProperties": (18, _encode_integer),
        "required": (19, _encode_texts),
        "enum": (20, _encode_anys),
        "additionalProperties": (21, _encode_additional),
        "type": (22, _encode_type),
        "items": (23, _encode_items),
        "allOf": (24, _encode_schemas),
        "properties": (25, _encode_properties),
    }
)


def _encode_schema(schema: JSON) -> bytes:
    """A schema without the keywords that version 2 does not have (`oneOf`, `nullable` ...)."""
    parts: list[bytes] = []
    for name, value in schema.items():
        if name.startswith("x-"):
            parts.append(block(31, _encode_text(1, name) + _encode_any(2, value)))
        elif name in _KEYWORD_ENCODERS:
            number, write = _KEYWORD_ENCODERS[name]
            parts.append(write(number, value))
    return b"".join(parts)
