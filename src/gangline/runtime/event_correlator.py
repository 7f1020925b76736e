"""Assigns recorded events to Event objects: a new one, one that counts repeats, or none if there are too many.

No I/O. The limits are client-go's.
"""

import secrets
from collections import OrderedDict
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from gangline.api.core import ObjectReference
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.runtime.rate_limits import TokenBucket

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_REMEMBERED_SERIES = 4096
SERIES_WINDOW = timedelta(minutes=10)
MAX_SIMILAR_NOTES = 10
SPAM_BURST, SPAM_REFILL = 25, timedelta(minutes=5)
MAX_NOTE_BYTES = 1024
MAX_NAME_LENGTH = 253


class PendingEvent(msgspec.Struct, frozen=True):
    """An event passed to `EventRecorder.record`."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str
    at: datetime
    monotonic_at: float


class TrackedSeries:
    """An Event object that is on the server or will be created, and how often it occurred."""

    def __init__(self, first: PendingEvent) -> None:
        self.first = first
        self.last = first
        self.count = 1
        # The count that the server has; 0 before the Event is created.
        self.written_count = 0
        namespace = first.regarding.namespace or "default"
        self.key = Key(namespace, event_name(first.regarding.name))

    def add(self, event: PendingEvent) -> None:
        self.last = event
        self.count += 1


class EventCorrelator:
    """Finds the series of an event. Remembers a bounded number of series."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: _LruDict[Hashable, TrackedSeries] = _LruDict()
        # Per object and reason: the different notes, and the time of the last one.
        self._notes: _LruDict[Hashable, tuple[set[str], float]] = _LruDict()
        self._buckets: _LruDict[str, TokenBucket] = _LruDict()

    def correlate(self, event: PendingEvent) -> TrackedSeries | None:
        """Count an event in its series. Returns None if too many Events of this object were written already."""
        similar = (_subject_key(event.regarding), event.type, event.reason, event.action)
        if self._exceeds_similar(similar, event):
            series = self._counted_series(similar, _combined_event(event))
        else:
            series = self._counted_series((*similar, event.note), event)
        return series if self._take_token(_subject_key(event.regarding)) else None

    def forget(self, series: TrackedSeries) -> None:
        """Drop a series that the server refused: the next event starts a new one."""
        self._series.drop_value(series)

    def _exceeds_similar(self, similar: Hashable, event: PendingEvent) -> bool:
        notes, last = self._notes.get(similar) or (set[str](), event.monotonic_at)
        if event.monotonic_at - last > SERIES_WINDOW.total_seconds():
            notes = set()
        if len(notes) < MAX_SIMILAR_NOTES:
            notes.add(event.note)
        self._notes.put(similar, (notes, event.monotonic_at))
        return event.note not in notes

    def _counted_series(self, identity: Hashable, event: PendingEvent) -> TrackedSeries:
        series = self._series.get(identity)
        if series is None or event.monotonic_at - series.last.monotonic_at > SERIES_WINDOW.total_seconds():
            series = TrackedSeries(event)
        else:
            series.add(event)
        self._series.put(identity, series)
        return series

    def _take_token(self, subject: str) -> bool:
        bucket = self._buckets.get(subject)
        if bucket is None:
            bucket = TokenBucket(self._clock, rate=1 / SPAM_REFILL.total_seconds(), burst=SPAM_BURST)
        self._buckets.put(subject, bucket)
        if bucket.ready_in() > timedelta():
            return False
        bucket.delay()
        return True


class _LruDict(Generic[K, V]):
    """A dict that keeps the `MAX_REMEMBERED_SERIES` entries written last."""

    def __init__(self) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > MAX_REMEMBERED_SERIES:
            self._entries.popitem(last=False)

    def drop_value(self, value: V) -> None:
        for key in [key for key, entry in self._entries.items() if entry is value]:
            del self._entries[key]


def event_name(subject: str) -> str:
    """A unique name `<object>.<hex>` of at most `MAX_NAME_LENGTH` characters."""
    suffix = f".{secrets.token_hex(8)}"
    return subject[: MAX_NAME_LENGTH - len(suffix)].rstrip("-.") + suffix


def truncated_note(note: str) -> str:
    """The note, cut to `MAX_NOTE_BYTES` between characters. Characters that UTF-8 cannot encode become `?`."""
    raw = note.encode(errors="replace")
    if len(raw) <= MAX_NOTE_BYTES:
        return raw.decode()
    return raw[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _subject_key(regarding: ObjectReference) -> str:
    return regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}"


def _combined_event(event: PendingEvent) -> PendingEvent:
    note = truncated_note(f"(combined from similar events): {event.note}")
    return msgspec.structs.replace(event, note=note)
