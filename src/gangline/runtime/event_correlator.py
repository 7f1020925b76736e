"""Which Event something belongs to that was said about an object: a new one, a repeat, or one of too many.

Plain data and a clock, no I/O. The numbers are client-go's.
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
    """One call of `record`."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str
    at: datetime
    monotonic_at: float


class TrackedSeries:
    """One Event on the server, or about to be."""

    def __init__(self, first: PendingEvent) -> None:
        self.first = first
        self.last = first
        self.count = 1
        # What the server has: 0 before the Event is created.
        self.written_count = 0
        namespace = first.regarding.namespace or "default"
        self.key = Key(namespace, event_name(first.regarding.name))

    def add(self, noted: PendingEvent) -> None:
        self.last = noted
        self.count += 1


class EventCorrelator:
    """Finds the series an event belongs to. Remembers a bounded number of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: _LruDict[Hashable, TrackedSeries] = _LruDict()
        # Per subject and reason: the different notes seen, and when the last one was.
        self._notes: _LruDict[Hashable, tuple[set[str], float]] = _LruDict()
        self._buckets: _LruDict[str, TokenBucket] = _LruDict()

    def correlate(self, noted: PendingEvent) -> TrackedSeries | None:
        """Count the event. None: it is one too many about this object, and should not be sent now."""
        similar = (_subject_key(noted.regarding), noted.type, noted.reason, noted.action)
        if self._exceeds_similar(similar, noted):
            series = self._counted_series(similar, _combined_event(noted))
        else:
            series = self._counted_series((*similar, noted.note), noted)
        return series if self._take_token(_subject_key(noted.regarding)) else None

    def forget(self, series: TrackedSeries) -> None:
        """The server does not want it: what comes next starts a new Event."""
        self._series.drop_value(series)

    def _exceeds_similar(self, similar: Hashable, noted: PendingEvent) -> bool:
        notes, last = self._notes.get(similar) or (set[str](), noted.monotonic_at)
        if noted.monotonic_at - last > SERIES_WINDOW.total_seconds():
            notes = set()
        if len(notes) < MAX_SIMILAR_NOTES:
            notes.add(noted.note)
        self._notes.put(similar, (notes, noted.monotonic_at))
        return noted.note not in notes

    def _counted_series(self, identity: Hashable, noted: PendingEvent) -> TrackedSeries:
        series = self._series.get(identity)
        if series is None or noted.monotonic_at - series.last.monotonic_at > SERIES_WINDOW.total_seconds():
            series = TrackedSeries(noted)
        else:
            series.add(noted)
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
    """A dict of the latest `MAX_REMEMBERED_SERIES` entries."""

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
        for key in [key for key, known in self._entries.items() if known is value]:
            del self._entries[key]


def event_name(subject: str) -> str:
    """`<object>.<hex>`, unique, and never longer than a name may be."""
    suffix = f".{secrets.token_hex(8)}"
    return subject[: MAX_NAME_LENGTH - len(suffix)].rstrip("-.") + suffix


def truncated_note(note: str) -> str:
    """At most as many bytes as a server takes, cut between characters. What is no text (half a pair) becomes `?`."""
    raw = note.encode(errors="replace")
    if len(raw) <= MAX_NOTE_BYTES:
        return raw.decode()
    return raw[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _subject_key(regarding: ObjectReference) -> str:
    return regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}"


def _combined_event(noted: PendingEvent) -> PendingEvent:
    note = truncated_note(f"(combined from similar events): {noted.note}")
    return msgspec.structs.replace(noted, note=note)
