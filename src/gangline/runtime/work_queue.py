"""The work queue of a controller: keys to reconcile, each at most once.

An event only adds a key. A thousand events for one key are one reconcile, no key is reconciled twice at the same time, and
an event that arrives during a reconcile causes another one afterwards. The rules are those of client-go's work queue; a
lease replaces its Get and Done, so that Done cannot be forgotten.

Not thread-safe: all calls must come from one event loop.
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
    """The queue is closed and has no more keys: the worker should stop."""


class QueueMetrics(Protocol):
    """Receives the metrics of a queue. Called synchronously: must be fast and must not raise.

    `depth` counts the waiting keys and the leased ones that were added again.
    """

    def on_add(self, depth: int) -> None:
        """A key was added; not called if it was waiting already."""
        ...

    def on_lease(self, waited_seconds: float, depth: int) -> None:
        """A worker has leased a key, this long after it was added."""
        ...

    def on_release(self, worked_seconds: float) -> None:
        """A lease has ended."""
        ...

    def on_retry(self) -> None:
        """A key is retried after a delay of the limiter."""
        ...


class NoQueueMetrics:
    """Ignores all metrics."""

    def on_add(self, depth: int) -> None: ...
    def on_lease(self, waited_seconds: float, depth: int) -> None: ...
    def on_release(self, worked_seconds: float) -> None: ...
    def on_retry(self) -> None: ...


class _DelayedAdd(NamedTuple):
    due: float
    timer: Timer


class _KeyLease(AbstractAsyncContextManager[K], Generic[K]):
    """A lease of one key. A class, because a generator nearly doubles the cost of an add and lease."""

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
    """First in, first out. A key waits at most once and is leased at most once at a time.

    A key that is added during its lease waits again when the lease ends. Has no tasks, and one timer per delayed key.
    """

    def __init__(
        self, limiter: RetryLimiter, clock: Clock, *, metrics: QueueMetrics | None = None, name: str = ""
    ) -> None:
        self.name = name
        self._limiter = limiter
        self._clock = clock
        self._metrics: QueueMetrics = metrics or NoQueueMetrics()
        # The values below are the monotonic times at which the key was added, or its lease began.
        # Keys that can be leased, in the order in which they were added. Disjoint from `_leased`.
        self._waiting: OrderedDict[K, float] = OrderedDict()
        # Keys with a running lease.
        self._leased: dict[K, float] = {}
        # Keys added during their lease: a subset of `_leased`. They move to `_waiting` when the lease ends.
        # (client-go's dirty set is this and `_waiting` together.)
        self._dirty: dict[K, float] = {}
        # At most one timer per key, the earliest requested. Independent of the three above: an immediate add, a lease
        # or `forget` does not change it.
        self._delayed: dict[K, _DelayedAdd] = {}
        # Workers that wait for a key, longest first. Each future is set at most once, when there may be a key.
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        # Set while `_waiting` and `_leased` are both empty.
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that can be leased now."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no key is waiting or leased. Delayed keys do not count."""
        return not self._waiting and not self._leased

    def __repr__(self) -> str:
        counts = f"{len(self._waiting)} waiting, {len(self._leased)} leased, {len(self._delayed)} delayed"
        return f"<WorkQueue {self.name!r}: {counts}{', closed' if self._closed else ''}>"

    def add(self, key: K, *, after: timedelta = _NO_DELAY) -> None:
        """Add a key now, or after a delay. Does nothing if the key waits already, or the queue is closed.

        Of several delayed adds only the earliest is kept. An immediate add does not cancel a delayed one.
        """
        if self._closed:
            return
        if after > _NO_DELAY:
            self._add_after(key, after)
        else:
            self._add_now(key)

    def retry(self, key: K) -> None:
        """Add the key after the delay of the limiter. Does nothing if the queue is closed."""
        if self._closed:
            return
        self._metrics.on_retry()
        self.add(key, after=self._limiter.delay(key))

    def forget(self, key: K) -> None:
        """Reset the retry delay of a key after a success. Does not remove the key from the queue."""
        self._limiter.forget(key)

    def attempts(self, key: K) -> int:
        """How often the key was retried since it was last forgotten."""
        return self._limiter.attempts(key)

    def lease(self) -> AbstractAsyncContextManager[K]:
        """Wait for a key and lease it: ``async with queue.lease() as key``.

        The lease ends with the block; call `retry` to get the key again after an error. Cancel-safe: no key is lost when
        the wait is cancelled. Raises `QueueClosed` when the queue is closed and has no keys.
        """
        return _KeyLease(self._next_key, self._release)

    def close(self, *, drain: bool = False) -> None:
        """Accept no more keys: later adds and retries are ignored, and delayed keys are dropped. Idempotent.

        By default waiting keys are dropped, too, and every `lease()` raises `QueueClosed`. With `drain` the waiting keys,
        and those added during their lease, are leased first. Running leases continue; `wait_until_idle` waits for them.
        """
        self._closed = True
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        if not drain:
            self._waiting.clear()
            self._dirty.clear()
            self._update_idle()
        self._wake_all()

    async def wait_until_idle(self) -> None:
        """Wait until no key is waiting or leased. Delayed keys do not count. Cancel-safe."""
        while not self.is_idle:
            await self._idle_event.wait()

    def oldest_lease_seconds(self) -> float:
        """How long the oldest running lease has been held; 0 without leases."""
        now = self._clock.monotonic()
        return now - min(self._leased.values(), default=now)

    def unfinished_seconds(self) -> float:
        """The durations of all running leases, summed. Grows without end when a worker is stuck."""
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
            # This may have been the last key: waiting workers must check whether to stop.
            self._wake_all()

    def _update_idle(self) -> None:
        if self.is_idle:
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
        """Wait until there may be a key; another worker may lease it first."""
        worker = asyncio.get_running_loop().create_future()
        self._idle_workers.append(worker)
        try:
            await worker
        except asyncio.CancelledError:
            if worker.cancelled():
                with suppress(ValueError):
                    self._idle_workers.remove(worker)
            elif self._waiting:
                # Woken and cancelled at the same time: wake another worker for the key.
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
