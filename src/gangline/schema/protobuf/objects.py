"""Objects of built-in kinds as `application/vnd.kubernetes.protobuf`, decoded to JSON and encoded from it.

Text must be UTF-8, which Kubernetes itself does not require.
"""

from typing import Final

from gangline.api.meta import JSON
from gangline.schema.protobuf.definitions import message_name
from gangline.schema.protobuf.messages import message_reader
from gangline.schema.protobuf.wire import ProtobufError as ProtobufError
from gangline.schema.protobuf.wire import block
from gangline.schema.protobuf.writers import message_writer

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_ENVELOPE = "io.k8s.apimachinery.pkg.runtime.Unknown"


def decode(raw: bytes) -> JSON:
    """The object as Go would write it in JSON: the same as if the client had sent JSON.

    Raises `ProtobufError` for bytes that are no such message, and for kinds that are not built in.
    """
    try:
        return _decode_object(read_envelope(raw))
    except UnicodeDecodeError as error:
        raise ProtobufError(f"text in a protobuf message is not UTF-8: {error}") from error


def read_envelope(raw: bytes) -> JSON:
    """What is around an object: `apiVersion`, `kind`, and the message in `raw`. Raises `ProtobufError`."""
    if not raw.startswith(MAGIC):
        raise ProtobufError("the body is not protobuf of Kubernetes: it does not begin with k8s and a zero byte")
    envelope: JSON = message_reader(_ENVELOPE).read_value(raw, len(MAGIC), len(raw))
    return envelope


def _decode_object(envelope: JSON) -> JSON:
    version, kind = envelope.get("apiVersion", ""), envelope.get("kind", "")
    if not version or not kind:
        raise ProtobufError("the protobuf message does not say its apiVersion and kind")
    if envelope["contentEncoding"]:
        raise ProtobufError(f"the content encoding {envelope['contentEncoding']!r} of a message is not supported")
    name = message_name(version, kind)
    if name is None:
        raise ProtobufError(f"{kind} of {version} cannot be sent as protobuf: send JSON")
    content = envelope["raw"] or b""
    body: JSON = message_reader(name).read_value(content, 0, len(content))
    return {"kind": kind, "apiVersion": version, **body}


def encode(version: str, kind: str, body: JSON, *, strict: bool = False) -> bytes:
    """The object of a built-in kind as Go would send it.

    Raises `ProtobufError` for kinds that are not built in and for values that do not fit. Fields that the kind does not
    have are left out; if `strict`, they raise `ProtobufError`.
    """
    name = message_name(version, kind)
    if name is None:
        raise ProtobufError(f"{kind} of {version} has no protobuf form")
    try:
        body = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")} if strict else body
        return in_envelope(version, kind, message_writer(name, strict=strict).write(body))
    except (TypeError, AttributeError, ValueError) as error:
        raise ProtobufError(f"{kind} of {version} cannot be encoded: {error}") from error


def in_envelope(version: str, kind: str, message: bytes) -> bytes:
    """The message of an object with its kind, as Kubernetes sends it."""
    type_meta = block(1, version.encode()) + block(2, kind.encode())
    return b"%b%b%b\x1a\0\x22\0" % (MAGIC, block(1, type_meta), block(2, message))
