"""The protobuf form of OpenAPI v2, read back with a reader that knows only the wire format."""

import struct
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.http.openapi import OpenApiDocuments
from gangline.schema.protobuf import openapi_v2

Message = dict[int, list[Any]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def message(data: bytes) -> Message:
    fields: Message = {}
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value: Any
            value, at = varint(data, at)
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        else:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        fields.setdefault(number, []).append(value)
    return fields


def schema(written: JSON) -> Message:
    document = message(openapi_v2.encode({"swagger": "2.0", "definitions": {"Box": written}}))
    (named,) = message(document[9][0])[1]
    assert message(named)[1] == [b"Box"]
    return message(message(named)[2][0])


def test_a_document_says_what_it_is() -> None:
    result = message(openapi_v2.encode({"swagger": "2.0", "info": {"title": "T", "version": "v1"}}))
    assert result[1] == [b"2.0"]
    assert message(result[2][0]) == {1: [b"T"], 2: [b"v1"]}


def test_simple_fields_keep_their_values() -> None:
    written: JSON = {
        "$ref": "#/definitions/Other",
        "description": "Größe",
        "minimum": 0.5,
        "maxLength": 300,
        "minItems": -1,
        "uniqueItems": True,
        "required": ["a", "b"],
        "type": "string",
    }
    result = schema(written)
    assert result[1] == [b"#/definitions/Other"]
    assert result[4] == ["Größe".encode()]
    assert result[9] == [0.5]
    assert result[11] == [300]
    assert result[15] == [2**64 - 1]
    assert result[16] == [1]
    assert result[19] == [b"a", b"b"]
    assert message(result[22][0]) == {1: [b"string"]}


def test_schemas_nest() -> None:
    result = schema({"properties": {"a": {"items": {"format": "int32"}}}, "additionalProperties": {"title": "more"}})
    (named,) = message(result[25][0])[1]
    inner = message(message(named)[2][0])
    assert message(message(inner[23][0])[1][0]) == {2: [b"int32"]}
    assert message(message(result[21][0])[1][0]) == {3: [b"more"]}
    assert message(schema({"additionalProperties": False})[21][0]) == {2: [0]}


def test_extensions_are_text_and_what_version_2_lacks_is_left_out() -> None:
    result = schema({"x-kubernetes-group-version-kind": [{"kind": "Box"}], "oneOf": [{}], "nullable": True})
    assert list(result) == [31]
    extension = message(result[31][0])
    assert extension[1] == [b"x-kubernetes-group-version-kind"]
    assert message(extension[2][0]) == {2: [b'[{"kind":"Box"}]']}


def test_every_kind_of_the_server_is_in_it() -> None:
    definitions = message(message(OpenApiDocuments().swagger_protobuf)[9][0])[1]
    names = {message(entry)[1][0].decode() for entry in definitions}
    assert {"io.k8s.api.core.v1.Pod", "io.k8s.api.apps.v1.Deployment"} <= names
