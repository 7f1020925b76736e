"""Objects that clients send as `application/vnd.kubernetes.protobuf`, decoded to JSON.

kubectl, client-go and controller-runtime send built-in kinds this way. Decoding is enough, because they all accept JSON
in responses. Text must be UTF-8, which Kubernetes itself does not require.
"""

from typing import Final

from gangline.api.meta import JSON
from gangline.schema.protobuf.messages import message_reader
from gangline.schema.protobuf.wire import ProtobufError as ProtobufError
from gangline.schema.typed import published

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_ENVELOPE = "io.k8s.apimachinery.pkg.runtime.Unknown"


def decode(raw: bytes) -> JSON:
    """The object as Go would write it in JSON: the same as if the client had sent JSON.

    Raises `ProtobufError` for bytes that are no such message, and for kinds that are not built in.
    """
    if not raw.startswith(MAGIC):
        raise ProtobufError("the body is not protobuf of Kubernetes: it does not begin with k8s and a zero byte")
    try:
        envelope: JSON = message_reader(_ENVELOPE).read_value(raw, len(MAGIC), len(raw))
        return _decode_object(envelope)
    except UnicodeDecodeError as error:
        raise ProtobufError(f"text in a protobuf message is not UTF-8: {error}") from error


def _decode_object(envelope: JSON) -> JSON:
    version, kind = envelope.get("apiVersion", ""), envelope.get("kind", "")
    if not version or not kind:
        raise ProtobufError("the protobuf message does not say its apiVersion and kind")
    if envelope["contentEncoding"]:
        raise ProtobufError(f"the content encoding {envelope['contentEncoding']!r} of a message is not supported")
    kinds = published.message_catalog().kinds
    name = kinds.get(version, {}).get(kind) or kinds[""].get(kind)
    if name is None:
        raise ProtobufError(f"{kind} of {version} cannot be sent as protobuf: send JSON")
    content = envelope["raw"] or b""
    body: JSON = message_reader(name).read_value(content, 0, len(content))
    return {"kind": kind, "apiVersion": version, **body}
