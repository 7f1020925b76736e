"""Watches: initial events, changes and bookmarks, one line or frame each, until the timeout or the client ends the watch."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.list import parse_resource_version
from gangline.apiserver.http.negotiation import Representation
from gangline.apiserver.http.query import query_integer
from gangline.apiserver.http.representations import INITIAL_EVENTS_END, EventEncoder
from gangline.apiserver.http.request_info import query_flag
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.store.errors import RevisionCompacted, WatcherTooSlow
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.base.clock import Clock
from gangline.schema.protobuf.messages import message_reader
from gangline.schema.typed import published

BOOKMARK_INTERVAL = timedelta(minutes=1)
MAX_TIMEOUT_SECONDS = 2**31
# Changes that wait for a client before its watch is ended; it lists again.
MAX_BACKLOG = 10_000
MAX_WATCH_TIMEOUT = timedelta(minutes=40)

_COUNTED_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")
"""Kinds of apps whose replicas are a plain number inside kube-apiserver, so that it writes 0."""
_DAEMON_SETS = ("apps", "DaemonSet")


class WatchRequest(msgspec.Struct, frozen=True):
    """The parameters of a watch."""

    served_kind: ServedKind
    namespace: str
    selection: Selection
    representation: Representation
    query: Mapping[str, str]

    @property
    def sends_bookmarks(self) -> bool:
        return query_flag(self.query, "allowWatchBookmarks")

    @property
    def sends_initial_events(self) -> bool:
        """Whether existing objects are sent as ADDED events. Clients may turn this off, to get changes only."""
        return "sendInitialEvents" not in self.query or query_flag(self.query, "sendInitialEvents")

    @property
    def timeout(self) -> timedelta:
        seconds = query_integer(self.query, "timeoutSeconds") or 0
        if seconds <= 0:
            return MAX_WATCH_TIMEOUT
        return timedelta(seconds=min(seconds, MAX_TIMEOUT_SECONDS))


async def watch_lines(store: Store, request: WatchRequest, clock: Clock) -> AsyncIterator[bytes]:
    """The response in pieces of one or more lines. Ends after the timeout, or when the client is too slow."""
    encode = request.representation.event_encoder(request.served_kind.object_kind)
    prefix = collection_prefix(
        request.served_kind.storage_group, request.served_kind.resource.plural, request.namespace
    )
    version = request.query.get("resourceVersion", "")
    is_current = version in ("", "0") or query_flag(request.query, "sendInitialEvents")
    try:
        # No await between the list and the watch, so that no change is missed.
        records = store.range(prefix).records if is_current and request.sends_initial_events else ()
        revision = store.revision if is_current else parse_resource_version(version)
        changes = store.watch(prefix, after=revision, backlog=MAX_BACKLOG)
    except RevisionCompacted as error:
        text = f"too old resource version: {error.requested} ({error.oldest})"
        yield encode("ERROR", apierrors.resource_expired(text).status)
        return
    with changes:
        initial = _initial_lines(request, encode, records, revision, send_end=_sends_initial_end(request, version))
        if initial:
            yield initial
        async for piece in _change_lines(request, encode, changes, clock):
            yield piece


def _sends_initial_end(request: WatchRequest, version: str) -> bool:
    if not request.sends_bookmarks or not request.sends_initial_events:
        return False
    return version == "" or query_flag(request.query, "sendInitialEvents")


def _initial_lines(
    request: WatchRequest, encode: EventEncoder, records: tuple[StoreRecord, ...], revision: int, *, send_end: bool
) -> bytes:
    lines = [
        encode("ADDED", request.served_kind.served_bytes(record.data))
        for record in records
        if not request.selection or request.selection.matches(record)
    ]
    if send_end:
        lines.append(encode("BOOKMARK", bookmark(request.served_kind, revision, {INITIAL_EVENTS_END: "true"})))
    return b"".join(lines)


async def _change_lines(
    request: WatchRequest, encode: EventEncoder, changes: StoreWatch, clock: Clock
) -> AsyncIterator[bytes]:
    deadline = clock.monotonic() + request.timeout.total_seconds()
    bookmarked = changes.revision
    while True:
        seconds = min(BOOKMARK_INTERVAL.total_seconds(), deadline - clock.monotonic())
        if seconds <= 0:
            return
        try:
            events = await changes.next_batch(seconds)
        except (StopAsyncIteration, WatcherTooSlow):
            return
        if events is None:
            if request.sends_bookmarks and changes.revision > bookmarked:
                bookmarked = changes.revision
                yield encode("BOOKMARK", bookmark(request.served_kind, bookmarked))
            continue
        lines = [line for event in events if (line := _event_line(request, encode, event))]
        if lines:
            yield b"".join(lines)


def _event_line(request: WatchRequest, encode: EventEncoder, event: StoreEvent) -> bytes | None:
    event_type = request.selection.watch_event_type(event)
    if event_type is None:
        return None
    body = event.record.data
    if event_type == "DELETED" and not event.deleted:
        # The object left the selection: send its old content at the revision of the change.
        assert event.previous is not None
        body = _at_revision(event.previous, event.record.revision)
    # The line is not shared between watches: encoding costs little compared with TLS, and history would hold it twice.
    return encode(event_type, request.served_kind.served_bytes(body))


def _at_revision(record: StoreRecord, revision: int) -> bytes:
    obj: JSON = msgspec.json.decode(record.data)
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(obj)


def bookmark(served_kind: ServedKind, revision: int, annotations: Mapping[str, str] | None = None) -> JSON:
    metadata: JSON = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    resource = served_kind.resource
    if (resource.group, resource.kind) == _DAEMON_SETS:
        metadata.setdefault("annotations", {})["deprecated.daemonset.template.generation"] = "0"
    content = {} if served_kind.custom else _empty_content(resource.api_version, resource.kind)
    return {**content, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}


@cache
def _empty_content(api_version: str, kind: str) -> JSON:
    """What Go encodes of an object that has only metadata. Bookmarks have this content. Shared: must not be changed."""
    name = published.message_catalog().kinds.get(api_version, {}).get(kind)
    content: JSON = message_reader(name).zero_value() if name is not None else {}
    if api_version == "apps/v1" and kind in _COUNTED_KINDS:
        content["spec"]["replicas"] = 0
    return content
