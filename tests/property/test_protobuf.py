import base64
import json
import lzma
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gangline.schema.protobuf.objects import MAGIC, decode
from gangline.schema.protobuf.wire import ProtobufError

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
