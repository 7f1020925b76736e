"""Events: what a person sees under `kubectl describe`. Written in the background, aggregated, and never in the way.

`record` only notes. `run` writes, and keeps the server from being flooded, with client-go's numbers:

- The same thing said again about the same object (same type, reason and note) is one Event whose `series` counts.
  Repeats that arrive while a write is under way are one patch.
- After ten different notes with the same reason within ten minutes, further ones become one combined Event.
- Every object may be the subject of 25 writes at once and one more every five minutes; what exceeds that is still
  counted in its series, but not sent.

Events are best effort. Whatever cannot be noted or written is dropped, counted, and never raised.
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
from gangline.api.scheme import CORE, Scheme, UnknownKind
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
from gangline.runtime.event_correlator import Correlator, Noted, Series, truncated

log = logging.getLogger(__name__)

T = TypeVar("T")

CAPACITY = 1000
TRIES, FIRST_DELAY = 5, timedelta(seconds=1)
FLUSH = timedelta(seconds=5)
LOOK, LATEST = timedelta(milliseconds=100), timedelta(seconds=5)
"""How often it is looked whether there is still other work, and how long what happened waits for that at most."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class Outcome(StrEnum):
    """What became of a recorded event, for metrics."""

    CREATED = "created"
    PATCHED = "patched"
    OVERFLOW = "overflow"
    SPAM = "spam"
    REFUSED = "refused"
    FAILED = "failed"


class EventWriter(Protocol):
    """What recording needs of a `Client`."""

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = ...) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: JSON) -> T: ...


class Recorder:
    """Notes events at once, writes them in `run`. Not thread-safe."""

    def __init__(
        self,
        writer: EventWriter,
        controller: str,
        instance: str,
        clock: Clock,
        *,
        scheme: Scheme = CORE,
        capacity: int = CAPACITY,
        delay: timedelta = timedelta(),
        busy: Callable[[], bool] = lambda: False,
        count: Callable[[Outcome], object] = lambda outcome: None,
    ) -> None:
        """`controller` is a qualified name such as `gangline.dev/operator`; `instance` is this process.

        With a `delay` events are written that much later, so that they do not compete with the work they tell of; and
        while `busy`, all but warnings wait a little longer.
        """
        self.dropped = 0
        self._writer, self._clock, self._scheme, self._count = writer, clock, scheme, count
        self._controller, self._instance = controller, instance[:128]
        self._capacity, self._delay, self._busy = capacity, delay, busy
        self._noted: deque[Noted] = deque()
        self._wake = asyncio.Event()
        self._correlator = Correlator(clock)
        # Series with something to write, oldest first. A series is in it at most once.
        self._unwritten: OrderedDict[Key, Series] = OrderedDict()

    def record(
        self,
        regarding: ObjectReference | Object,
        type: str,  # noqa: A002 - Kubernetes' word
        reason: str,
        note: str,
        action: str = "",
    ) -> None:
        """Note an event. Never waits, never raises: with a full queue, or of an unknown kind, it is dropped."""
        reference = self._reference(regarding)
        if reference is None or len(self._noted) >= self._capacity:
            self._drop(Outcome.OVERFLOW if reference else Outcome.REFUSED, reason)
            return
        noted = Noted(
            reference,
            type,
            truncated(reason)[:128],
            truncated(note),
            # The server wants one; what was done is the best guess when nobody said what was tried.
            truncated(action or reason)[:128],
            self._clock.now(),
            self._clock.monotonic(),
        )
        self._noted.append(noted)
        self._wake.set()

    async def run(self) -> Never:
        """Write until cancelled; then write what is left for at most five seconds."""
        try:
            while True:
                await self._wake.wait()
                if self._delay:
                    await self._clock.sleep(self._delay)
                await self._write_all(TRIES, patient=True)
        finally:
            with suppress(TimeoutError):
                async with time_limit(FLUSH, self._clock):
                    await self._write_all(1)
            for _ in (*self._noted, *self._unwritten):
                self._drop(Outcome.FAILED, "shutdown")

    async def _write_all(self, tries: int, *, patient: bool = False) -> None:
        while self._noted or self._unwritten:
            self._wake.clear()
            self._correlate()
            waits = patient and self._busy()
            due = next((each for each in self._unwritten.values() if not waits or self._is_due(each)), None)
            if due is not None:
                await self._write_one(due, tries)
            elif self._unwritten:
                await self._clock.sleep(LOOK)

    def _is_due(self, series: Series) -> bool:
        """Whether it must not wait for other work."""
        first = series.first
        waited = self._clock.monotonic() - first.since
        return first.type == EventType.WARNING or waited >= LATEST.total_seconds()

    def _correlate(self) -> None:
        while self._noted:
            noted = self._noted.popleft()
            series = self._correlator.take(noted)
            if series is None:
                self._drop(Outcome.SPAM, noted.reason)
            else:
                self._unwritten[series.key] = series

    async def _write_one(self, series: Series, tries: int) -> None:
        delay = FIRST_DELAY
        for left in reversed(range(tries)):
            try:
                await self._write(series)
            except (Unreachable, ConfigError, ServerError, TooManyRequests) as error:
                if not left:
                    self._give_up(series, Outcome.FAILED, error)
                    return
                await self._clock.sleep(delay)
                delay *= 2
            except (KubeError, InputError) as error:
                self._give_up(series, Outcome.REFUSED, error)
                self._correlator.forget(series)
                return
            else:
                break
        if series.written == series.count:
            del self._unwritten[series.key]

    async def _write(self, series: Series) -> None:
        if series.written:
            await self._patch(series)
        else:
            await self._create(series)

    async def _create(self, series: Series) -> None:
        # The name is random: if it is taken, an earlier attempt of ours got through and its answer did not.
        with suppress(AlreadyExists):
            await self._writer.create(Event, self._body(series), namespace=series.key.namespace)
        series.written = 1
        self._count(Outcome.CREATED)

    async def _patch(self, series: Series) -> None:
        count = series.count
        seen = to_json(EventSeries(count=count, last_observed_time=series.last.at))
        try:
            await self._writer.patch(Event, series.key, {"series": seen})
        except NotFound:
            # Expired, or deleted by hand: begin anew.
            await self._restart(series)
            return
        series.written = count
        self._count(Outcome.PATCHED)

    async def _restart(self, series: Series) -> None:
        series.first, series.count, series.written = series.last, 1, 0
        await self._create(series)

    def _body(self, series: Series) -> JSON:
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

    def _reference(self, regarding: ObjectReference | Object) -> ObjectReference | None:
        if isinstance(regarding, ObjectReference):
            return regarding
        metadata = regarding.metadata
        api_version, kind = regarding.api_version, regarding.kind
        if not kind:
            # Items of a list do not say what they are; their type does.
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

    def _give_up(self, series: Series, outcome: Outcome, error: KubeError | InputError) -> None:
        del self._unwritten[series.key]
        self._drop(outcome, series.first.reason, error)

    def _drop(self, outcome: Outcome, reason: str, error: KubeError | InputError | None = None) -> None:
        self.dropped += 1
        self._count(outcome)
        # A namespace that is going away, or a role without events: not worth a line each.
        expected = error is None or isinstance(error, (Forbidden, NotFound))
        fields = {"outcome": outcome.value, "reason": reason, "error": str(error or "")}
        log.log(logging.DEBUG if expected else logging.WARNING, "event dropped", extra=fields)
