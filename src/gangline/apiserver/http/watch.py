"""Watches: what was there, what changes, how far we are. One line each, for as long as the client listens."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.http.list import wanted_version
from gangline.apiserver.http.negotiation import EventEncoder, Form, plain_event
from gangline.apiserver.http.query import whole_number
from gangline.apiserver.http.routes import said_yes
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.store.errors import Compacted, TooSlow
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import Event, Record
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import Watch
from gangline.base.clock import Clock

BOOKMARKS = timedelta(minutes=1)
LONGEST = timedelta(minutes=40)
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

EMPTY: dict[str, JSON] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Service": {"spec": {}, "status": {"loadBalancer": {}}},
    "Node": {"spec": {}, "status": {}},
    "Namespace": {"spec": {}, "status": {}},
    "Lease": {"spec": {}},
}
"""What Go writes of an object that has nothing but metadata: bookmarks show it."""


class Watching(msgspec.Struct, frozen=True):
    """What a watch was asked to tell."""

    entry: Entry
    namespace: str
    chosen: Selection
    form: Form
    query: Mapping[str, str]

    @property
    def bookmarks(self) -> bool:
        return said_yes(self.query, "allowWatchBookmarks")

    @property
    def tells_initial(self) -> bool:
        """Whether what is there counts as news. A client may say that it does not: then only changes do."""
        return "sendInitialEvents" not in self.query or said_yes(self.query, "sendInitialEvents")

    @property
    def timeout(self) -> timedelta:
        asked = whole_number(self.query, "timeoutSeconds") or 0
        return timedelta(seconds=asked) if asked > 0 else LONGEST


async def watching(store: Store, asked: Watching, clock: Clock) -> AsyncIterator[bytes]:
    """Pieces of the answer: one or more whole lines. Ends after the time asked for, or when the client is too slow."""
    encode = asked.form.events(asked.entry.shown)
    prefix = collection_prefix(asked.entry.stored_group, asked.entry.plural, asked.namespace)
    version = asked.query.get("resourceVersion", "")
    now = version in ("", "0") or said_yes(asked.query, "sendInitialEvents")
    try:
        # The list and the watch in one breath: nothing can happen in between.
        before = store.range(prefix).records if now and asked.tells_initial else ()
        revision = store.revision if now else wanted_version(version)
        changes = store.watch(prefix, after=revision)
    except Compacted as error:
        text = f"too old resource version: {error.asked} ({error.oldest})"
        yield plain_event("ERROR", refusals.expired(text).status)
        return
    with changes:
        first = _first(asked, encode, before, revision, ends=_says_end(asked, version))
        if first:
            yield first
        async for piece in _following(asked, encode, changes, clock):
            yield piece


def _says_end(asked: Watching, version: str) -> bool:
    if not asked.bookmarks or not asked.tells_initial:
        return False
    return version == "" or said_yes(asked.query, "sendInitialEvents")


def _first(
    asked: Watching, encode: EventEncoder, before: tuple[Record, ...], revision: int, *, ends: bool
) -> bytes:
    lines = [
        encode("ADDED", asked.entry.show(record.data))
        for record in before
        if not asked.chosen or asked.chosen.takes(record)
    ]
    if ends:
        lines.append(encode("BOOKMARK", bookmark(asked.entry, revision, INITIAL_EVENTS_END)))
    return b"".join(lines)


async def _following(
    asked: Watching, encode: EventEncoder, changes: Watch, clock: Clock
) -> AsyncIterator[bytes]:
    ends = clock.monotonic() + asked.timeout.total_seconds()
    marked = changes.revision
    while True:
        patience = min(BOOKMARKS.total_seconds(), ends - clock.monotonic())
        if patience <= 0:
            return
        try:
            events = await changes.within(patience)
        except (StopAsyncIteration, TooSlow):
            return
        if events is None:
            if asked.bookmarks and changes.revision > marked:
                marked = changes.revision
                yield encode("BOOKMARK", bookmark(asked.entry, marked))
            continue
        lines = [line for event in events if (line := _line(asked, encode, event))]
        if lines:
            yield b"".join(lines)


def _line(asked: Watching, encode: EventEncoder, event: Event) -> bytes | None:
    told = asked.chosen.told(event)
    if told is None:
        return None
    body = event.data
    if told == "DELETED" and not event.deleted:
        # It left the selection: its old content, at the version at which it left.
        assert event.before is not None
        body = _at(event.before, event.revision)
    # Not kept for the next watcher: writing it costs little beside encrypting it, and history would hold it twice.
    return encode(told, asked.entry.show(body))


def _at(record: Record, revision: int) -> bytes:
    obj: JSON = msgspec.json.decode(record.data)
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(obj)


def bookmark(entry: Entry, revision: int, annotations: Mapping[str, str] | None = None) -> JSON:
    metadata: JSON = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "kind": entry.kind,
        "apiVersion": entry.api_version,
        "metadata": metadata,
        **EMPTY.get(entry.kind, {}),
    }
