"""Built-in kinds in the protobuf of Kubernetes: objects that are created, and watches.

For kube-apiserver protobuf is much cheaper to read and to write than JSON; ADR 0047 has the measurements. A server that
does not know it gets, and sends, JSON.
"""

import struct
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from gangline.api.codec.codec import DecodeError, Document, decode_document
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.kube.errors import ApiError, BadRequest, Status, StreamBroken, error_from_status
from gangline.kube.pages import UnreadableObject
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange, WatchEvent
from gangline.schema.protobuf.definitions import message_name
from gangline.schema.protobuf.messages import ALL_FIELDS, FieldSelection, MessageReader, selective_reader
from gangline.schema.protobuf.objects import MEDIA_TYPE, ProtobufError, decode, encode, read_envelope
from gangline.schema.typed.published import MessageField

T = TypeVar("T")

WATCH_ACCEPT: Final = f"{MEDIA_TYPE};stream=watch,application/json;stream=watch,application/json"
"""Protobuf, or JSON from a server that does not know it."""
_WATCH_EVENT = MessageReader("WatchEvent", (MessageField(1, "type", "string"), MessageField(2, "object", "raw")))
_RAW_EXTENSION = MessageReader("RawExtension", (MessageField(1, "raw", "raw"),))
_KEY_FIELDS: FieldSelection = {
    "metadata": {"name": ALL_FIELDS, "namespace": ALL_FIELDS, "resourceVersion": ALL_FIELDS},
}
_UNSUPPORTED_MEDIA_TYPE = 415


def has_protobuf(resource: Resource[Any]) -> bool:
    """Whether objects of the resource have a protobuf form: built-in kinds have, custom resources have not."""
    return message_name(resource.api_version, resource.kind) is not None


class ProtobufBodies:
    """The bodies of objects to create in protobuf, for as long as the server takes it."""

    def __init__(self) -> None:
        self._refused = False

    def encode(self, resource: Resource[Any], body: JSON) -> bytes | None:
        """The object; None if it must be sent as JSON.

        That is so for a kind, a field or a value that the encoding does not know. A newer server may know the field,
        and of a wrong value it says what is wrong.
        """
        if self._refused or not has_protobuf(resource):
            return None
        try:
            return encode(resource.api_version, resource.kind, body, strict=True)
        except ProtobufError:
            return None

    def is_refused(self, error: ApiError) -> bool:
        """Whether the same object must be sent as JSON, because the server could not read it.

        After 415 nothing is sent as protobuf any more.
        """
        self._refused = self._refused or error.code == _UNSUPPORTED_MEDIA_TYPE
        return error.code == _UNSUPPORTED_MEDIA_TYPE or isinstance(error, BadRequest)


def is_protobuf(headers: Mapping[str, str]) -> bool:
    """Whether the body of a response is protobuf."""
    return headers.get("content-type", "").startswith(MEDIA_TYPE)


async def watch_events(chunks: AsyncIterator[bytes], resource: Resource[T]) -> AsyncGenerator[WatchEvent[T], None]:
    """The events of a watch body, as `gangline.kube.watch.watch_events` returns them. The model must be a struct."""
    read = _EventReader(resource).read
    async for frame in _frames(chunks):
        try:
            event = read(frame)
        except (ProtobufError, UnicodeDecodeError, ValueError) as error:
            # The message does not contain the frame: it may be a Secret.
            raise StreamBroken(f"a watch event of {len(frame)} bytes cannot be read: {error}") from error
        yield event


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The frames of a stream: each has its length in four bytes before it."""
    parts, size, wanted = list[bytes](), 0, 4
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size < wanted:
            # Joined once per frame: an object of megabytes arrives in hundreds of chunks.
            continue
        data, at = b"".join(parts), 0
        while True:
            (length,) = struct.unpack_from(">I", data, at) if len(data) - at >= 4 else (0,)
            wanted = 4 + length
            if len(data) - at < wanted:
                break
            yield data[at + 4 : at + wanted]
            at += wanted
        parts, size = [data[at:]], len(data) - at
    if size:
        raise StreamBroken(f"the watch ended within an event, after {size} bytes of it")


class _EventReader(Generic[T]):
    def __init__(self, resource: Resource[T]) -> None:
        self._model, self._api_version, self._kind = resource.model, resource.api_version, resource.kind
        name = message_name(resource.api_version, resource.kind)
        assert name is not None
        self._object = selective_reader(name, selection_of(resource.model))
        self._key = selective_reader(name, _KEY_FIELDS)

    def read(self, frame: bytes) -> WatchEvent[T]:
        event = _WATCH_EVENT.read_value(frame, 0, len(frame))
        extension: bytes = event["object"] or b""
        content: bytes = _RAW_EXTENSION.read_value(extension, 0, len(extension))["raw"] or b""
        if event["type"] == "ERROR":
            raise error_from_status(msgspec.convert(decode(content), Status))
        message: bytes = read_envelope(content)["raw"] or b""
        if event["type"] == "BOOKMARK":
            return Bookmark(self._read_key(message)["resourceVersion"])
        return self._change(ChangeType(event["type"]), message)

    def _change(self, change: ChangeType, message: bytes) -> ObjectChange[T] | UnreadableObject:
        body: JSON = self._object.read_value(message, 0, len(message))
        body["apiVersion"], body["kind"] = self._api_version, self._kind
        try:
            return ObjectChange(change, decode_document(Document(body, {}), self._model))
        except DecodeError as error:
            metadata = self._read_key(message)
            key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
            return UnreadableObject(
                key, metadata.get("resourceVersion", ""), str(error), deleted=change is ChangeType.DELETED
            )

    def _read_key(self, message: bytes) -> JSON:
        metadata: JSON = self._key.read_value(message, 0, len(message))["metadata"]
        return metadata


def selection_of(model: type[Any]) -> FieldSelection:
    """The fields that a struct has."""
    # Imported here: only for watches, once for each.
    from msgspec import inspect

    def fields_of(kind: inspect.Type) -> FieldSelection:
        match kind:
            case inspect.StructType():
                return {field.encode_name: fields_of(field.type) for field in kind.fields}
            case inspect.VarTupleType() | inspect.ListType():
                return fields_of(kind.item_type)
            case inspect.UnionType():
                structs = [fields_of(one) for one in kind.types if isinstance(one, inspect.StructType)]
                return structs[0] if structs else ALL_FIELDS
        return ALL_FIELDS

    return fields_of(inspect.type_info(model))
