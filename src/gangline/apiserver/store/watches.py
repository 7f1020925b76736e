"""Delivery of changes to watches: each change once, in order, without a task or a copy per watch."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import chain

from gangline.apiserver.store.errors import WatcherTooSlow
from gangline.apiserver.store.records import StoreEvent


class WatchBroadcaster:
    """Publishes changes to all watches. Watches with the same prefix share the filtering of events."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._by_prefix: dict[str, set[StoreWatch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_prefix.values()))

    def add(self, watch: "StoreWatch") -> None:
        self._by_prefix.setdefault(watch.prefix, set()).add(watch)

    def discard(self, watch: "StoreWatch") -> None:
        group = self._by_prefix.get(watch.prefix, set())
        group.discard(watch)
        if not group:
            self._by_prefix.pop(watch.prefix, None)

    def publish(self, events: Sequence[StoreEvent], revision: int) -> None:
        """Deliver changes that have just become visible; `revision` is the newest."""
        self.revision = revision
        # Copies, because a watch that is too slow removes itself.
        for prefix, group in list(self._by_prefix.items()):
            matching = tuple(event for event in events if event.record.path.startswith(prefix))
            if matching:
                for watch in list(group):
                    watch.push(matching)

    def close_all(self) -> None:
        """End all watches: their iteration stops."""
        for watch in [*chain.from_iterable(self._by_prefix.values())]:
            watch.close()


class StoreWatch:
    """Changes under a prefix after a revision: an endless iterator of batches, for one reader.

    Batches are never empty; what was committed together arrives together. No change is missing, repeated or out
    of order. Use it as a context manager, or `close` it. Waiting is cancel-safe: no change is lost. The iteration
    ends when the watch or the store is closed, and raises `WatcherTooSlow` when more than `backlog` changes wait
    (not counted: the initial history, and a single commit that nothing waits before). Without `backlog` it never does.
    """

    def __init__(
        self,
        broadcaster: WatchBroadcaster,
        prefix: str,
        after: int,
        history: tuple[StoreEvent, ...],
        backlog: int | None,
    ) -> None:
        self.prefix = prefix
        self._broadcaster = broadcaster
        self._delivered_revision = after
        self._max_backlog = backlog
        self._batches: deque[tuple[StoreEvent, ...]] = deque([history] if history else [])
        self._backlog_size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._closed = False
        self._is_too_slow = False
        broadcaster.add(self)

    @property
    def revision(self) -> int:
        """All changes under the prefix up to this revision were delivered: the revision of a bookmark."""
        if self._batches:
            return max(self._delivered_revision, self._batches[0][0].record.revision - 1)
        return self._delivered_revision if self._closed else max(self._delivered_revision, self._broadcaster.revision)

    def push(self, events: tuple[StoreEvent, ...]) -> None:
        """Add changes, in order. Called by `WatchBroadcaster`."""
        if events[0].record.revision <= self._delivered_revision:  # the watch starts at a future revision
            events = tuple(event for event in events if event.record.revision > self._delivered_revision)
            if not events:
                return
        size = self._backlog_size + len(events)
        if self._max_backlog is not None and self._batches and size > self._max_backlog:
            self._is_too_slow = True
            self._batches.clear()
            self.close()
        else:
            self._batches.append(events)
            self._backlog_size = size
            self._wake()

    def close(self) -> None:
        """Stop the delivery. Idempotent."""
        self._closed = True
        self._broadcaster.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __enter__(self) -> "StoreWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> "StoreWatch":
        return self

    async def __anext__(self) -> tuple[StoreEvent, ...]:
        while not self._batches and not self._closed:
            await self._wait_for_change()
        return self._take_batches()

    async def next_batch(self, seconds: float) -> tuple[StoreEvent, ...] | None:
        """The next batch of the iteration, or None after this many seconds without one."""
        if not self._batches and not self._closed:
            self._set_timer(seconds)
            await self._wait_for_change()
            if not self._batches and not self._closed:
                return None
        return self._take_batches()

    def pending(self) -> tuple[StoreEvent, ...] | None:
        """The changes that wait, possibly none, without waiting for more; None if the watch has ended."""
        if self._batches:
            return self._take_batches()
        return None if self._closed else ()

    def _take_batches(self) -> tuple[StoreEvent, ...]:
        if not self._batches:
            if self._is_too_slow:
                raise WatcherTooSlow(f"more than {self._max_backlog} changes wait for a watch of {self.prefix or '/'}")
            raise StopAsyncIteration
        events = self._batches[0] if len(self._batches) == 1 else tuple(chain.from_iterable(self._batches))
        self._batches.clear()
        self._backlog_size = 0
        self._delivered_revision = events[-1].record.revision
        return events

    # One timer that is re-armed when it fires, instead of one per batch: most timers would never fire.
    def _set_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._on_timer, loop)
        else:
            self._wake()

    async def _wait_for_change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
