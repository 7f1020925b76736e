"""A cache of one kind that follows the server: list, then watch, for ever.

The contract:

- `wait_for_sync()` returns once the first list is in the cache. From then on the cache is a recent state of the server;
  it never goes back to an older one, and the latest state always arrives.
- The cache changes first, then subscribers are called synchronously, in the order in which they subscribed. A subscriber
  that reads the cache sees the change it was called for, and no later one.
- A subscriber gets the object before and after the change. An object that was deleted and created again with the same
  name (another uid) is reported as deleted, then as new.
- After a gap (the watch was too old, the server was unreachable) the difference between the cache and a new list is
  reported; states in between are lost. The list is put into the cache page by page, so that it is never in memory twice;
  deletions are reported only when the list is complete.
- With `resync`, every object is reported again once per period, as `Delta(same, same)`.
- An object that does not fit its type is logged and kept in `unreadable`. It is not in the cache; if an older state of it
  was, that is reported as deleted. A stale state would make every conditional write conflict for ever, and a restarted
  informer would not have it either. All other objects are followed as usual.
- Errors of the server or the connection do not end `run()`: it retries as `RetryDelays` says. The last error is in
  `problem` until the next success. The watch resumes where it was if possible, and lists again if the server has dropped
  that version.
- With `namespaces`, each of them is listed and watched by requests of its own, into the one cache. A namespace that may
  not be read yet (it may not exist) does not hold up the others: the informer has synced when every namespace was listed
  or refused, and at least one was listed. `has_listed` says of which namespace the cache shows the state.
- Errors of subscribers, indexes and `trim` are bugs: `run()` raises them at once, because otherwise a subscriber's state
  would silently differ from the cache. Run it in a TaskGroup and let the process end.

About resourceVersions. Lists request the most recent state (no version), never "any" version, which may come from a
lagging server and be older than the cache. A list is always applied, whatever versions it has (a restored etcd counts
backwards). Within a watch, versions that are decimal numbers are compared (Kubernetes 1.35 guarantees that, KEP-5504, and
no known server did otherwise before), so that events repeated after a resume do not revert an object. Only versions of the
same object are compared, not with the version at which the watch resumed: a server over several stores has no order
between them. So repeated events of a deleted object are reported again, up to its deletion. Versions that are not numbers
are applied as they arrive.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, Never, TypeVar

import msgspec

from gangline.api.meta import EVERYTHING, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import run_every, unwrap_exception_group
from gangline.kube.client import PAGE_SIZE, WATCH_IDLE_TIMEOUT, ApiReader, Kind
from gangline.kube.errors import ApiError, ConfigError, Forbidden, Gone, KubeError, StreamBroken
from gangline.kube.pages import UnreadableObject, resource_version_of
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange, WatchEvent
from gangline.runtime.cache import Cache, IndexFunc, key_of

log = logging.getLogger(__name__)

T = TypeVar("T")

EVENTS_PER_TURN = 32
"""After so many events the informer lets other tasks run: many events may arrive at once."""
WATCH_TIMEOUT_SECONDS = (300, 600)
"""The range of watch durations; random, so that informers do not all reconnect at the same time."""


class RetryDelays(msgspec.Struct, frozen=True):
    """Delays before retries. A watch that the server ended after its timeout is resumed at once; after 410 the informer lists again at once."""

    # Doubles with every failure in a row, up to `max_delay`; each delay is multiplied by a random number of 0.5 to 1.
    first_delay: timedelta = timedelta(seconds=0.2)
    max_delay: timedelta = timedelta(seconds=30)
    # A watch that ends sooner without an event is a failure: some proxies accept every watch and close it.
    short_watch: timedelta = timedelta(seconds=1)
    # A watch that is open for longer than connecting takes counts as successful, even without events.
    healthy_after: timedelta = timedelta(seconds=15)


DEFAULT_RETRY_DELAYS = RetryDelays()


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change of an object. `before` is None if it is new; `after` is None if it was deleted."""

    before: T | None
    after: T | None

    @property
    def newest(self) -> T:
        """The object after the change, or its last state if it was deleted."""
        newest = self.after if self.after is not None else self.before
        assert newest is not None
        return newest


Subscriber = Callable[[Delta[T]], None]
TransformFunc = Callable[[T], T]
"""Makes an object smaller before it is cached. Must keep name, namespace, uid and resourceVersion."""


class _Feed:
    """The state of one list and watch: everything that a selector selects."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.problem: str | None = None
        # Whether the cache has had a list of it, and whether the server refused the last one.
        self.listed = self.refused = False
        # The version at which the watch resumes; None: list first.
        self.resume_version: str | None = None
        # Failures in a row, without an event in between.
        self.failures = 0
        self.page_size = PAGE_SIZE

    def covers(self, key: Key) -> bool:
        return self.selector.namespace in ("", key.namespace)


class Informer(Generic[T]):
    """A cache that follows the server. Does nothing before `run()`, which may be called again after it ended."""

    def __init__(
        self,
        reader: ApiReader,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        clock: Clock,
        namespaces: Sequence[str] = (),
        indexes: Mapping[str, IndexFunc[T]] | None = None,
        trim: TransformFunc[T] | None = None,
        resync: timedelta | None = None,
        idle: timedelta = WATCH_IDLE_TIMEOUT,
        pace: RetryDelays = DEFAULT_RETRY_DELAYS,
    ) -> None:
        self.cache: Cache[T] = Cache(indexes)
        self.kind = kind
        self.name = kind.name if isinstance(kind, Resource) else kind.__name__
        self.relists = 0
        """The number of lists completed after the first."""
        self.restarts = 0
        """The number of lists and watches that failed."""
        self.unreadable: dict[Key, UnreadableObject] = {}
        """Objects on the server that do not fit their type, and so are not in the cache."""
        self._reader, self._clock = reader, clock
        selectors = [msgspec.structs.replace(where, namespace=namespace) for namespace in namespaces]
        self._feeds = tuple(map(_Feed, selectors or [where]))
        self._transform, self._resync, self._idle, self._delays = trim, resync, idle, pace
        # Replaced, never changed, so that a subscriber may unsubscribe while others are being called.
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._synced_event = asyncio.Event()
        self._answered_event = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """The error of the last list or watch; None after a success. For health probes."""
        return next((feed.problem for feed in self._feeds if feed.problem is not None), None)

    @property
    def is_synced(self) -> bool:
        """Whether the first list is in the cache."""
        return self._synced_event.is_set()

    def has_listed(self, namespace: str) -> bool:
        """Whether the first list of this namespace is in the cache."""
        return any(feed.listed and feed.selector.namespace in ("", namespace) for feed in self._feeds)

    async def wait_for_sync(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced_event.wait()

    async def wait_for_answer(self) -> None:
        """Wait until the first list is in the cache, or the first attempt has failed: `problem` then says why."""
        await self._answered_event.wait()

    @contextmanager
    def subscribe(self, subscriber: Subscriber[T]) -> Iterator[None]:
        """Call `subscriber` for every object in the cache, then for every change, until the block ends."""
        with self._register(subscriber):
            for item in self.cache:
                subscriber(Delta(None, item))
            yield

    @contextmanager
    def _register(self, subscriber: Subscriber[T]) -> Iterator[None]:
        self._subscribers = (*self._subscribers, subscriber)
        try:
            yield
        finally:
            remaining = list(self._subscribers)
            remaining.remove(subscriber)
            self._subscribers = tuple(remaining)

    async def wait_until(self, holds: Callable[[Cache[T]], bool]) -> None:
        """Wait until `holds` returns True for the cache. It is called now and after every change."""
        done = asyncio.Event()

        def check(_: Delta[T]) -> None:
            if holds(self.cache):
                done.set()

        if not holds(self.cache):
            with self._register(check):
                await done.wait()

    async def run(self) -> None:
        """Follow the server until cancelled."""
        if self._resync is None and len(self._feeds) == 1:
            await self._list_and_watch(self._feeds[0])
        with unwrap_exception_group():
            async with asyncio.TaskGroup() as group:
                for feed in self._feeds:
                    group.create_task(self._list_and_watch(feed))
                if self._resync is not None:
                    group.create_task(run_every(self._resync, self._resync_all, self._clock))

    async def _list_and_watch(self, feed: _Feed) -> Never:
        while True:
            try:
                if feed.resume_version is None:
                    feed.resume_version = await self._list(feed)
                await self._watch(feed, feed.resume_version)
            except Gone as error:
                feed.resume_version = None
                await self._back_off(feed, error)
            except (KubeError, ConfigError) as error:
                await self._back_off(feed, error)

    # Listing

    async def _list(self, feed: _Feed) -> str:
        """Bring the cache to a snapshot of the server and report the differences. Returns the version to watch from."""
        version: str | None = None
        listed: set[Key] = set()
        unreadable: dict[Key, UnreadableObject] = {}
        try:
            async for page in self._reader.pages(self.kind, feed.selector, limit=feed.page_size):
                # The version of the first page: if a later page is newer, the watch repeats what is in between.
                version = page.metadata.resource_version if version is None else version
                for item in page.items:
                    listed.add(self._apply_listed(item))
                unreadable.update((item.key, item) for item in page.unreadable)
        except Gone:
            feed.page_size = 0  # Too slow for the server to keep the snapshot: list without pages from now on.
            raise
        for key in self.cache.keys():  # noqa: SIM118 - a Cache iterates over objects
            if key not in listed and feed.covers(key):
                self._remove(key)
        self._replace_unreadable(feed, unreadable)
        self.relists += feed.listed
        feed.problem, feed.listed, feed.refused = None, True, False
        self._update_synced()
        return version or ""

    def _update_synced(self) -> None:
        feeds = self._feeds
        if all(feed.listed or feed.problem is not None for feed in feeds):
            self._answered_event.set()
        if any(feed.listed for feed in feeds) and all(feed.listed or feed.refused for feed in feeds):
            self._synced_event.set()

    def _apply_listed(self, item: T) -> Key:
        key = key_of(item)
        before = self.cache.get(key)
        if before is None or not _is_same_version(resource_version_of(before), resource_version_of(item)):
            self._store(before, item)
        return key

    def _replace_unreadable(self, feed: _Feed, unreadable: dict[Key, UnreadableObject]) -> None:
        for key, item in unreadable.items():
            if self.unreadable.get(key) != item:
                self._warn_unreadable(item)
        others = {key: item for key, item in self.unreadable.items() if not feed.covers(key)}
        self.unreadable = others | unreadable

    # Watching

    async def _watch(self, feed: _Feed, since: str) -> None:
        began, event_count = self._clock.monotonic(), 0
        timer = self._clock.call_later(self._delays.healthy_after, lambda: _mark_healthy(feed))
        timeout = timedelta(seconds=random.randint(*WATCH_TIMEOUT_SECONDS))  # noqa: S311 - not a secret
        try:
            async for event in self._reader.watch(
                self.kind, feed.selector, since=since, timeout=timeout, idle=self._idle
            ):
                self._handle_event(event)
                version = event.resource_version
                if version and version != feed.resume_version:
                    feed.resume_version = version
                    _mark_healthy(feed)
                event_count += 1
                if event_count % EVENTS_PER_TURN == 0:
                    await self._clock.sleep(timedelta())
        finally:
            timer.cancel()
        if feed.resume_version == since and self._clock.monotonic() - began < self._delays.short_watch.total_seconds():
            raise StreamBroken(f"{self.name}: the server ended the watch at once")
        _mark_healthy(feed)

    def _handle_event(self, event: WatchEvent[T]) -> None:
        if isinstance(event, ObjectChange):
            self._handle_change(event.type, event.object)
        elif isinstance(event, UnreadableObject):
            self._handle_unreadable(event)
        else:
            assert isinstance(event, Bookmark)

    def _handle_change(self, change: ChangeType, item: T) -> None:
        key = key_of(item)
        before = self.cache.get(key)
        if before is not None:
            old_version, new_version = resource_version_of(before), resource_version_of(item)
            if _is_older_version(new_version, old_version):
                return
            if change is ChangeType.DELETED:
                self._remove(key, item)
            elif not _is_same_version(old_version, new_version):
                self._store(before, item)
        elif change is not ChangeType.DELETED:
            self._store(None, item)
        if self.unreadable:
            self.unreadable.pop(key, None)

    def _handle_unreadable(self, item: UnreadableObject) -> None:
        before = self.cache.get(item.key)
        if before is not None and _is_older_version(item.resource_version, resource_version_of(before)):
            return
        if item.deleted:
            self.unreadable.pop(item.key, None)
        else:
            self.unreadable[item.key] = item
            self._warn_unreadable(item)
        self._remove(item.key)

    # Cache and subscribers

    def _store(self, before: T | None, item: T) -> None:
        if before is not None and _uid_of(before) != _uid_of(item):
            self._remove(key_of(before))
            before = None
        if self._transform is not None:
            item = self._transform(item)
        self.cache.put(item)
        self._notify(Delta(before, item))

    def _remove(self, key: Key, last: T | None = None) -> None:
        before = self.cache.drop(key)
        if before is None:
            return
        if last is not None and self._transform is not None:
            last = self._transform(last)
        self._notify(Delta(before if last is None else last, None))

    def _notify(self, delta: Delta[T]) -> None:
        for subscriber in self._subscribers:
            subscriber(delta)

    async def _resync_all(self) -> None:
        for number, key in enumerate(self.cache.keys(), 1):
            item = self.cache.get(key)
            if item is not None:
                self._notify(Delta(item, item))
            if number % PAGE_SIZE == 0:
                await self._clock.sleep(timedelta())  # Let other tasks run.

    # Failures

    async def _back_off(self, feed: _Feed, error: KubeError | ConfigError) -> None:
        self.restarts += 1
        feed.failures += 1
        fields = {"resource": self.name}
        if feed.selector.namespace:
            fields["namespace"] = feed.selector.namespace
        if isinstance(error, Gone) and feed.failures == 1:
            log.info("watch too old, listing again", extra=fields)
            return
        problem = str(error) or type(error).__name__
        # A namespace that does not exist yet is refused for a long time: one line is enough.
        is_repeated = feed.refused and problem == feed.problem
        feed.problem, feed.refused = problem, isinstance(error, Forbidden)
        self._update_synced()
        delay = self._backoff_delay(feed, error)
        log.log(
            logging.DEBUG if is_repeated else logging.WARNING,
            "list or watch failed, will retry",
            extra={**fields, "error": problem, "delay": delay.total_seconds()},
        )
        await self._clock.sleep(delay)

    def _backoff_delay(self, feed: _Feed, error: KubeError | ConfigError) -> timedelta:
        doubled = self._delays.first_delay * (1 << min(feed.failures - 1, 16))
        delay = min(self._delays.max_delay, doubled) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        return delay if retry_after is None else max(delay, retry_after)

    def _warn_unreadable(self, item: UnreadableObject) -> None:
        log.warning(
            "object cannot be read, ignoring it",
            extra={"resource": self.name, "key": str(item.key), "error": item.problem},
        )


def _mark_healthy(feed: _Feed) -> None:
    feed.failures, feed.problem, feed.refused = 0, None, False


def _is_same_version(version: str, other: str) -> bool:
    return version == other != ""


def _is_older_version(version: str, other: str) -> bool:
    """Whether a version is older than the other. False unless both are decimal numbers."""
    if not (version.isdecimal() and other.isdecimal()):
        return False
    # Neither has leading zeros, so a shorter number is a smaller one.
    return (len(version), version) < (len(other), other)


def _uid_of(item: Any) -> str:
    if isinstance(item, dict):
        return str(item["metadata"].get("uid", ""))
    uid: str = item.metadata.uid
    return uid
