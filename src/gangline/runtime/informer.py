"""List, then watch, for ever: a cache of one kind that follows the server.

The contract, in prose:

- `synced()` returns once the first list is in the cache. From then on the cache is some state the server had, not
  long ago; it never goes back, and the final state is never lost.
- The cache changes first, then subscribers are told, in the order of their coming, synchronously. A subscriber
  that reads the cache sees the change it was told of, and never a later one.
- A subscriber is told what the object was before and is now. An object that was deleted and made again under its
  name (another uid) is told as gone, then as new.
- After a gap (the watch was too old, the server was away) it is told the difference between the cache and a new
  list; states in between are lost. The list goes into the cache page by page, so that the world is never held
  twice; that something is *gone* is told only when the list is complete.
- With `resync`, every object is told again once per period, as `Delta(same, same)`.
- An object that does not fit its type (somebody wrote it by hand) is logged and kept in `unreadable`; it is not in
  the cache, and if an older form of it was, that is told as gone. A stale form would make every guarded write
  conflict for ever, and a restarted informer would not have it either. All other objects are followed as usual.
- Errors of the server or of the way to it do not end `run()`: see `Pace`. The last one is in `problem` until
  things go well again. It resumes where it was if it can, and lists again when the server has forgotten that.
- Errors of subscribers, indexes and `trim` are bugs, and do end it: `run()` raises them at once. To go on would
  leave somebody with a world that silently differs from the cache. Run it in a TaskGroup and let the process die.

About resourceVersions. Lists ask for the most recent state (no version at all), never for "any": an "any" list may
come from a lagging server and be older than what we have. A list is the truth, whatever versions it has (a restored
etcd counts backwards). Within a watch, versions that are decimal numbers are compared (Kubernetes 1.35 promises that
they can be, KEP-5504, and no server we know of did otherwise before), so that events repeated after a resume do not
turn an object back. They are compared for one object only, not with the point of resumption: a server that joins
several stores has no order between them. So a repeated life of an object that is gone is told again, to its end.
Versions that are not numbers are taken as they come.
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
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import every
from gangline.kube.client import Kind, Reader
from gangline.kube.errors import ApiError, ConfigError, Gone, KubeError, StreamBroken
from gangline.kube.pages import Unreadable, version_of
from gangline.kube.watch import Bookmark, Change, ChangeType, WatchEvent
from gangline.runtime.cache import Cache, Index, key_of

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 500
IDLE = timedelta(minutes=3)
"""Servers send a bookmark about every minute; after three without one the connection is taken for dead."""
AT_ONCE = 32
"""After so many events others have their turn: much may have come at the same time."""
WATCH_SECONDS = (300, 600)
"""How long one watch may last; chosen by chance, so that informers do not come back to a server all at once."""


class Pace(msgspec.Struct, frozen=True):
    """How soon to try again. A watch that the server ended in due time is resumed at once, as is a list after 410."""

    # Doubles with every failure in a row, up to the longest; of each delay a random part, at least half, is waited.
    first: timedelta = timedelta(seconds=0.2)
    longest: timedelta = timedelta(seconds=30)
    # A watch that ends sooner and brings nothing is a failure: some proxies accept every watch and close it.
    short: timedelta = timedelta(seconds=1)
    # What is quiet for longer than it takes to connect is taken to be well.
    settled: timedelta = timedelta(seconds=15)


DEFAULT_PACE = Pace()


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What a subscriber is told. None before: it is new. None after: it is gone, and `before` is its last state."""

    before: T | None
    after: T | None

    @property
    def newest(self) -> T:
        """The object as last seen."""
        newest = self.after if self.after is not None else self.before
        assert newest is not None
        return newest


Subscriber = Callable[[Delta[T]], None]
Trim = Callable[[T], T]
"""Makes an object smaller before it is cached. Name, namespace, uid and resourceVersion must stay."""


class Informer(Generic[T]):
    """A cache that follows the server. Inert until `run()`, which may be run again; share one per kind."""

    def __init__(
        self,
        reader: Reader,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        clock: Clock,
        indexes: Mapping[str, Index[T]] | None = None,
        trim: Trim[T] | None = None,
        resync: timedelta | None = None,
        idle: timedelta = IDLE,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.cache: Cache[T] = Cache(indexes)
        self.kind = kind
        self.name = kind.name if isinstance(kind, Resource) else kind.__name__
        self.problem: str | None = None
        """Why the last list or watch failed; None while all is well. For health probes."""
        self.relists = 0
        """Lists completed after the first."""
        self.restarts = 0
        """Lists and watches that failed and were tried again."""
        self.unreadable: dict[Key, Unreadable] = {}
        """Objects that the server has and the cache cannot."""
        self._reader, self._where, self._clock = reader, where, clock
        self._trim, self._resync, self._idle, self._pace = trim, resync, idle, pace
        # Replaced, not changed, so that a subscriber may leave while others are being told.
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._synced = asyncio.Event()
        # Where the watch resumes; None: list first.
        self._version: str | None = None
        # In a row, without the watch coming forward.
        self._failures = 0
        self._page = PAGE

    @property
    def is_synced(self) -> bool:
        """Whether the first list is in the cache."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced.wait()

    @contextmanager
    def subscribed(self, tell: Subscriber[T]) -> Iterator[None]:
        """Be told of every change from now on, and at once of everything that is already there."""
        with self._joined(tell):
            for found in self.cache:
                tell(Delta(None, found))
            yield

    @contextmanager
    def _joined(self, tell: Subscriber[T]) -> Iterator[None]:
        self._subscribers = (*self._subscribers, tell)
        try:
            yield
        finally:
            left = list(self._subscribers)
            left.remove(tell)
            self._subscribers = tuple(left)

    async def until(self, holds: Callable[[Cache[T]], bool]) -> None:
        """Wait for something to be true of the cache. It is looked at now and after every change."""
        true = asyncio.Event()

        def look(_: Delta[T]) -> None:
            if holds(self.cache):
                true.set()

        if not holds(self.cache):
            with self._joined(look):
                await true.wait()

    async def run(self) -> None:
        """Follow the server until cancelled."""
        if self._resync is None:
            await self._follow()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(every(self._resync, self._tell_all, self._clock))

    async def _follow(self) -> Never:
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                await self._watch(self._version)
            except Gone as error:
                self._version = None
                await self._pause(error)
            except (KubeError, ConfigError) as error:
                await self._pause(error)

    # Listing

    async def _list(self) -> str:
        """Bring the cache to one snapshot of the server; tell the difference. Gives where to watch from."""
        version: str | None = None
        kept: set[Key] = set()
        unreadable: dict[Key, Unreadable] = {}
        try:
            async for page in self._reader.pages(self.kind, self._where, limit=self._page):
                # The first page's: should a later one say more, the watch repeats what is between.
                version = page.metadata.resource_version if version is None else version
                for item in page.items:
                    kept.add(self._listed(item))
                unreadable.update((bad.key, bad) for bad in page.unreadable)
        except Gone:
            self._page = 0  # Slower than the server forgets: from now on everything at once.
            raise
        for key in self.cache.keys():  # noqa: SIM118 - a Cache iterates over objects
            if key not in kept:
                self._drop(key)
        self._note_unreadable(unreadable)
        self.relists += self._synced.is_set()
        self.problem = None
        self._synced.set()
        return version or ""

    def _listed(self, found: T) -> Key:
        key = key_of(found)
        before = self.cache.get(key)
        if before is None or not _same(version_of(before), version_of(found)):
            self._put(before, found)
        return key

    def _note_unreadable(self, now: dict[Key, Unreadable]) -> None:
        for key, bad in now.items():
            if self.unreadable.get(key) != bad:
                self._warn_unreadable(bad)
        self.unreadable = now

    # Watching

    async def _watch(self, since: str) -> None:
        began, taken = self._clock.monotonic(), 0
        timer = self._clock.call_later(self._pace.settled, self._well)
        lasting = timedelta(seconds=random.randint(*WATCH_SECONDS))  # noqa: S311 - not a secret
        try:
            async for event in self._reader.watch(
                self.kind, self._where, since=since, timeout=lasting, idle=self._idle
            ):
                self._take(event)
                version = event.resource_version
                if version and version != self._version:
                    self._version = version
                    self._well()
                taken += 1
                if taken % AT_ONCE == 0:
                    await self._clock.sleep(timedelta())
        finally:
            timer.cancel()
        if self._version == since and self._clock.monotonic() - began < self._pace.short.total_seconds():
            raise StreamBroken(f"{self.name}: the server ended the watch at once")
        self._well()

    def _take(self, event: WatchEvent[T]) -> None:
        if isinstance(event, Change):
            self._changed(event.type, event.object)
        elif isinstance(event, Unreadable):
            self._unread(event)
        else:
            assert isinstance(event, Bookmark)

    def _changed(self, kind: ChangeType, found: T) -> None:
        key = key_of(found)
        before = self.cache.get(key)
        if before is not None:
            had, has = version_of(before), version_of(found)
            if _older(has, had):
                return
            if kind is ChangeType.DELETED:
                self._drop(key, found)
            elif not _same(had, has):
                self._put(before, found)
        elif kind is not ChangeType.DELETED:
            self._put(None, found)
        if self.unreadable:
            self.unreadable.pop(key, None)

    def _unread(self, bad: Unreadable) -> None:
        before = self.cache.get(bad.key)
        if before is not None and _older(bad.resource_version, version_of(before)):
            return
        if bad.deleted:
            self.unreadable.pop(bad.key, None)
        else:
            self.unreadable[bad.key] = bad
            self._warn_unreadable(bad)
        self._drop(bad.key)

    # Cache and subscribers

    def _put(self, before: T | None, found: T) -> None:
        if before is not None and _uid(before) != _uid(found):
            self._drop(key_of(before))
            before = None
        if self._trim is not None:
            found = self._trim(found)
        self.cache.put(found)
        self._tell(Delta(before, found))

    def _drop(self, key: Key, last: T | None = None) -> None:
        before = self.cache.drop(key)
        if before is None:
            return
        if last is not None and self._trim is not None:
            last = self._trim(last)
        self._tell(Delta(before if last is None else last, None))

    def _tell(self, delta: Delta[T]) -> None:
        for tell in self._subscribers:
            tell(delta)

    async def _tell_all(self) -> None:
        for number, key in enumerate(self.cache.keys(), 1):
            found = self.cache.get(key)
            if found is not None:
                self._tell(Delta(found, found))
            if number % PAGE == 0:
                await self._clock.sleep(timedelta())  # Let others run.

    # Trouble

    def _well(self) -> None:
        self._failures = 0
        self.problem = None

    async def _pause(self, error: KubeError | ConfigError) -> None:
        self.restarts += 1
        self._failures += 1
        if isinstance(error, Gone) and self._failures == 1:
            log.info("watch too old, listing again", extra={"resource": self.name})
            return
        self.problem = str(error) or type(error).__name__
        delay = self._delay(error)
        log.warning(
            "list or watch failed, will retry",
            extra={"resource": self.name, "error": self.problem, "delay": delay.total_seconds()},
        )
        await self._clock.sleep(delay)

    def _delay(self, error: KubeError | ConfigError) -> timedelta:
        doubled = self._pace.first * (1 << min(self._failures - 1, 16))
        delay = min(self._pace.longest, doubled) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        asked = error.retry_after if isinstance(error, ApiError) else None
        return delay if asked is None else max(delay, asked)

    def _warn_unreadable(self, bad: Unreadable) -> None:
        log.warning(
            "object cannot be read, ignoring it",
            extra={"resource": self.name, "key": str(bad.key), "error": bad.problem},
        )


def _same(one: str, other: str) -> bool:
    return one == other != ""


def _older(one: str, other: str) -> bool:
    """Whether a version is certainly older. Only decimal numbers can be compared."""
    if not (one.isdecimal() and other.isdecimal()):
        return False
    # As numbers: neither has leading zeros, so a shorter one is a smaller one.
    return (len(one), one) < (len(other), other)


def _uid(found: Any) -> str:
    if isinstance(found, dict):
        return str(found["metadata"].get("uid", ""))
    uid: str = found.metadata.uid
    return uid
