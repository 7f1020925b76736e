"""The work queue of a controller: keys that need a look, each at most once.

Events only say *look at this key*. A thousand events for one key are one piece of work, no key is worked on
twice at the same time, and an event that arrives during the work causes another look afterwards. The rules
are those of client-go's work queue; leases replace its get and done, which one can forget to pair.

Not thread-safe: all calls belong to one event loop.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from gangline.base.clock import Clock, Timer
from gangline.base.errors import GanglineError
from gangline.runtime.rate_limits import RetryLimiter

K = TypeVar("K", bound=Hashable)

_NO_DELAY = timedelta()


class QueueClosed(GanglineError):
    """The queue was closed and has no more keys to lease: a worker's sign to stop."""


class QueueMetrics(Protocol):
    """What a queue reports. Called in line, so it must be quick and must not raise.

    `depth` counts the keys that are owed a lease: those waiting and those that will come back.
    """

    def on_add(self, depth: int) -> None:
        """A key is now owed a lease; adds that changed nothing are not reported."""
        ...

    def on_lease(self, waited_seconds: float, depth: int) -> None:
        """A worker took a key, this long after it was added."""
        ...

    def on_release(self, worked_seconds: float) -> None:
        """A lease ended, well or not."""
        ...

    def on_retry(self) -> None:
        """A key was handed to the limiter."""
        ...


class NoQueueMetrics:
    """Reports nothing."""

    def on_add(self, depth: int) -> None: ...
    def on_lease(self, waited_seconds: float, depth: int) -> None: ...
    def on_release(self, worked_seconds: float) -> None: ...
    def on_retry(self) -> None: ...


class _DelayedAdd(NamedTuple):
    due: float
    timer: Timer


class _KeyLease(AbstractAsyncContextManager[K], Generic[K]):
    """One use of one key. A class, since a generator nearly doubles the cost of an add and lease."""

    __slots__ = ("_key", "_next", "_release")
    _key: K

    def __init__(self, take: Callable[[], Awaitable[K]], release: Callable[[K], None]) -> None:
        self._next, self._release = take, release

    async def __aenter__(self) -> K:
        self._key = await self._next()
        return self._key

    async def __aexit__(self, *exc_info: object) -> None:
        self._release(self._key)


class WorkQueue(Generic[K]):
    """First in, first out. A key waits at most once, is leased at most once; added while leased, it comes back.

    Inert until used: no task, and a timer only for each key that is delayed.
    """

    def __init__(
        self, limiter: RetryLimiter, clock: Clock, *, metrics: QueueMetrics | None = None, name: str = ""
    ) -> None:
        self.name = name
        self._limiter = limiter
        self._clock = clock
        self._metrics: QueueMetrics = metrics or NoQueueMetrics()
        # The values below are the monotonic times at which the key was added, or its lease began.
        # Keys a worker may take, in the order of their adding. Never shares a key with `_leased`.
        self._waiting: OrderedDict[K, float] = OrderedDict()
        # Keys being worked on, one lease each.
        self._leased: dict[K, float] = {}
        # Keys added during their lease: always a subset of `_leased`. They move to `_waiting` when it ends.
        # (client-go's dirty set is this and `_waiting` together.)
        self._dirty: dict[K, float] = {}
        # At most one pending timer for each key, the earliest asked for. Independent of the three above: an
        # immediate add, a lease or `forget` leaves it alone.
        self._delayed: dict[K, _DelayedAdd] = {}
        # Workers with nothing to do, longest first. Each future is set at most once, when a key may be there.
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        # Set exactly while `_waiting` and `_leased` are both empty.
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._closed = False

    def __len__(self) -> int:
        """How many keys could be leased right now."""
        return len(self._waiting)

    def __repr__(self) -> str:
        counts = f"{len(self._waiting)} waiting, {len(self._leased)} leased, {len(self._delayed)} delayed"
        return f"<Queue {self.name!r}: {counts}{', closed' if self._closed else ''}>"

    def add(self, key: K, *, after: timedelta = _NO_DELAY) -> None:
        """Ask for a lease of this key, now or later. Idempotent while the key waits; ignored once closed.

        Of several delayed adds the earliest counts, and serves the later ones too. An immediate add does not
        cancel a delayed one: who asked to be woken at a time is woken at that time, or before it.
        """
        if self._closed:
            return
        if after > _NO_DELAY:
            self._add_after(key, after)
        else:
            self._add_now(key)

    def retry(self, key: K) -> None:
        """Add the key again after the delay its limiter demands. Ignored once closed."""
        if self._closed:
            return
        self._metrics.on_retry()
        self.add(key, after=self._limiter.delay(key))

    def forget(self, key: K) -> None:
        """The key did well: its next `retry` starts with the shortest delay. Does not take it off the queue."""
        self._limiter.forget(key)

    def attempts(self, key: K) -> int:
        """How often the key was retried since it was last forgotten."""
        return self._limiter.attempts(key)

    def lease(self) -> AbstractAsyncContextManager[K]:
        """Wait for a key and hold it: ``async with queue.lease() as key``.

        The lease ends with the block, whatever happens in it; to see a key again after an error, `retry` it.
        Cancel-safe: cancelled while waiting, no key is lost. Raises `QueueClosed` when the queue is closed and
        nothing is left.
        """
        return _KeyLease(self._next_key, self._release)

    def close(self, *, drain: bool = False) -> None:
        """Take no more keys: adds and retries are ignored from now on, delayed keys are dropped. Idempotent.

        By default waiting keys are dropped too and every `lease()`, pending or to come, raises `QueueClosed`.
        With `drain` the keys already owed a lease are leased first, those that come back included. Leases
        under way are not disturbed; `idle` waits for them.
        """
        self._closed = True
        for alarm in self._delayed.values():
            alarm.timer.cancel()
        self._delayed.clear()
        if not drain:
            self._waiting.clear()
            self._dirty.clear()
            self._update_idle()
        self._wake_all()

    async def wait_until_idle(self) -> None:
        """Return once nothing is waiting and nothing is leased. Delayed keys do not count. Cancel-safe."""
        while self._waiting or self._leased:
            await self._idle_event.wait()

    def oldest_lease_seconds(self) -> float:
        """For how many seconds the longest lease under way has been held; 0 without leases."""
        now = self._clock.monotonic()
        return now - min(self._leased.values(), default=now)

    def unfinished_seconds(self) -> float:
        """Seconds of work under way, summed over all leases. Grows without end when a worker is stuck."""
        now = self._clock.monotonic()
        return sum(now - since for since in self._leased.values())

    def _add_now(self, key: K) -> None:
        if key in self._waiting or key in self._dirty:
            return
        if key in self._leased:
            self._dirty[key] = self._clock.monotonic()
        else:
            self._waiting[key] = self._clock.monotonic()
            self._idle_event.clear()
            self._wake_one()
        self._metrics.on_add(len(self._waiting) + len(self._dirty))

    async def _next_key(self) -> K:
        while not self._waiting:
            if self._closed and not self._dirty:
                raise QueueClosed(f"queue {self.name!r} is closed")
            await self._wait_for_work()
        return self._lease_first()

    def _lease_first(self) -> K:
        key, added = self._waiting.popitem(last=False)
        now = self._leased[key] = self._clock.monotonic()
        self._metrics.on_lease(now - added, len(self._waiting) + len(self._dirty))
        return key

    def _release(self, key: K) -> None:
        self._metrics.on_release(self._clock.monotonic() - self._leased.pop(key))
        added = self._dirty.pop(key, None)
        if added is not None:
            self._waiting[key] = added
            self._wake_one()
        self._update_idle()
        if self._closed:
            # The last key to come back may have gone: those who wait for it must look again.
            self._wake_all()

    def _update_idle(self) -> None:
        if not self._waiting and not self._leased:
            self._idle_event.set()

    def _add_after(self, key: K, after: timedelta) -> None:
        due = self._clock.monotonic() + after.total_seconds()
        pending = self._delayed.get(key)
        if pending is not None:
            if pending.due <= due:
                return
            pending.timer.cancel()
        self._delayed[key] = _DelayedAdd(due, self._clock.call_later(after, partial(self._end_delay, key)))

    def _end_delay(self, key: K) -> None:
        del self._delayed[key]
        self._add_now(key)

    async def _wait_for_work(self) -> None:
        """Sleep until there may be a key. Not a promise: a busy worker may come first and take it."""
        worker = asyncio.get_running_loop().create_future()
        self._idle_workers.append(worker)
        try:
            await worker
        except asyncio.CancelledError:
            if worker.cancelled():
                with suppress(ValueError):
                    self._idle_workers.remove(worker)
            elif self._waiting:
                # Woken and cancelled in one breath: pass the call on, or the key waits while others sleep.
                self._wake_one()
            raise

    def _wake_one(self) -> None:
        while self._idle_workers:
            worker = self._idle_workers.popleft()
            if not worker.done():  # else it was cancelled and has not run since
                worker.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._idle_workers:
            self._wake_one()
