"""What a server sends in protobuf: objects, lists, metadata, discovery, and the frames of watches.

All are made from the JSON of the same answer, and have the bytes that kube-apiserver sends.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from gangline.api.meta import JSON
from gangline.schema.protobuf.definitions import META, message_name
from gangline.schema.protobuf.objects import in_envelope
from gangline.schema.protobuf.wire import ProtobufError, block
from gangline.schema.protobuf.writers import message_writer

MAX_REMEMBERED_OBJECTS, MAX_REMEMBERED_BYTES = 1024, 1 << 15
"""How many messages of stored objects are kept for further watchers and lists, and how long their JSON may be."""


def encode_answer(body: bytes) -> bytes:
    """An answer, given as JSON that has `kind`. Raises `ProtobufError` for a kind that has no protobuf form."""
    return in_envelope(*_read_message(body))


def encode_object(body: bytes) -> bytes:
    """A stored object. Its message is remembered: the bytes of a revision never change."""
    return in_envelope(*_object_message(body))


def encode_list(version: str, kind: str, metadata: JSON, items: Iterable[bytes]) -> bytes:
    """A list of stored objects; `kind` is that of the list."""
    head = block(1, message_writer(META + "ListMeta").write(metadata))
    return in_envelope(version, kind, b"".join([head, *(block(2, _object_message(item)[2]) for item in items)]))


def watch_frame(event: str, content: bytes) -> bytes:
    """One event of a watch, with its length in front. `content` is an encoded object."""
    message = block(1, event.encode()) + block(2, block(1, content))
    return struct.pack(">I", len(message)) + message


def _object_message(body: bytes) -> tuple[str, str, bytes]:
    return _remembered_message(body) if len(body) <= MAX_REMEMBERED_BYTES else _read_message(body)


def _read_message(body: bytes) -> tuple[str, str, bytes]:
    value: JSON = msgspec.json.decode(body)
    version, kind = value.get("apiVersion", ""), value.get("kind", "")
    name = message_name(version, kind)
    if name is None:
        raise ProtobufError(f"{kind} of {version} has no protobuf form")
    return version, kind, message_writer(name).write(value)


_remembered_message = lru_cache(MAX_REMEMBERED_OBJECTS)(_read_message)
