"""A watch stream as typed events.

One line of the stream is one event. Nearly all are changes, and those are decoded in one pass, straight into the
struct that is handed out. Whatever does not fit that shape (bookmarks, errors, objects that do not decode) is read
a second time, slowly and carefully.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

import msgspec

from gangline.api.codec.codec import DecodeError, decode
from gangline.api.meta import ApiStruct
from gangline.kube.errors import Status, StreamBroken, error_from_status
from gangline.kube.pages import UnreadableObject, resource_version_of, unreadable_object
from gangline.kube.transport.api import LineReader

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""On the bookmark that ends the objects that were there before the watch began, where the watch asked for them."""


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class ObjectChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What happened to one object."""

    type: ChangeType
    object: T

    @property
    def resource_version(self) -> str:
        """Where to resume after it."""
        return resource_version_of(self.object)


class Bookmark(msgspec.Struct, frozen=True):
    """How far the stream has come; nothing happened to any object. A watch resumes from here just as well."""

    resource_version: str
    initial_events_end: bool = False


WatchEvent: TypeAlias = ObjectChange[T] | Bookmark | UnreadableObject
"""One line of a watch. `UnreadableObject`: an object changed or was deleted, and as it is now it does not fit its type."""


class _RawEvent(ApiStruct, frozen=True):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(ApiStruct, frozen=True):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(ApiStruct, frozen=True):
    metadata: _BookmarkMeta


async def watch_events(chunks: AsyncIterator[bytes], model: type[T]) -> AsyncGenerator[WatchEvent[T], None]:
    """Decode a watch body, with `model` a struct or `dict`.

    Raises `Gone` (list again) or another `ApiError` when the server says so, and `StreamBroken` for what is not a
    watch event at all. An object that does not decode breaks nothing: it is given as `UnreadableObject`.
    """
    read = _change_decoder(model).decode
    async for line in LineReader(chunks):
        try:
            event: WatchEvent[T] = read(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = _decode_slowly(line, model)
        yield event


def _change_decoder(model: type[T]) -> msgspec.json.Decoder[ObjectChange[T]]:
    return msgspec.json.Decoder(ObjectChange[model])  # type: ignore[valid-type]


def _decode_slowly(line: bytes, model: type[T]) -> WatchEvent[T]:
    try:
        read = msgspec.json.decode(line, type=_RawEvent)
        if read.type == "BOOKMARK":
            metadata = msgspec.json.decode(read.object, type=_BookmarkObject).metadata
            return Bookmark(metadata.resource_version, (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true")
        if read.type == "ERROR":
            raise error_from_status(msgspec.json.decode(read.object, type=Status))
        return _decoded_change(ChangeType(read.type), read.object, model)
    except (msgspec.DecodeError, DecodeError, ValueError) as error:
        # The line itself is not shown: it may be a Secret.
        raise StreamBroken(f"a watch event of {len(line)} bytes cannot be read: {error}") from error


def _decoded_change(kind: ChangeType, raw: msgspec.Raw, model: type[T]) -> ObjectChange[T] | UnreadableObject:
    try:
        return ObjectChange(kind, decode(bytes(raw), model))
    except DecodeError as error:
        return unreadable_object(raw, error, deleted=kind is ChangeType.DELETED)
