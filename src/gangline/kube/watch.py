"""A watch stream as typed events. It does not reconnect: `runtime.informer` and `cli.resources.watch` do.

One line of the stream is one event. Nearly all are changes of objects, which are decoded in one pass, directly into the
struct that is returned. Lines that do not fit (bookmarks, errors, objects that do not decode) are decoded a second time,
in steps.
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


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class ObjectChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change of one object, and the object after it."""

    type: ChangeType
    object: T

    @property
    def resource_version(self) -> str:
        """The resourceVersion from which a watch resumes after this change."""
        return resource_version_of(self.object)


class Bookmark(msgspec.Struct, frozen=True):
    """A resourceVersion from which the watch can resume; no object changed."""

    resource_version: str


WatchEvent: TypeAlias = ObjectChange[T] | Bookmark | UnreadableObject
"""One event of a watch. `UnreadableObject`: an object changed or was deleted and does not fit its type."""


class _RawEvent(ApiStruct, frozen=True):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(ApiStruct, frozen=True):
    resource_version: str


class _BookmarkObject(ApiStruct, frozen=True):
    metadata: _BookmarkMeta


async def watch_events(chunks: AsyncIterator[bytes], model: type[T]) -> AsyncGenerator[WatchEvent[T], None]:
    """The events of a watch body. `model` is a struct or `dict`.

    Raises `Gone` (list again) or another `ApiError` for an error event, and `StreamBroken` for a line that is no watch
    event. An object that does not decode is returned as `UnreadableObject`.
    """
    decode_change = _change_decoder(model).decode
    async for line in LineReader(chunks):
        try:
            event: WatchEvent[T] = decode_change(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = _decode_in_steps(line, model)
        yield event


def _change_decoder(model: type[T]) -> msgspec.json.Decoder[ObjectChange[T]]:
    return msgspec.json.Decoder(ObjectChange[model])  # type: ignore[valid-type]


def _decode_in_steps(line: bytes, model: type[T]) -> WatchEvent[T]:
    try:
        event = msgspec.json.decode(line, type=_RawEvent)
        if event.type == "BOOKMARK":
            return Bookmark(msgspec.json.decode(event.object, type=_BookmarkObject).metadata.resource_version)
        if event.type == "ERROR":
            raise error_from_status(msgspec.json.decode(event.object, type=Status))
        return _decoded_change(ChangeType(event.type), event.object, model)
    except (msgspec.DecodeError, DecodeError, ValueError) as error:
        # The message does not contain the line: it may be a Secret.
        raise StreamBroken(f"a watch event of {len(line)} bytes cannot be read: {error}") from error


def _decoded_change(kind: ChangeType, raw: msgspec.Raw, model: type[T]) -> ObjectChange[T] | UnreadableObject:
    try:
        return ObjectChange(kind, decode(bytes(raw), model))
    except DecodeError as error:
        return unreadable_object(raw, error, deleted=kind is ChangeType.DELETED)
