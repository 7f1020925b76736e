"""An `ApiReader` in memory with the faults of servers and networks.

Bodies and lines are real bytes through the real decoders; only the wire is missing.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from gangline.api.meta import EVERYTHING, JSON, Key, Object, Selector
from gangline.api.scheme import Resource
from gangline.kube.client import Kind
from gangline.kube.errors import Gone, KubeError, NotFound, Status, StreamBroken
from gangline.kube.pages import Page, read_page
from gangline.kube.watch import WatchEvent, watch_events

T = TypeVar("T")

EXPIRED_STATUS = Status(code=410, reason="Expired", message="too old resource version")


class ModelThing(Object, frozen=True):
    """A kind small enough to read in a failing example."""

    value: int = 0


MODEL_THINGS = Resource("test.io", "v1", "Thing", "things", ModelThing)
PLAIN_THINGS = Resource("test.io", "v1", "Thing", "things", dict[str, Any])


class ModelServer:
    """Objects of one namespace, their history, and knobs. Selectors are ignored."""

    def __init__(self, page: int = 500, namespace: str = "n") -> None:
        self.namespace = namespace
        self.revision = 0
        self.objects: dict[Key, JSON] = {}
        self.page_size = page
        self.list_count = 0
        self.list_limits: list[int] = []
        # Where each watch began.
        self.watch_starts: list[str] = []
        self.watch_timeouts: list[timedelta | None] = []
        # The next list, after so many pages, or the next watch, before its first event, fails with this.
        self.list_failures: list[tuple[int, KubeError]] = []
        self.watch_failures: list[KubeError] = []
        # How far before the asked version the next watch begins.
        self.watch_rewind = 0
        self.closes_watches = False
        self._history: list[tuple[int, bytes]] = []
        self._compacted_revision = 0
        self._open_watches: list[asyncio.Queue[bytes | KubeError | None]] = []
        self._uids = itertools.count(1)

    # What happens

    def put(self, name: str, value: object = 0, **fields: object) -> None:
        """Create or update. A value that is no integer makes it unreadable."""
        key = Key(self.namespace, name)
        before = self.objects.get(key)
        uid = before["metadata"]["uid"] if before else f"uid-{next(self._uids)}"
        metadata = {"namespace": self.namespace, "name": name, "uid": uid, **fields}
        self._record("MODIFIED" if before else "ADDED", {"metadata": metadata, "value": value})

    def delete(self, name: str) -> None:
        found = self.objects.get(Key(self.namespace, name))
        if found is not None:
            self._record("DELETED", {**found, "metadata": dict(found["metadata"])})

    def bookmark(self) -> None:
        self.send_to_watches(
            watch_line("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": str(self.revision)}})
        )

    def send_to_watches(self, text: bytes) -> None:
        """Send bytes to every open watch."""
        for queue in self._open_watches:
            queue.put_nowait(text)

    def end_watches(self, error: KubeError | None = None) -> None:
        """End every open watch, in order or with an error."""
        for queue in self._open_watches:
            queue.put_nowait(error)

    def compact(self) -> None:
        """Forget the history: a watch from before now is told 410."""
        self._compacted_revision = self.revision
        self._history.clear()

    @property
    def has_watches(self) -> bool:
        return bool(self._open_watches)

    def readable_objects(self) -> dict[Key, ModelThing]:
        """The objects a cache must hold in the end."""
        good = {key: body for key, body in self.objects.items() if isinstance(body["value"], int)}
        return {key: msgspec.convert(body, ModelThing) for key, body in good.items()}

    def _record(self, kind: str, body: JSON) -> None:
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        key = Key(self.namespace, body["metadata"]["name"])
        if kind == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = body
        text = watch_line(kind, body)
        self._history.append((self.revision, text))
        self.send_to_watches(text)

    # Reader

    async def get(self, kind: Kind[T], key: Key) -> T:
        assert isinstance(kind, Resource)
        found = self.objects.get(key)
        if found is None:
            raise NotFound(Status(code=404, reason="NotFound"))
        return msgspec.convert(found, kind.model)

    async def pages(self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = 500) -> AsyncIterator[Page[T]]:
        assert isinstance(kind, Resource)
        self.list_count += 1
        self.list_limits.append(limit)
        after, failure = self.list_failures.pop(0) if self.list_failures else (-1, None)
        version, items = self.revision, tuple(self.objects.values())
        for number, part in enumerate(page_chunks(items, self.page_size)):
            if failure is not None and number == after:
                raise failure
            yield read_page(
                msgspec.json.encode({"metadata": {"resourceVersion": str(version)}, "items": part}),
                kind.model,
            )
            await asyncio.sleep(0)  # the world goes on between pages
        if failure is not None:
            raise failure

    async def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = timedelta(minutes=1),
    ) -> AsyncIterator[WatchEvent[T]]:
        assert isinstance(kind, Resource)
        self.watch_starts.append(since)
        self.watch_timeouts.append(timeout)
        await asyncio.sleep(0)
        if self.watch_failures:
            raise self.watch_failures.pop(0)
        async for event in watch_events(self._stream(int(since)), kind.model):
            yield event

    async def _stream(self, since: int) -> AsyncIterator[bytes]:
        if since < self._compacted_revision:
            yield watch_line("ERROR", msgspec.to_builtins(EXPIRED_STATUS))
            return
        if self.closes_watches:
            return
        queue: asyncio.Queue[bytes | KubeError | None] = asyncio.Queue()
        for revision, text in self._history:
            if revision > since - self.watch_rewind:
                queue.put_nowait(text)
        self.watch_rewind = 0
        self._open_watches.append(queue)
        try:
            while (said := await queue.get()) is not None:
                if isinstance(said, KubeError):
                    raise said
                yield said
        finally:
            self._open_watches.remove(queue)


class NamespacedServer:
    """A reader of several namespaces, each with its own history and faults. A request for all of them fails the test."""

    def __init__(self, *names: str) -> None:
        self.namespaces = {name: ModelServer(namespace=name) for name in names}

    async def get(self, kind: Kind[T], key: Key) -> T:
        return await self.namespaces[key.namespace].get(kind, key)

    def pages(self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = 500) -> AsyncIterator[Page[T]]:
        return self.namespaces[where.namespace].pages(kind, where, limit=limit)

    def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = timedelta(minutes=1),
    ) -> AsyncIterator[WatchEvent[T]]:
        return self.namespaces[where.namespace].watch(kind, where, since=since, timeout=timeout, idle=idle)


def watch_line(kind: str, body: JSON) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def gone_error() -> Gone:
    return Gone(EXPIRED_STATUS)


def stream_broken() -> StreamBroken:
    return StreamBroken("cut off")


def page_chunks(items: tuple[JSON, ...], size: int) -> Iterable[tuple[JSON, ...]]:
    return [items[at : at + size] for at in range(0, len(items), size)] or [()]
