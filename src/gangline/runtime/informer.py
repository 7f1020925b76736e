"""List, then watch, for ever: a cache of one kind that follows the server.

The contract, in prose:

- `synced()` returns once the first list is in the cache.
- The cache changes first, then subscribers are told, in order, synchronously. A subscriber that reads the cache
  sees the change it was told of.
- A subscriber is told what the object was before and is now. After a gap (the watch was too old, the server was
  away) it is told the difference between the old cache and the new list; intermediate states are lost, the final
  state never is.
- Errors do not end it. It retries with back-off and jitter, resumes where it was when it can, and lists again
  when the server no longer knows that version.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, Never, TypeVar

import msgspec

from gangline.api.meta import EVERYTHING, Key, Selector
from gangline.base.clock import Clock
from gangline.kube.client import Kind, Reader
from gangline.kube.errors import Gone, KubeError
from gangline.kube.watch import Change, ChangeType, version_of
from gangline.runtime.cache import Cache, Index, key_of

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """What a subscriber is told: None before is new, None after is gone."""

    before: T | None
    after: T | None

    @property
    def newest(self) -> T:
        """The object as last seen."""
        newest = self.after if self.after is not None else self.before
        assert newest is not None
        return newest


Subscriber = Callable[[Delta[T]], None]


class Informer(Generic[T]):
    """A cache that follows the server. Inert until `run()`; share one per kind."""

    def __init__(
        self,
        reader: Reader,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        clock: Clock,
        indexes: Mapping[str, Index[T]] | None = None,
    ) -> None:
        self.cache: Cache[T] = Cache(indexes)
        self.kind = kind
        self._reader, self._where, self._clock = reader, where, clock
        self._subscribers: list[Subscriber[T]] = []
        self._synced = asyncio.Event()
        # Where the watch resumes; None: list first.
        self._version: str | None = None
        self._failures = 0

    @contextmanager
    def subscribed(self, tell: Subscriber[T]) -> Iterator[None]:
        """Be told of every change from now on, and at once of everything that is already there."""
        self._subscribers.append(tell)
        try:
            for found in self.cache:
                tell(Delta(None, found))
            yield
        finally:
            self._subscribers.remove(tell)

    async def synced(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced.wait()

    async def run(self) -> Never:
        """Follow the server until cancelled."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                await self._watch(self._version)
            except Gone:
                log.info("watch too old, listing again", extra={"resource": str(self.kind)})
                self._version = None
            except KubeError as error:
                await self._pause(error)

    async def _list(self) -> str:
        """Bring the cache to one snapshot of the server; tell the difference."""
        found: dict[Key, T] = {}
        version = ""
        async for page in self._reader.pages(self.kind, self._where):
            found.update((key_of(item), item) for item in page.items)
            version = page.metadata.resource_version
        for key in tuple(self.cache.keys()):
            if key not in found:
                self._gone(key)
        for item in found.values():
            self._seen(item)
        self._failures = 0
        self._synced.set()
        return version

    async def _watch(self, since: str) -> None:
        async for change in self._reader.watch(self.kind, self._where, since=since):
            self._take(change)
            self._version = change.resource_version
            self._failures = 0

    def _take(self, change: Change[T]) -> None:
        match change.type:
            case ChangeType.ADDED | ChangeType.MODIFIED:
                self._seen(change.object)
            case ChangeType.DELETED:
                self._gone(key_of(change.object), change.object)
            case ChangeType.BOOKMARK:
                pass

    def _seen(self, found: T) -> None:
        before = self.cache.put(found)
        if before is None or version_of(before) != version_of(found):
            self._tell(Delta(before, found))

    def _gone(self, key: Key, last: T | None = None) -> None:
        before = self.cache.drop(key)
        if before is not None:
            self._tell(Delta(last if last is not None else before, None))

    def _tell(self, delta: Delta[T]) -> None:
        for tell in tuple(self._subscribers):
            tell(delta)

    async def _pause(self, error: KubeError) -> None:
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2**self._failures) * random.uniform(0.5, 1.0)  # noqa: S311
        self._failures = min(self._failures + 1, 16)
        log.warning(
            "list or watch failed, will retry", extra={"resource": str(self.kind), "error": str(error)}
        )
        await self._clock.sleep(timedelta(seconds=delay))


AnyInformer = Informer[Any]
