import base64
import lzma
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON
from gangline.schema.protobuf.messages import MAX_MESSAGE_DEPTH, message_reader
from gangline.schema.protobuf.objects import MAGIC, decode
from gangline.schema.protobuf.wire import ProtobufError
from gangline.schema.typed import published

VECTORS = Path(__file__).parents[3] / "data" / "protobuf.json.xz"


class Vector(msgspec.Struct, frozen=True):
    """An object that Go encoded both ways."""

    name: str
    protobuf: bytes
    json: JSON


ALL = msgspec.json.decode(lzma.decompress(VECTORS.read_bytes()), type=list[Vector])


# Building blocks of messages, so that tests can say what Go's encoder never does.


def varint(value: int) -> bytes:
    head = b""
    while value > 127:
        head += bytes([value & 127 | 128])
        value >>= 7
    return head + bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def sent(kind: str, content: bytes, version: str = "v1", extra: bytes = b"") -> bytes:
    types = block(1, version.encode()) + block(2, kind.encode())
    return MAGIC + block(1, types) + block(2, content) + extra


def config_map(content: bytes) -> JSON:
    return decode(sent("ConfigMap", content))


def read(definition: str, content: bytes) -> Any:
    return message_reader(definition).read_value(content, 0, len(content))


META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCHEMAS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.name)
def test_object_is_read_as_go_reads_it(vector: Vector) -> None:
    assert decode(vector.protobuf) == vector.json


def test_there_are_vectors_of_every_kind() -> None:
    kinds = {(version, kind) for version, kinds in published.message_catalog().kinds.items() for kind in kinds}
    seen = {(vector.json["apiVersion"], vector.json["kind"]) for vector in ALL}
    assert kinds - {("", "DeleteOptions")} == seen - {("v1", "DeleteOptions")}


def test_kind_and_version_come_first() -> None:
    assert list(config_map(b""))[:2] == ["kind", "apiVersion"]


def test_delete_options_are_known_in_any_version() -> None:
    body = decode(sent("DeleteOptions", number(1, 0), "example.com/v1"))
    assert body == {"kind": "DeleteOptions", "apiVersion": "example.com/v1", "gracePeriodSeconds": 0}


# What Go's encoder does not write, but protobuf allows


def test_empty_content_is_an_empty_object() -> None:
    assert config_map(b"") == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}


def test_unknown_fields_are_skipped() -> None:
    group = varint(99 << 3 | 3) + number(1, 5) + varint(7 << 3 | 3) + varint(7 << 3 | 4) + varint(99 << 3 | 4)
    unknown = number(90, 1) + block(91, b"xyz") + varint(92 << 3 | 1) + b"8 bytes!" + varint(93 << 3 | 5) + b"four"
    body = config_map(unknown + block(1, block(1, b"a") + unknown + group) + group)
    assert body["metadata"] == {"name": "a"}


def test_message_in_parts_is_merged() -> None:
    body = config_map(block(1, block(1, b"a") + block(3, b"n")) + block(1, block(1, b"b") + block(14, b"f")))
    assert body["metadata"] == {"name": "b", "namespace": "n", "finalizers": ["f"]}


def test_last_value_counts_even_if_it_is_empty() -> None:
    body = config_map(block(1, block(1, b"a") + block(1, b"") + number(7, 3) + number(7, 0)))
    assert body["metadata"] == {}


def test_list_that_was_null_grows_when_the_message_goes_on() -> None:
    role = block(2, block(1, b"get"))
    body = decode(sent("Role", role, "rbac.authorization.k8s.io/v1"))
    assert body["rules"] == [{"verbs": ["get"]}]
    selector = read("io.k8s.api.core.v1.PodSpec", block(2, b""))
    assert selector["containers"] == [{"name": "", "resources": {}}]


def test_numbers_may_be_packed() -> None:
    context = "io.k8s.api.core.v1.PodSecurityContext"
    packed = block(4, varint(1) + varint(300) + varint(2**64 - 1))
    assert read(context, packed + number(4, 7)) == {"supplementalGroups": [1, 300, -1, 7]}


def test_numbers_are_cut_to_their_size() -> None:
    assert read("io.k8s.api.core.v1.ContainerPort", number(3, 2**32 + 5))["containerPort"] == 5
    assert read("io.k8s.api.core.v1.ContainerPort", number(3, -5))["containerPort"] == -5


def test_key_or_value_of_an_entry_may_be_missing() -> None:
    body = config_map(block(2, block(1, b"a")) + block(2, block(2, b"x")) + block(3, block(1, b"b")))
    assert (body["data"], body["binaryData"]) == ({"a": "", "": "x"}, {"b": ""})


# Values with a form of their own


@pytest.mark.parametrize(
    ("content", "time", "micro"),
    [
        (b"", None, None),
        (number(1, 0), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (number(1, -1) + number(2, 999_999_999), "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999999Z"),
        (number(1, -62135596800), None, None),
        (number(1, 253402300799), "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
    ],
)
def test_times(content: bytes, time: str | None, micro: str | None) -> None:
    assert (read(META + "Time", content), read(META + "MicroTime", content)) == (time, micro)


@pytest.mark.parametrize(("text", "canonical"), [("0.1", "100m"), ("1024Mi", "1Gi"), ("1e3", "1e3")])
def test_quantities_are_canonical(text: str, canonical: str) -> None:
    assert read("io.k8s.apimachinery.pkg.api.resource.Quantity", block(1, text.encode())) == canonical


def test_whole_floats_are_written_as_go_writes_them() -> None:
    one = varint(9 << 3 | 1) + bytes.fromhex("000000000000f03f")
    assert repr(read(SCHEMAS + "JSONSchemaProps", one)["maximum"]) == "1"


# What cannot be read


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "does not begin with k8s"),
        (b'{"kind": "Pod"}', "does not begin with k8s"),
        (MAGIC, "does not say its apiVersion and kind"),
        (sent("Widget", b""), "Widget of v1 cannot be sent as protobuf"),
        (sent("Pod", b"", "example.com/v1"), "Pod of example.com/v1 cannot be sent as protobuf"),
        (sent("Pod", b"", extra=block(3, b"gzip")), "content encoding 'gzip'"),
        (sent("ConfigMap", b"\x0a"), "ends at byte 1, in the middle"),
        (sent("ConfigMap", b"\x0a\x05abc"), "ends at byte 5, in the middle"),
        (sent("ConfigMap", b"\x80" * 11), "longer than 64 bits"),
        (sent("ConfigMap", number(1, 5)), "ConfigMap.metadata, field 1, cannot have wire type 0"),
        (sent("ConfigMap", b"\x00\x00"), "0 is not a tag"),
        (sent("ConfigMap", varint(9 << 3 | 4)), "76 is not a tag"),
        (sent("ConfigMap", varint(9 << 3 | 7)), "wire type 7"),
        (sent("ConfigMap", varint(9 << 3 | 3)), "in the middle"),
        (sent("ConfigMap", block(1, block(1, b"\xff"))), "not UTF-8"),
        (sent("ConfigMap", block(1, block(8, number(1, 2**62)))), "not a time"),
        (sent("ControllerRevision", block(2, block(1, b"{")), "apps/v1"), "holds JSON does not"),
        (sent("Service", block(2, block(1, block(4, number(1, 7))))), "7 is not a type of an IntOrString"),
        (sent("PersistentVolume", block(2, block(1, block(1, b"cpu") + block(2, block(1, b"x"))))), "not a quantity"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, said: str) -> None:
    with pytest.raises(ProtobufError) as caught:
        decode(raw)
    assert said in str(caught.value)


def schema_in_schemas(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = block(28, content)  # not
    return content


def test_nesting_is_limited() -> None:
    assert read(SCHEMAS + "JSONSchemaProps", schema_in_schemas(MAX_MESSAGE_DEPTH))
    with pytest.raises(ProtobufError, match="nested deeper"):
        read(SCHEMAS + "JSONSchemaProps", schema_in_schemas(MAX_MESSAGE_DEPTH + 1))


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ProtobufError, match="not a number that JSON has"):
        read(SCHEMAS + "JSONSchemaProps", varint(9 << 3 | 1) + bytes.fromhex("000000000000f07f"))


def test_bytes_are_base64() -> None:
    body = decode(sent("Secret", block(2, block(1, b"a") + block(2, b"\x00\xff"))))
    assert base64.b64decode(body["data"]["a"]) == b"\x00\xff"
