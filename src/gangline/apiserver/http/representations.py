"""The views of a response: whole objects, their metadata, or rows of a table.

Objects are stored as encoded JSON. The bytes of whole objects pass unchanged: a list is its items joined, a watch
event is its object with a few bytes around it. The other views decode, because they are rarely requested.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.registry.object_kind import ObjectBody, ObjectKind
from gangline.apiserver.tables.table import IncludeObject, encode_table
from gangline.base.errors import GanglineError

EventEncoder: TypeAlias = Callable[[str, ObjectBody], bytes]
"""Encodes one line of a watch from an event's type and object. Use one per watch: a table sends its header only once.
"""

META_GROUP: Final = "meta.k8s.io"
TABLE_KIND: Final = "Table"
PARTIAL_METADATA: Final = "PartialObjectMetadata"
PARTIAL_METADATA_LIST: Final = "PartialObjectMetadataList"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch."""


class NegotiationError(GanglineError):
    """A representation that is not available. `status` is the body of the response."""

    def __init__(self, code: int, reason: str, message: str, *, routed: bool = True) -> None:
        super().__init__(message)
        self.code = code
        # kube-apiserver refuses in two places; only its router, which comes first, adds empty details.
        details: JSON = {} if routed else {"details": {}}
        self.status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **details,
            "code": code,
        }


def not_acceptable(message: str) -> NegotiationError:
    return NegotiationError(406, "NotAcceptable", message)


class ResponseView(Protocol):
    """Makes the JSON of a response. All methods return encoded, compact JSON."""

    is_plain: bool
    """Whether objects pass unchanged."""

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes: ...

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes: ...

    def event_encoder(self, kind: ObjectKind) -> EventEncoder: ...


def plain_event(event: str, body: ObjectBody) -> bytes:
    """One line of a watch with the unchanged object."""
    return b'{"type":"%b","object":%b}\n' % (event.encode(), encode_body(body))


def encode_body(body: ObjectBody) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def decode_body(body: ObjectBody) -> JSON:
    if isinstance(body, bytes):
        value: JSON = msgspec.json.decode(body)
        return value
    return body


class WholeObjectView:
    """Whole objects, unchanged."""

    is_plain = True

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes:
        return encode_body(body)

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes:
        if kind.custom:
            metadata = {"continue": "", **metadata}
        tails = [kind.list_item_tail(item) for item in items]
        joined = b",{".join(tails)
        opening = b',"items":[{' if tails else b',"items":['
        return b"".join((kind.list_head, msgspec.json.encode(metadata), opening, joined, b"]}"))

    def event_encoder(self, kind: ObjectKind) -> EventEncoder:
        return plain_event


WHOLE_OBJECTS = WholeObjectView()


class _OnlyMetadata(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_metadata_decoder = msgspec.json.Decoder(_OnlyMetadata)


class PartialMetadataView:
    """The metadata of objects: PartialObjectMetadata or its list."""

    is_plain = False

    def __init__(self, target: str, version: str) -> None:
        self._target = target
        self._api_version = f"{META_GROUP}/{version}"
        self._item_head = _json_head(PARTIAL_METADATA, self._api_version)
        self._list_head = _json_head(PARTIAL_METADATA_LIST, self._api_version)

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes:
        if self._target != PARTIAL_METADATA:
            if kind.custom:
                # kube-apiserver fails here with an internal error, too.
                raise NegotiationError(500, "", "content is not a list")
            raise not_acceptable(
                f"you requested {self._target}, but the requested object is not a list ({kind.go_type})"
            )
        return self._encode_item(body)

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes:
        if self._target != PARTIAL_METADATA_LIST:
            raise not_acceptable(
                f"you requested {self._target}, but the requested object is a list ({kind.go_type}List)"
            )
        joined = b",".join([self._encode_item(item) for item in items])
        # As in kube-apiserver: no items are null here, though not in lists of whole objects.
        listed = b"[%b]" % joined if joined else b"null"
        return b"".join((self._list_head, msgspec.json.encode(metadata), b',"items":', listed, b"}"))

    def event_encoder(self, kind: ObjectKind) -> EventEncoder:
        def encode(event: str, body: ObjectBody) -> bytes:
            return plain_event(event, body if event == "ERROR" else self._encode_item(body))

        return encode

    def _encode_item(self, body: ObjectBody) -> bytes:
        return _partial_object(body, self._item_head)


def _partial_object(body: ObjectBody, head: bytes) -> bytes:
    """The metadata of an object behind `head`, which ends in `"metadata":`."""
    return b"%b%b}" % (head, bytes(_metadata_decoder.decode(encode_body(body)).metadata))


class TableView:
    """Rows of a table, with columns for people."""

    is_plain = False

    def __init__(self, version: str, include: IncludeObject, now: Callable[[], datetime]) -> None:
        self._api_version = f"{META_GROUP}/{version}"
        self._include, self._now = include, now
        self._item_head = _json_head(PARTIAL_METADATA, self._api_version)

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes:
        value = decode_body(body)
        return self._encode_rows(kind, [(body, value)], _version_metadata(value), header=True)

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes:
        return self._encode_rows(kind, [(item, decode_body(item)) for item in items], metadata, header=True)

    def event_encoder(self, kind: ObjectKind) -> EventEncoder:
        header = True

        def encode(event: str, body: ObjectBody) -> bytes:
            nonlocal header
            if event == "ERROR":
                return plain_event(event, body)
            value = decode_body(body)
            line = self._encode_rows(kind, [(body, value)], _version_metadata(value), header=header)
            header = False
            return plain_event(event, line)

        return encode

    def _encode_rows(
        self, kind: ObjectKind, items: list[tuple[ObjectBody, JSON]], metadata: JSON, *, header: bool
    ) -> bytes:
        now = self._now()
        rows = [{**kind.printer.row(value, now), "object": self._row_object(body, value)} for body, value in items]
        return encode_table(self._api_version, metadata, kind.printer if header else None, rows)

    def _row_object(self, body: ObjectBody, value: JSON) -> msgspec.Raw | None:
        if self._include is IncludeObject.OBJECT:
            return msgspec.Raw(encode_body(body))
        # Clients recognize the bookmark that ends the initial events by its annotation, so it keeps its metadata.
        if self._include is IncludeObject.NONE and INITIAL_EVENTS_END not in _annotations(value):
            return None
        return msgspec.Raw(_partial_object(body, self._item_head))


def _annotations(value: JSON) -> JSON:
    return value.get("metadata", {}).get("annotations") or {}


def _version_metadata(value: JSON) -> JSON:
    version = value.get("metadata", {}).get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def _json_head(kind: str, api_version: str) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b","metadata":' % (kind.encode(), api_version.encode())
