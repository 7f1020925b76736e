"""What is in an answer: whole objects, their metadata, or rows of a table.

Objects are kept as encoded JSON. Whole, their bytes pass through as they are: a list is its items joined, an event is
its object with a few bytes around it. The other views decode, because few ask for them.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.tables.table import Include, Printer, table
from gangline.base.errors import GanglineError

Body: TypeAlias = bytes | JSON
"""An object as a client sees it, with kind and apiVersion: encoded (best), or still to be encoded."""
EventEncoder: TypeAlias = Callable[[str, Body], bytes]
"""One line of a watch from an event's type and object. Belongs to one watch: a table has its header only once."""

META_GROUP: Final = "meta.k8s.io"
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"
_END_OF_START = "k8s.io/initial-events-end"


class FormError(GanglineError):
    """A form that cannot be given. `status` is the whole answer."""

    def __init__(self, code: int, reason: str, message: str, *, routed: bool = True) -> None:
        super().__init__(message)
        self.code = code
        # kube-apiserver refuses in two places; only the earlier one, its router, adds empty details.
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


def not_acceptable(message: str) -> FormError:
    return FormError(406, "NotAcceptable", message)


class ObjectKind:
    """What the forms must know of a kind. Made once per served kind and version."""

    def __init__(
        self, api_version: str, kind: str, printer: Printer, *, list_kind: str = "", custom: bool = False
    ) -> None:
        self.api_version, self.kind, self.printer, self.custom = api_version, kind, printer, custom
        self.list_kind = list_kind or f"{kind}List"
        quoted_kind, quoted_version = msgspec.json.encode(kind), msgspec.json.encode(api_version)
        self._prefixes = (
            b'{"kind":%b,"apiVersion":%b,' % (quoted_kind, quoted_version),
            b'{"apiVersion":%b,"kind":%b,' % (quoted_version, quoted_kind),
        )
        list_kind_json = msgspec.json.encode(self.list_kind)
        self.list_head = b'{"kind":%b,"apiVersion":%b,"metadata":' % (list_kind_json, quoted_version)

    def tail(self, body: Body) -> bytes | memoryview:
        """What follows the opening brace of a list's item. Items of built-in kinds do not repeat their kind."""
        if isinstance(body, dict):
            return msgspec.json.encode(body if self.custom else _without_kind(body))[1:]
        if self.custom:
            return memoryview(body)[1:]
        for prefix in self._prefixes:
            if body.startswith(prefix):
                return memoryview(body)[len(prefix) :]
        return msgspec.json.encode(_without_kind(msgspec.json.decode(body)))[1:]

    @property
    def go_type(self) -> str:
        """The type in kube-apiserver that some of its sentences name."""
        if self.custom:
            return "*unstructured.Unstructured"
        group = self.api_version.rpartition("/")[0].partition(".")[0]
        return f"*{group or 'core'}.{self.kind}"


def _without_kind(value: JSON) -> JSON:
    return {name: field for name, field in value.items() if name not in ("kind", "apiVersion")}


class View(Protocol):
    """Which JSON an answer is. All methods return encoded, compact JSON."""

    plain: bool
    """Whether objects pass as they are."""

    def one(self, kind: ObjectKind, body: Body) -> bytes: ...

    def many(self, kind: ObjectKind, items: Iterable[Body], metadata: JSON) -> bytes: ...

    def events(self, kind: ObjectKind) -> EventEncoder: ...


def plain_event(event: str, body: Body) -> bytes:
    """One line of a watch in plain JSON, the object as it is."""
    return b'{"type":"%b","object":%b}\n' % (event.encode(), encoded(body))


def encoded(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def decoded(body: Body) -> JSON:
    if isinstance(body, bytes):
        value: JSON = msgspec.json.decode(body)
        return value
    return body


class Whole:
    """Objects as they are."""

    plain = True

    def one(self, kind: ObjectKind, body: Body) -> bytes:
        return encoded(body)

    def many(self, kind: ObjectKind, items: Iterable[Body], metadata: JSON) -> bytes:
        if kind.custom:
            metadata = {"continue": "", **metadata}
        tails = [kind.tail(item) for item in items]
        joined = b",{".join(tails)
        opening = b',"items":[{' if tails else b',"items":['
        return b"".join((kind.list_head, msgspec.json.encode(metadata), opening, joined, b"]}"))

    def events(self, kind: ObjectKind) -> EventEncoder:
        return plain_event


WHOLE = Whole()


class _OnlyMetadata(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_only_metadata = msgspec.json.Decoder(_OnlyMetadata)


class Partial:
    """Metadata only."""

    plain = False

    def __init__(self, target: str, version: str) -> None:
        self._target = target
        self._api_version = f"{META_GROUP}/{version}"
        self._item = _head(PARTIAL, self._api_version)
        self._list = _head(PARTIAL_LIST, self._api_version)

    def one(self, kind: ObjectKind, body: Body) -> bytes:
        if self._target != PARTIAL:
            if kind.custom:
                # An oddity of the real server, which trips over it.
                raise FormError(500, "", "content is not a list")
            raise not_acceptable(
                f"you requested {self._target}, but the requested object is not a list ({kind.go_type})"
            )
        return self._one(body)

    def many(self, kind: ObjectKind, items: Iterable[Body], metadata: JSON) -> bytes:
        if self._target != PARTIAL_LIST:
            raise not_acceptable(
                f"you requested {self._target}, but the requested object is a list ({kind.go_type}List)"
            )
        joined = b",".join([self._one(item) for item in items])
        return b"".join((self._list, msgspec.json.encode(metadata), b',"items":[', joined, b"]}"))

    def events(self, kind: ObjectKind) -> EventEncoder:
        def encode(event: str, body: Body) -> bytes:
            return plain_event(event, body if event == "ERROR" else self._one(body))

        return encode

    def _one(self, body: Body) -> bytes:
        return _partial(body, self._item)


def _partial(body: Body, head: bytes) -> bytes:
    """An object's metadata behind a head that ends in `"metadata":`."""
    return b"%b%b}" % (head, bytes(_only_metadata.decode(encoded(body)).metadata))


class Table:
    """Rows for people."""

    plain = False

    def __init__(self, version: str, include: Include, now: Callable[[], datetime]) -> None:
        self._api_version = f"{META_GROUP}/{version}"
        self._include, self._now = include, now
        self._item = _head(PARTIAL, self._api_version)

    def one(self, kind: ObjectKind, body: Body) -> bytes:
        value = decoded(body)
        return self._table(kind, [(body, value)], _version_of(value), header=True)

    def many(self, kind: ObjectKind, items: Iterable[Body], metadata: JSON) -> bytes:
        return self._table(kind, [(item, decoded(item)) for item in items], metadata, header=True)

    def events(self, kind: ObjectKind) -> EventEncoder:
        header = True

        def encode(event: str, body: Body) -> bytes:
            nonlocal header
            if event == "ERROR":
                return plain_event(event, body)
            value = decoded(body)
            line = self._table(kind, [(body, value)], _version_of(value), header=header)
            header = False
            return plain_event(event, line)

        return encode

    def _table(
        self, kind: ObjectKind, items: list[tuple[Body, JSON]], metadata: JSON, *, header: bool
    ) -> bytes:
        now = self._now()
        rows = [
            {**kind.printer.row(value, now), "object": self._included(body, value)} for body, value in items
        ]
        return table(self._api_version, metadata, kind.printer if header else None, rows)

    def _included(self, body: Body, value: JSON) -> msgspec.Raw | None:
        if self._include is Include.OBJECT:
            return msgspec.Raw(encoded(body))
        # The bookmark that ends the initial events is known by its annotation, so that must be there.
        if self._include is Include.NONE and _END_OF_START not in _annotations(value):
            return None
        return msgspec.Raw(_partial(body, self._item))


def _annotations(value: JSON) -> JSON:
    return value.get("metadata", {}).get("annotations") or {}


def _version_of(value: JSON) -> JSON:
    version = value.get("metadata", {}).get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def _head(kind: str, api_version: str) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b","metadata":' % (kind.encode(), api_version.encode())
