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
from gangline.runtime.limits import TokenBucket

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

REMEMBERED = 4096
WINDOW = timedelta(minutes=10)
SIMILAR = 10
BURST, REFILL = 25, timedelta(minutes=5)
NOTE_BYTES = 1024
NAME_LENGTH = 253


class Noted(msgspec.Struct, frozen=True):
    """One call of `record`."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str
    at: datetime
    since: float


class Series:
    """One Event on the server, or about to be."""

    def __init__(self, first: Noted) -> None:
        self.first = first
        self.last = first
        self.count = 1
        # What the server has: 0 before the Event is created.
        self.written = 0
        namespace = first.regarding.namespace or "default"
        self.key = Key(namespace, event_name(first.regarding.name))

    def again(self, noted: Noted) -> None:
        self.last = noted
        self.count += 1


class Correlator:
    """Finds the series an event belongs to. Remembers a bounded number of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: _Recent[Hashable, Series] = _Recent()
        # Per subject and reason: the different notes seen, and when the last one was.
        self._notes: _Recent[Hashable, tuple[set[str], float]] = _Recent()
        self._buckets: _Recent[str, TokenBucket] = _Recent()

    def take(self, noted: Noted) -> Series | None:
        """Count the event. None: it is one too many about this object, and should not be sent now."""
        similar = (_subject(noted.regarding), noted.type, noted.reason, noted.action)
        if self._many(similar, noted):
            series = self._counted(similar, _combined(noted))
        else:
            series = self._counted((*similar, noted.note), noted)
        return series if self._allowed(_subject(noted.regarding)) else None

    def forget(self, series: Series) -> None:
        """The server does not want it: what comes next starts a new Event."""
        self._series.drop(series)

    def _many(self, similar: Hashable, noted: Noted) -> bool:
        notes, last = self._notes.get(similar) or (set[str](), noted.since)
        if noted.since - last > WINDOW.total_seconds():
            notes = set()
        if len(notes) < SIMILAR:
            notes.add(noted.note)
        self._notes.put(similar, (notes, noted.since))
        return noted.note not in notes

    def _counted(self, identity: Hashable, noted: Noted) -> Series:
        series = self._series.get(identity)
        if series is None or noted.since - series.last.since > WINDOW.total_seconds():
            series = Series(noted)
        else:
            series.again(noted)
        self._series.put(identity, series)
        return series

    def _allowed(self, subject: str) -> bool:
        bucket = self._buckets.get(subject)
        if bucket is None:
            bucket = TokenBucket(self._clock, rate=1 / REFILL.total_seconds(), burst=BURST)
        self._buckets.put(subject, bucket)
        if bucket.ready_in() > timedelta():
            return False
        bucket.delay()
        return True


class _Recent(Generic[K, V]):
    """A dict of the latest `REMEMBERED` entries."""

    def __init__(self) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > REMEMBERED:
            self._entries.popitem(last=False)

    def drop(self, value: V) -> None:
        for key in [key for key, known in self._entries.items() if known is value]:
            del self._entries[key]


def event_name(subject: str) -> str:
    """`<object>.<hex>`, unique, and never longer than a name may be."""
    suffix = f".{secrets.token_hex(8)}"
    return subject[: NAME_LENGTH - len(suffix)].rstrip("-.") + suffix


def truncated(note: str) -> str:
    """At most as many bytes as a server takes, cut between characters. What is no text (half a pair) becomes `?`."""
    raw = note.encode(errors="replace")
    if len(raw) <= NOTE_BYTES:
        return raw.decode()
    return raw[: NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _subject(regarding: ObjectReference) -> str:
    return regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}"


def _combined(noted: Noted) -> Noted:
    note = truncated(f"(combined from similar events): {noted.note}")
    return msgspec.structs.replace(noted, note=note)
