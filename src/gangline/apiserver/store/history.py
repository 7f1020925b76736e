"""The changes that led to the present, as far back as they are kept."""

from bisect import bisect_right
from itertools import islice

from gangline.apiserver.store.errors import RevisionCompacted
from gangline.apiserver.store.records import HistoryRetention, StoreEvent, StoreRecord

COMPACTION_STEP = 512
"""History is cut in steps of about so many changes, so that no single commit pays for much."""


class RevisionHistory:
    """Events in order of revision. Knows what nothing but history keeps alive."""

    def __init__(self, compacted: int = 0) -> None:
        self._events: list[StoreEvent] = []
        self._retained_bytes = 0
        self._compacted_revision = compacted

    @property
    def compacted_revision(self) -> int:
        """All events after this revision are here, and none up to it."""
        return self._compacted_revision

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._retained_bytes += retained_bytes(event)

    def events_after(self, revision: int, prefix: str = "") -> tuple[StoreEvent, ...]:
        """Events after a revision, oldest first. Raises `RevisionCompacted`."""
        if revision < self._compacted_revision:
            raise RevisionCompacted(revision, self._compacted_revision)
        newer = islice(self._events, self._index_after(revision), None)
        return tuple(event for event in newer if event.record.path.startswith(prefix))

    def replaced_since(self, revision: int, prefix: str) -> dict[str, StoreRecord | None]:
        """Paths that changed after a revision, with what was there at that revision. Raises `RevisionCompacted`."""
        then: dict[str, StoreRecord | None] = {}
        for event in self.events_after(revision, prefix):
            then.setdefault(event.record.path, event.previous)
        return then

    def compact(self, revision: int) -> list[int]:
        """Forget events up to a revision. Returns the revisions whose content nothing needs any more.

        What an event replaced goes with the event, and a deletion goes altogether. What it wrote stays: it is
        current, or it is what a later event replaced.
        """
        cut = self._index_after(revision)
        unneeded: list[int] = []
        for event in islice(self._events, cut):
            self._retained_bytes -= retained_bytes(event)
            if event.previous is not None:
                unneeded.append(event.previous.revision)
            if event.deleted:
                unneeded.append(event.record.revision)
        del self._events[:cut]
        self._compacted_revision = max(self._compacted_revision, revision)
        return unneeded

    def compaction_target(self, keep: HistoryRetention) -> int:
        """The revision to compact to, so that history stays (by and large) within bounds."""
        drop = len(self._events) - keep.max_changes
        drop = drop if drop >= min(COMPACTION_STEP, max(1, keep.max_changes // 8)) else 0
        if self._retained_bytes > keep.max_bytes:
            left = self._retained_bytes - sum(retained_bytes(event) for event in islice(self._events, drop))
            target = keep.max_bytes - keep.max_bytes // 8
            while left > target and drop < len(self._events):
                left -= retained_bytes(self._events[drop])
                drop += 1
        return self._events[drop - 1].record.revision if drop else self._compacted_revision

    def _index_after(self, revision: int) -> int:
        # Most who ask are up to date.
        if not self._events or self._events[-1].record.revision <= revision:
            return len(self._events)
        return bisect_right(self._events, revision, key=lambda event: event.record.revision)


def retained_bytes(event: StoreEvent) -> int:
    """Bytes that would be free without this event: what it replaced, and the last words of a deletion."""
    replaced = len(event.previous.data) if event.previous is not None else 0
    return replaced + len(event.record.data) if event.deleted else replaced
