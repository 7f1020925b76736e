"""Records Events, which `kubectl describe` shows. They are aggregated, and written in the background.

`record` only queues an event. `run` writes, with the limits of client-go:

- The same event about the same object (same type, reason and note) again is one Event object whose `series` counts.
  Repeats that arrive during a write are one patch.
- After ten different notes with the same reason within ten minutes, further ones become one combined Event.
- An object may have 25 writes at once and one more every five minutes; events beyond that are counted in their series,
  but not written.

Events are best effort: one that cannot be queued or written is dropped and counted. Errors are not raised.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Never, Protocol, TypeVar

from gangline.api.codec.codec import to_json
from gangline.api.core import Event, EventSeries, ObjectReference
from gangline.api.meta import JSON, Key, Object, ObjectMeta
from gangline.api.scheme import CORE_SCHEME, Scheme, UnknownKind
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import time_limit
from gangline.kube.client import Kind
from gangline.kube.errors import (
    AlreadyExists,
    ConfigError,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from gangline.runtime.event_correlator import EventCorrelator, PendingEvent, TrackedSeries, truncated_note

log = logging.getLogger(__name__)

T = TypeVar("T")

QUEUE_CAPACITY = 1000
MAX_UNWRITTEN_SERIES = 10 * QUEUE_CAPACITY
MAX_ATTEMPTS, FIRST_RETRY_DELAY = 5, timedelta(seconds=1)
FLUSH_TIMEOUT = timedelta(seconds=5)
BUSY_POLL_INTERVAL, MAX_BUSY_WAIT = timedelta(milliseconds=100), timedelta(seconds=5)
"""How often `busy` is called again while it returns True, and how long events wait for it at most."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class RecordResult(StrEnum):
    """The result of recording an event, for metrics."""

    CREATED = "created"
    PATCHED = "patched"
    OVERFLOW = "overflow"
    SPAM = "spam"
    REFUSED = "refused"
    FAILED = "failed"


class EventWriter(Protocol):
    """The part of a `Client` that writes Events."""

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = ...) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: JSON) -> T: ...


class EventRecorder:
    """Queues events in `record` and writes them in `run`. Not thread-safe."""

    def __init__(
        self,
        writer: EventWriter,
        controller: str,
        instance: str,
        clock: Clock,
        *,
        scheme: Scheme = CORE_SCHEME,
        capacity: int = QUEUE_CAPACITY,
        delay: timedelta = timedelta(),
        busy: Callable[[], bool] = lambda: False,
        count: Callable[[RecordResult], object] = lambda outcome: None,
    ) -> None:
        """`controller` is a qualified name such as `gangline.dev/operator`; `instance` names this process.

        With a `delay`, events are written that much later, so that they do not compete with other requests. While `busy`
        returns True, all but warnings wait a little longer. `count` is called with the result of each event.
        """
        self.dropped_count = 0
        self._writer, self._clock, self._scheme, self._count_result = writer, clock, scheme, count
        self._controller, self._instance = controller, instance[:128]
        self._capacity, self._delay, self._is_busy = capacity, delay, busy
        self._pending: deque[PendingEvent] = deque()
        self._wake = asyncio.Event()
        self._correlator = EventCorrelator(clock)
        # Series with unwritten events, oldest first.
        self._unwritten: OrderedDict[Key, TrackedSeries] = OrderedDict()

    def record(
        self,
        regarding: ObjectReference | Object,
        type: str,  # noqa: A002 - Kubernetes' word
        reason: str,
        note: str,
        action: str = "",
    ) -> None:
        """Queue an event. Never waits or raises: drops the event if the queue is full or the kind unknown."""
        reference = self._object_reference(regarding)
        if reference is None or len(self._pending) >= self._capacity:
            self._drop(RecordResult.OVERFLOW if reference else RecordResult.REFUSED, reason)
            return
        event = PendingEvent(
            reference,
            type,
            truncated_note(reason)[:128],
            truncated_note(note),
            # The server requires an action; the reason is the best guess.
            truncated_note(action or reason)[:128],
            self._clock.now(),
            self._clock.monotonic(),
        )
        self._pending.append(event)
        self._wake.set()

    async def run(self) -> Never:
        """Write events until cancelled; then write the remaining ones for at most five seconds."""
        try:
            while True:
                await self._wake.wait()
                if self._delay:
                    await self._clock.sleep(self._delay)
                await self._write_all(MAX_ATTEMPTS, patient=True)
        finally:
            with suppress(TimeoutError):
                async with time_limit(FLUSH_TIMEOUT, self._clock):
                    await self._write_all(1)
            for _ in (*self._pending, *self._unwritten):
                self._drop(RecordResult.FAILED, "shutdown")

    async def _write_all(self, attempts: int, *, patient: bool = False) -> None:
        while self._pending or self._unwritten:
            self._wake.clear()
            self._correlate()
            wait = patient and self._is_busy()
            due = next((series for series in self._unwritten.values() if not wait or self._is_due(series)), None)
            if due is not None:
                await self._write_with_retries(due, attempts)
            elif self._unwritten:
                await self._clock.sleep(BUSY_POLL_INTERVAL)

    def _is_due(self, series: TrackedSeries) -> bool:
        """Whether a series must be written although the process is busy: a warning, or an old event."""
        first = series.first
        age = self._clock.monotonic() - first.monotonic_at
        return first.type == EventType.WARNING or age >= MAX_BUSY_WAIT.total_seconds()

    def _correlate(self) -> None:
        while self._pending and len(self._unwritten) < MAX_UNWRITTEN_SERIES:
            event = self._pending.popleft()
            series = self._correlator.correlate(event)
            if series is None:
                self._drop(RecordResult.SPAM, event.reason)
            else:
                self._unwritten[series.key] = series

    async def _write_with_retries(self, series: TrackedSeries, attempts: int) -> None:
        delay = FIRST_RETRY_DELAY
        for remaining in reversed(range(attempts)):
            try:
                await self._write(series)
            except (Unreachable, ConfigError, ServerError, TooManyRequests) as error:
                if not remaining:
                    self._abandon(series, RecordResult.FAILED, error)
                    return
                await self._clock.sleep(delay)
                delay *= 2
            except (KubeError, InputError) as error:
                self._abandon(series, RecordResult.REFUSED, error)
                self._correlator.forget(series)
                return
            else:
                break
        if series.written_count == series.count:
            del self._unwritten[series.key]

    async def _write(self, series: TrackedSeries) -> None:
        if series.written_count:
            await self._patch(series)
        else:
            await self._create(series)

    async def _create(self, series: TrackedSeries) -> None:
        # The name is random: if it exists, an earlier attempt succeeded and its response was lost.
        with suppress(AlreadyExists):
            await self._writer.create(Event, self._event_body(series), namespace=series.key.namespace)
        series.written_count = 1
        self._count_result(RecordResult.CREATED)

    async def _patch(self, series: TrackedSeries) -> None:
        count = series.count
        series_json = to_json(EventSeries(count=count, last_observed_time=series.last.at))
        try:
            await self._writer.patch(Event, series.key, {"series": series_json})
        except NotFound:
            # The Event has expired or was deleted: create a new one.
            await self._start_new_series(series)
            return
        series.written_count = count
        self._count_result(RecordResult.PATCHED)

    async def _start_new_series(self, series: TrackedSeries) -> None:
        series.first, series.count, series.written_count = series.last, 1, 0
        await self._create(series)

    def _event_body(self, series: TrackedSeries) -> JSON:
        first = series.first
        event = Event(
            metadata=ObjectMeta(name=series.key.name, namespace=series.key.namespace),
            event_time=first.at,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=first.action,
            reason=first.reason,
            regarding=first.regarding,
            note=first.note,
            type=first.type,
        )
        return to_json(event)

    def _object_reference(self, regarding: ObjectReference | Object) -> ObjectReference | None:
        if isinstance(regarding, ObjectReference):
            return regarding
        metadata = regarding.metadata
        api_version, kind = regarding.api_version, regarding.kind
        if not kind:
            # Items of a list have no kind; their type does.
            try:
                resource = self._scheme.of(type(regarding))
            except UnknownKind:
                return None
            api_version, kind = resource.api_version, resource.kind
        return ObjectReference(
            api_version=api_version,
            kind=kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )

    def _abandon(self, series: TrackedSeries, outcome: RecordResult, error: KubeError | InputError) -> None:
        del self._unwritten[series.key]
        self._drop(outcome, series.first.reason, error)

    def _drop(self, outcome: RecordResult, reason: str, error: KubeError | InputError | None = None) -> None:
        self.dropped_count += 1
        self._count_result(outcome)
        # A namespace that is being deleted, or a role without permission for events: not worth a warning each.
        expected = error is None or isinstance(error, (Forbidden, NotFound))
        fields = {"outcome": outcome.value, "reason": reason, "error": str(error or "")}
        log.log(logging.DEBUG if expected else logging.WARNING, "event dropped", extra=fields)
