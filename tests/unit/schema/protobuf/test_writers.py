"""JSON to protobuf, compared with what Go encoded."""

import base64
import lzma
from pathlib import Path

import msgspec
import pytest

from gangline.api.meta import JSON
from gangline.schema.protobuf.objects import decode, encode
from gangline.schema.protobuf.wire import ProtobufError, read_varint, varint

VECTORS = msgspec.json.decode(lzma.decompress((Path(__file__).parents[3] / "data" / "protobuf.json.xz").read_bytes()))
# What JSON cannot say: that a pointer refers to a zero time, and that a field is both a schema and a list of them.
EXACT = [
    vector
    for vector in VECTORS
    if not vector["name"].startswith("hollow")
    and vector["name"] != "full apiextensions.k8s.io/v1 CustomResourceDefinition"
]


@pytest.mark.parametrize("vector", EXACT, ids=lambda vector: vector["name"])
def test_object_is_what_go_writes(vector: JSON) -> None:
    raw = base64.b64decode(vector["protobuf"])
    body = decode(raw)
    assert encode(body["apiVersion"], body["kind"], body, strict=True) == raw


def test_field_of_another_version_is_left_out_or_refused() -> None:
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}, "later": 1}
    assert "later" not in decode(encode("v1", "ConfigMap", body))
    with pytest.raises(ProtobufError, match="ConfigMap has no field later"):
        encode("v1", "ConfigMap", body, strict=True)


def test_kind_that_is_not_built_in() -> None:
    with pytest.raises(ProtobufError, match="no protobuf form"):
        encode("kubeflow.org/v1", "TFJob", {})


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31 - 1, 2**63 - 1, -1, -(2**31), -(2**63)])
def test_varint(number: int) -> None:
    raw = varint(number)
    assert read_varint(raw, 0, len(raw)) == (number & 2**64 - 1, len(raw))
