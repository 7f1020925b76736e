"""A watch stream as typed changes.

One line of the stream is one change. The line is decoded twice, both times without building dictionaries: first
to its type with the object left raw, because what follows depends on it, then the object.
"""

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from gangline.api.codec import DecodeError, decode
from gangline.api.meta import Object, Wire
from gangline.kube.errors import Status, StreamBroken, api_error
from gangline.kube.transport import lines

T = TypeVar("T")


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """What happened to one object, or (BOOKMARK) just how far the stream has come."""

    type: ChangeType
    object: T
    # Where to resume: the version of this very change, whatever the model keeps of the object.
    resource_version: str


class _Line(Wire, frozen=True):
    type: str
    object: msgspec.Raw


_LINE = msgspec.json.Decoder(_Line)


async def changes(chunks: AsyncIterator[bytes], model: type[T]) -> AsyncIterator[Change[T]]:
    """Decode a watch body. Raises `Gone` (list again), another `ApiError`, or `StreamBroken` for garbage."""
    async for line in lines(chunks):
        yield _change(line, model)


def _change(line: bytes, model: type[T]) -> Change[T]:
    try:
        read = _LINE.decode(line)
        if read.type == "ERROR":
            raise api_error(msgspec.json.decode(read.object, type=Status))
        found = decode(bytes(read.object), model)
        return Change(ChangeType(read.type), found, version_of(found))
    except (msgspec.DecodeError, DecodeError, ValueError) as error:
        # The line itself is not shown: it may be a Secret.
        raise StreamBroken(f"watch: a line of {len(line)} bytes cannot be read: {error}") from error


def version_of(found: Any) -> str:
    """The resourceVersion of an object, struct or JSON."""
    if isinstance(found, Object):
        return found.metadata.resource_version
    return str(found.get("metadata", {}).get("resourceVersion", ""))
