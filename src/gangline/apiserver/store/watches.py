"""Telling watchers: every change once, in order, without a task or a copy for each of them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import chain

from gangline.apiserver.store.errors import TooSlow
from gangline.apiserver.store.records import Event


class Watches:
    """All who watch. Those with the same prefix share the work of picking the events."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._groups: dict[str, set[Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, watch: "Watch") -> None:
        self._groups.setdefault(watch.prefix, set()).add(watch)

    def discard(self, watch: "Watch") -> None:
        group = self._groups.get(watch.prefix, set())
        group.discard(watch)
        if not group:
            self._groups.pop(watch.prefix, None)

    def tell(self, events: Sequence[Event], revision: int) -> None:
        """Changes that just became visible; `revision` is now the newest."""
        self.revision = revision
        # Copies, because a watch that is too slow leaves.
        for prefix, group in list(self._groups.items()):
            told = tuple(event for event in events if event.record.path.startswith(prefix))
            if told:
                for watch in list(group):
                    watch.push(told)

    def end(self) -> None:
        """No more changes will come: whoever waits gets to the end of the iteration."""
        for watch in [*chain.from_iterable(self._groups.values())]:
            watch.close()


class Watch:
    """Changes under a prefix after a revision: an endless iterator of batches, for one reader.

    Batches are never empty; what was committed together arrives together. Nothing is missing, doubled or out of
    order. Use it as a context manager, or `close` it. Waiting is cancel-safe: nothing is lost. Ends when it or the
    store is closed; raises `TooSlow` when more than `backlog` changes wait (history that it started with aside).
    """

    def __init__(
        self, watches: Watches, prefix: str, after: int, history: tuple[Event, ...], backlog: int
    ) -> None:
        self.prefix = prefix
        self._watches = watches
        self._after = after
        self._backlog = backlog
        self._batches: deque[tuple[Event, ...]] = deque([history] if history else [])
        self._waiting = 0
        self._reader: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._closed = False
        self._too_slow = False
        watches.add(self)

    @property
    def revision(self) -> int:
        """Every change under the prefix up to here was given out: what a bookmark may say."""
        if self._batches:
            return max(self._after, self._batches[0][0].record.revision - 1)
        return self._after if self._closed else max(self._after, self._watches.revision)

    def push(self, events: tuple[Event, ...]) -> None:
        """Add changes, in order. Called by `Watches`."""
        if events[0].record.revision <= self._after:  # it waits for a revision that is yet to come
            events = tuple(event for event in events if event.record.revision > self._after)
            if not events:
                return
        self._waiting += len(events)
        if self._waiting > self._backlog:
            self._too_slow = True
            self._batches.clear()
            self.close()
        else:
            self._batches.append(events)
            self._wake()

    def close(self) -> None:
        """Get no more. Idempotent."""
        self._closed = True
        self._watches.discard(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        while not self._batches and not self._closed:
            await self._change()
        return self._taken()

    async def within(self, seconds: float) -> tuple[Event, ...] | None:
        """The next batch as iteration gives it, or None when there is none for so long."""
        if not self._batches and not self._closed:
            self._set_alarm(seconds)
            await self._change()
            if not self._batches and not self._closed:
                return None
        return self._taken()

    def _taken(self) -> tuple[Event, ...]:
        if not self._batches:
            if self._too_slow:
                raise TooSlow(f"more than {self._backlog} changes wait for a watch of {self.prefix or '/'}")
            raise StopAsyncIteration
        events = self._batches[0] if len(self._batches) == 1 else tuple(chain.from_iterable(self._batches))
        self._batches.clear()
        self._waiting = 0
        self._after = events[-1].record.revision
        return events

    # One timer that is moved when it rings, and not one for each batch: most are never needed.
    def _set_alarm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._alarm is not None and self._alarm.when() > self._deadline:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = loop.call_at(self._deadline, self._rung, loop)

    def _rung(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        if self._reader is None:
            return
        if loop.time() < self._deadline:
            self._alarm = loop.call_at(self._deadline, self._rung, loop)
        else:
            self._wake()

    async def _change(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None
