import base64
import json
import lzma
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.schema.protobuf.definitions import message_members
from gangline.schema.protobuf.objects import MAGIC, decode, encode
from gangline.schema.protobuf.special_messages import JSON_CONVERTERS
from gangline.schema.protobuf.wire import ProtobufError
from gangline.schema.typed import published
from gangline.schema.typed.published import MessageField

VECTORS = json.loads(lzma.decompress((Path(__file__).parents[1] / "data" / "protobuf.json.xz").read_bytes()))
MESSAGES = [base64.b64decode(vector["protobuf"]) for vector in VECTORS]
messages = st.sampled_from(MESSAGES)


@given(messages, st.data())
def test_part_of_a_message_is_an_object_or_an_error(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw) - 1))
    with suppress(ProtobufError):
        assert isinstance(decode(raw[:cut]), dict)


@given(messages, st.data())
def test_corrupt_message_is_an_object_or_an_error(raw: bytes, data: st.DataObject) -> None:
    places = st.integers(len(MAGIC), len(raw) - 1)
    changes = data.draw(st.dictionaries(places, st.integers(0, 255), min_size=1, max_size=8))
    corrupt = bytearray(raw)
    for place, byte in changes.items():
        corrupt[place] = byte
    with suppress(ProtobufError):
        json.dumps(decode(bytes(corrupt)), allow_nan=False)


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Secret", "Node"]))
def test_any_bytes_are_an_object_or_an_error(content: bytes, kind: str) -> None:
    types = b"\x0a\x02v1\x12" + bytes([len(kind)]) + kind.encode()
    raw = MAGIC + b"\x0a" + bytes([len(types)]) + types + b"\x12" + _length(content) + content
    with suppress(ProtobufError):
        json.dumps(decode(raw), allow_nan=False)


def _length(content: bytes) -> bytes:
    size = len(content)
    return bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])


# Every kind, with any values in any fields

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WORD = st.text("abc", min_size=1, max_size=6)
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCHEMAS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - as hypothesis wants them
ANY_JSON = st.dictionaries(WORD, st.integers(-9, 9) | TEXT | st.none(), min_size=1, max_size=2)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.integers(-5, 5) | st.sampled_from([0.5, -1.25]),
    "string": TEXT,
    "bytes": st.binary(min_size=1, max_size=4).map(lambda raw: base64.b64encode(raw).decode()),
    "raw": st.binary(min_size=1, max_size=4),
    _META + "Time": TIMES.map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ")),
    _META + "MicroTime": TIMES.map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
    _META + "FieldsV1": ANY_JSON,
    _META + "Verbs": st.lists(TEXT, min_size=1, max_size=2),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": st.sampled_from(["0", "1", "100m", "1536Mi", "2Gi", "-3"]),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": st.integers(-(2**31), 2**31 - 1) | TEXT,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": ANY_JSON,
    _SCHEMAS + "JSON": ANY_JSON,
}
KINDS = [
    (version, kind, name)
    for version, kinds in published.message_catalog().kinds.items()
    for kind, name in kinds.items()
    if version
]


@cache
def message_bodies(name: str) -> st.SearchStrategy[Any]:
    """JSON of a message, each field with a value or without."""
    if name in SCALARS:
        return SCALARS[name]
    if name.endswith("ExtraValue"):
        return st.lists(TEXT, min_size=1, max_size=2)
    if name == _SCHEMAS + "JSONSchemaPropsOrBool":
        return st.booleans() | st.deferred(lambda: message_bodies(_SCHEMAS + "JSONSchemaProps"))
    if name == _SCHEMAS + "JSONSchemaPropsOrArray":
        return st.deferred(lambda: message_bodies(_SCHEMAS + "JSONSchemaProps"))
    if name == _SCHEMAS + "JSONSchemaPropsOrStringArray":
        return st.lists(TEXT, min_size=1, max_size=2)
    assert name not in JSON_CONVERTERS, name
    return (
        st.sets(st.sampled_from(message_members(name)), max_size=3).flatmap(_object_of)
        if message_members(name)
        else st.just({})
    )


def _object_of(members: set[MessageField]) -> st.SearchStrategy[Any]:
    parts = []
    for member in members:
        value = st.deferred(lambda member=member: message_bodies(member.type))  # type: ignore[misc]
        if member.has_flag("i"):
            parts.append(value)
        elif member.has_flag("m"):
            parts.append(st.fixed_dictionaries({member.name: st.dictionaries(TEXT, value, min_size=1, max_size=2)}))
        elif member.has_flag("l"):
            parts.append(st.fixed_dictionaries({member.name: st.lists(value, min_size=1, max_size=2)}))
        else:
            parts.append(st.fixed_dictionaries({member.name: value}))
    return st.tuples(*parts).map(lambda dicts: {key: value for part in dicts for key, value in part.items()})


def without_zeros(value: Any) -> Any:
    """JSON without what is the same to Go whether it is written or not."""
    if isinstance(value, dict):
        kept = {key: without_zeros(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", 0, False, "0", [], {})}
    return [without_zeros(item) for item in value] if isinstance(value, list) else value


@given(st.sampled_from(KINDS), st.data())
def test_what_is_encoded_is_decoded_to_the_same(kind: tuple[str, str, str], data: st.DataObject) -> None:
    version, name, message = kind
    body = data.draw(message_bodies(message))
    raw = encode(version, name, body, strict=True)
    decoded = decode(raw)
    assert without_zeros(decoded) == without_zeros({"apiVersion": version, "kind": name, **body})
    assert encode(version, name, decoded, strict=True) == raw
