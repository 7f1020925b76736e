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
- Errors of the server or of the way to it do not end `run()`: see `RetryDelays`. The last one is in `problem` until
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
from gangline.base.tasks import run_every
from gangline.kube.client import PAGE_SIZE, WATCH_IDLE_TIMEOUT, ApiReader, Kind
from gangline.kube.errors import ApiError, ConfigError, Gone, KubeError, StreamBroken
from gangline.kube.pages import UnreadableObject, resource_version_of
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange, WatchEvent
from gangline.runtime.cache import Cache, IndexFunc, key_of

log = logging.getLogger(__name__)

T = TypeVar("T")

EVENTS_PER_TURN = 32
"""After so many events others have their turn: much may have come at the same time."""
WATCH_TIMEOUT_SECONDS = (300, 600)
"""How long one watch may last; chosen by chance, so that informers do not come back to a server all at once."""


class RetryDelays(msgspec.Struct, frozen=True):
    """How soon to try again. A watch that the server ended in due time is resumed at once, as is a list after 410."""

    # Doubles with every failure in a row, up to the longest; of each delay a random part, at least half, is waited.
    first_delay: timedelta = timedelta(seconds=0.2)
    max_delay: timedelta = timedelta(seconds=30)
    # A watch that ends sooner and brings nothing is a failure: some proxies accept every watch and close it.
    short_watch: timedelta = timedelta(seconds=1)
    # What is quiet for longer than it takes to connect is taken to be well.
    healthy_after: timedelta = timedelta(seconds=15)


DEFAULT_RETRY_DELAYS = RetryDelays()


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
TransformFunc = Callable[[T], T]
"""Makes an object smaller before it is cached. Name, namespace, uid and resourceVersion must stay."""


class Informer(Generic[T]):
    """A cache that follows the server. Inert until `run()`, which may be run again; share one per kind."""

    def __init__(
        self,
        reader: ApiReader,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        clock: Clock,
        indexes: Mapping[str, IndexFunc[T]] | None = None,
        trim: TransformFunc[T] | None = None,
        resync: timedelta | None = None,
        idle: timedelta = WATCH_IDLE_TIMEOUT,
        pace: RetryDelays = DEFAULT_RETRY_DELAYS,
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
        self.unreadable: dict[Key, UnreadableObject] = {}
        """Objects that the server has and the cache cannot."""
        self._reader, self._where, self._clock = reader, where, clock
        self._transform, self._resync, self._idle, self._delays = trim, resync, idle, pace
        # Replaced, not changed, so that a subscriber may leave while others are being told.
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._synced_event = asyncio.Event()
        # Where the watch resumes; None: list first.
        self._resume_version: str | None = None
        # In a row, without the watch coming forward.
        self._failures = 0
        self._page_size = PAGE_SIZE

    @property
    def is_synced(self) -> bool:
        """Whether the first list is in the cache."""
        return self._synced_event.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced_event.wait()

    @contextmanager
    def subscribe(self, tell: Subscriber[T]) -> Iterator[None]:
        """Be told of every change from now on, and at once of everything that is already there."""
        with self._register(tell):
            for found in self.cache:
                tell(Delta(None, found))
            yield

    @contextmanager
    def _register(self, tell: Subscriber[T]) -> Iterator[None]:
        self._subscribers = (*self._subscribers, tell)
        try:
            yield
        finally:
            left = list(self._subscribers)
            left.remove(tell)
            self._subscribers = tuple(left)

    async def wait_until(self, holds: Callable[[Cache[T]], bool]) -> None:
        """Wait for something to be true of the cache. It is looked at now and after every change."""
        true = asyncio.Event()

        def look(_: Delta[T]) -> None:
            if holds(self.cache):
                true.set()

        if not holds(self.cache):
            with self._register(look):
                await true.wait()

    async def run(self) -> None:
        """Follow the server until cancelled."""
        if self._resync is None:
            await self._list_and_watch()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._list_and_watch())
            group.create_task(run_every(self._resync, self._resync_all, self._clock))

    async def _list_and_watch(self) -> Never:
        while True:
            try:
                if self._resume_version is None:
                    self._resume_version = await self._list()
                await self._watch(self._resume_version)
            except Gone as error:
                self._resume_version = None
                await self._back_off(error)
            except (KubeError, ConfigError) as error:
                await self._back_off(error)

    # Listing

    async def _list(self) -> str:
        """Bring the cache to one snapshot of the server; tell the difference. Gives where to watch from."""
        version: str | None = None
        kept: set[Key] = set()
        unreadable: dict[Key, UnreadableObject] = {}
        try:
            async for page in self._reader.pages(self.kind, self._where, limit=self._page_size):
                # The first page's: should a later one say more, the watch repeats what is between.
                version = page.metadata.resource_version if version is None else version
                for item in page.items:
                    kept.add(self._apply_listed(item))
                unreadable.update((bad.key, bad) for bad in page.unreadable)
        except Gone:
            self._page_size = 0  # Slower than the server forgets: from now on everything at once.
            raise
        for key in self.cache.keys():  # noqa: SIM118 - a Cache iterates over objects
            if key not in kept:
                self._remove(key)
        self._replace_unreadable(unreadable)
        self.relists += self._synced_event.is_set()
        self.problem = None
        self._synced_event.set()
        return version or ""

    def _apply_listed(self, found: T) -> Key:
        key = key_of(found)
        before = self.cache.get(key)
        if before is None or not _is_same_version(resource_version_of(before), resource_version_of(found)):
            self._store(before, found)
        return key

    def _replace_unreadable(self, now: dict[Key, UnreadableObject]) -> None:
        for key, bad in now.items():
            if self.unreadable.get(key) != bad:
                self._warn_unreadable(bad)
        self.unreadable = now

    # Watching

    async def _watch(self, since: str) -> None:
        began, taken = self._clock.monotonic(), 0
        timer = self._clock.call_later(self._delays.healthy_after, self._mark_healthy)
        lasting = timedelta(seconds=random.randint(*WATCH_TIMEOUT_SECONDS))  # noqa: S311 - not a secret
        try:
            async for event in self._reader.watch(
                self.kind, self._where, since=since, timeout=lasting, idle=self._idle
            ):
                self._handle_event(event)
                version = event.resource_version
                if version and version != self._resume_version:
                    self._resume_version = version
                    self._mark_healthy()
                taken += 1
                if taken % EVENTS_PER_TURN == 0:
                    await self._clock.sleep(timedelta())
        finally:
            timer.cancel()
        if self._resume_version == since and self._clock.monotonic() - began < self._delays.short_watch.total_seconds():
            raise StreamBroken(f"{self.name}: the server ended the watch at once")
        self._mark_healthy()

    def _handle_event(self, event: WatchEvent[T]) -> None:
        if isinstance(event, ObjectChange):
            self._handle_change(event.type, event.object)
        elif isinstance(event, UnreadableObject):
            self._handle_unreadable(event)
        else:
            assert isinstance(event, Bookmark)

    def _handle_change(self, kind: ChangeType, found: T) -> None:
        key = key_of(found)
        before = self.cache.get(key)
        if before is not None:
            had, has = resource_version_of(before), resource_version_of(found)
            if _is_older_version(has, had):
                return
            if kind is ChangeType.DELETED:
                self._remove(key, found)
            elif not _is_same_version(had, has):
                self._store(before, found)
        elif kind is not ChangeType.DELETED:
            self._store(None, found)
        if self.unreadable:
            self.unreadable.pop(key, None)

    def _handle_unreadable(self, bad: UnreadableObject) -> None:
        before = self.cache.get(bad.key)
        if before is not None and _is_older_version(bad.resource_version, resource_version_of(before)):
            return
        if bad.deleted:
            self.unreadable.pop(bad.key, None)
        else:
            self.unreadable[bad.key] = bad
            self._warn_unreadable(bad)
        self._remove(bad.key)

    # Cache and subscribers

    def _store(self, before: T | None, found: T) -> None:
        if before is not None and _uid_of(before) != _uid_of(found):
            self._remove(key_of(before))
            before = None
        if self._transform is not None:
            found = self._transform(found)
        self.cache.put(found)
        self._notify(Delta(before, found))

    def _remove(self, key: Key, last: T | None = None) -> None:
        before = self.cache.drop(key)
        if before is None:
            return
        if last is not None and self._transform is not None:
            last = self._transform(last)
        self._notify(Delta(before if last is None else last, None))

    def _notify(self, delta: Delta[T]) -> None:
        for tell in self._subscribers:
            tell(delta)

    async def _resync_all(self) -> None:
        for number, key in enumerate(self.cache.keys(), 1):
            found = self.cache.get(key)
            if found is not None:
                self._notify(Delta(found, found))
            if number % PAGE_SIZE == 0:
                await self._clock.sleep(timedelta())  # Let others run.

    # Trouble

    def _mark_healthy(self) -> None:
        self._failures = 0
        self.problem = None

    async def _back_off(self, error: KubeError | ConfigError) -> None:
        self.restarts += 1
        self._failures += 1
        if isinstance(error, Gone) and self._failures == 1:
            log.info("watch too old, listing again", extra={"resource": self.name})
            return
        self.problem = str(error) or type(error).__name__
        delay = self._backoff_delay(error)
        log.warning(
            "list or watch failed, will retry",
            extra={"resource": self.name, "error": self.problem, "delay": delay.total_seconds()},
        )
        await self._clock.sleep(delay)

    def _backoff_delay(self, error: KubeError | ConfigError) -> timedelta:
        doubled = self._delays.first_delay * (1 << min(self._failures - 1, 16))
        delay = min(self._delays.max_delay, doubled) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        asked = error.retry_after if isinstance(error, ApiError) else None
        return delay if asked is None else max(delay, asked)

    def _warn_unreadable(self, bad: UnreadableObject) -> None:
        log.warning(
            "object cannot be read, ignoring it",
            extra={"resource": self.name, "key": str(bad.key), "error": bad.problem},
        )


def _is_same_version(one: str, other: str) -> bool:
    return one == other != ""


def _is_older_version(one: str, other: str) -> bool:
    """Whether a version is certainly older. Only decimal numbers can be compared."""
    if not (one.isdecimal() and other.isdecimal()):
        return False
    # As numbers: neither has leading zeros, so a shorter one is a smaller one.
    return (len(one), one) < (len(other), other)


def _uid_of(found: Any) -> str:
    if isinstance(found, dict):
        return str(found["metadata"].get("uid", ""))
    uid: str = found.metadata.uid
    return uid
