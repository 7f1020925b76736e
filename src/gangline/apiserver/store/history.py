"""The changes that led to the present, as far back as they are kept."""

from bisect import bisect_right
from itertools import islice

from gangline.apiserver.store.errors import Compacted
from gangline.apiserver.store.records import Event, Record, Retention

STEP = 512
"""History is cut in steps of about so many changes, so that no single commit pays for much."""


class History:
    """Events in order of revision. Knows what nothing but history keeps alive."""

    def __init__(self, compacted: int = 0) -> None:
        self._events: list[Event] = []
        self._weight = 0
        self._compacted = compacted

    @property
    def compacted(self) -> int:
        """All events after this revision are here, and none up to it."""
        return self._compacted

    def append(self, event: Event) -> None:
        self._events.append(event)
        self._weight += weight(event)

    def after(self, revision: int, prefix: str = "") -> tuple[Event, ...]:
        """Events after a revision, oldest first. Raises `Compacted`."""
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        newer = islice(self._events, self._position(revision), None)
        return tuple(event for event in newer if event.record.path.startswith(prefix))

    def undone(self, revision: int, prefix: str) -> dict[str, Record | None]:
        """Paths that changed after a revision, with what was there at that revision. Raises `Compacted`."""
        then: dict[str, Record | None] = {}
        for event in self.after(revision, prefix):
            then.setdefault(event.record.path, event.before)
        return then

    def compact(self, revision: int) -> list[int]:
        """Forget events up to a revision. Returns the revisions whose content nothing needs any more.

        What an event replaced goes with the event, and a deletion goes altogether. What it wrote stays: it is
        current, or it is what a later event replaced.
        """
        cut = self._position(revision)
        unneeded: list[int] = []
        for event in islice(self._events, cut):
            self._weight -= weight(event)
            if event.before is not None:
                unneeded.append(event.before.revision)
            if event.deleted:
                unneeded.append(event.record.revision)
        del self._events[:cut]
        self._compacted = max(self._compacted, revision)
        return unneeded

    def horizon(self, keep: Retention) -> int:
        """The revision to compact to, so that history stays (by and large) within bounds."""
        drop = len(self._events) - keep.changes
        drop = drop if drop >= min(STEP, max(1, keep.changes // 8)) else 0
        if self._weight > keep.size:
            left = self._weight - sum(weight(event) for event in islice(self._events, drop))
            target = keep.size - keep.size // 8
            while left > target and drop < len(self._events):
                left -= weight(self._events[drop])
                drop += 1
        return self._events[drop - 1].record.revision if drop else self._compacted

    def _position(self, revision: int) -> int:
        # Most who ask are up to date.
        if not self._events or self._events[-1].record.revision <= revision:
            return len(self._events)
        return bisect_right(self._events, revision, key=lambda event: event.record.revision)


def weight(event: Event) -> int:
    """Bytes that would be free without this event: what it replaced, and the last words of a deletion."""
    replaced = len(event.before.data) if event.before is not None else 0
    return replaced + len(event.record.data) if event.deleted else replaced
