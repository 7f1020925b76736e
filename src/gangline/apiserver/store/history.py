"""The history of changes, as far back as it is retained."""

from bisect import bisect_right
from itertools import islice

from gangline.apiserver.store.errors import RevisionCompacted
from gangline.apiserver.store.records import HistoryRetention, StoreEvent, StoreRecord

COMPACTION_STEP = 512
"""History is compacted in steps of about this many changes, so that no single commit takes long."""


class RevisionHistory:
    """Events in order of revision. Counts the bytes that only history retains."""

    def __init__(self, compacted_revision: int = 0) -> None:
        self._events: list[StoreEvent] = []
        self._retained_bytes = 0
        self._compacted_revision = compacted_revision

    @property
    def compacted_revision(self) -> int:
        """History has all events after this revision and none up to it."""
        return self._compacted_revision

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._retained_bytes += retained_bytes(event)

    def events_after(self, revision: int, prefix: str = "") -> tuple[StoreEvent, ...]:
        """Events after a revision, oldest first. Raises `RevisionCompacted`."""
        if revision < self._compacted_revision:
            raise RevisionCompacted(revision, self._compacted_revision)
        newer = islice(self._events, self._index_after(revision), None)
        if not prefix:
            return tuple(newer)
        return tuple(event for event in newer if event.record.path.startswith(prefix))

    def replaced_since(self, revision: int, prefix: str) -> dict[str, StoreRecord | None]:
        """The paths that changed after a revision, with their record at that revision. Raises `RevisionCompacted`."""
        records: dict[str, StoreRecord | None] = {}
        for event in self.events_after(revision, prefix):
            records.setdefault(event.record.path, event.previous)
        return records

    def compact(self, revision: int) -> list[int]:
        """Drop events up to a revision. Returns the revisions whose content is no longer needed.

        The replaced record of a dropped event is obsolete, and so is the final record of a deletion. The
        record that an event wrote is still needed: it is current, or a later event replaced it.
        """
        count = self._index_after(revision)
        obsolete: list[int] = []
        for event in islice(self._events, count):
            self._retained_bytes -= retained_bytes(event)
            if event.previous is not None:
                obsolete.append(event.previous.revision)
            if event.deleted:
                obsolete.append(event.record.revision)
        del self._events[:count]
        self._compacted_revision = max(self._compacted_revision, revision)
        return obsolete

    def compaction_target(self, retention: HistoryRetention) -> int:
        """The revision to compact to, so that history stays roughly within the retention."""
        drop = len(self._events) - retention.max_changes
        drop = drop if drop >= min(COMPACTION_STEP, max(1, retention.max_changes // 8)) else 0
        if self._retained_bytes > retention.max_bytes:
            remaining = self._retained_bytes - sum(retained_bytes(event) for event in islice(self._events, drop))
            target = retention.max_bytes - retention.max_bytes // 8
            while remaining > target and drop < len(self._events):
                remaining -= retained_bytes(self._events[drop])
                drop += 1
        return self._events[drop - 1].record.revision if drop else self._compacted_revision

    def _index_after(self, revision: int) -> int:
        # Most callers are up to date.
        if not self._events or self._events[-1].record.revision <= revision:
            return len(self._events)
        return bisect_right(self._events, revision, key=lambda event: event.record.revision)


def retained_bytes(event: StoreEvent) -> int:
    """The bytes that only this event retains: the replaced record, and the final record of a deletion."""
    replaced = len(event.previous.data) if event.previous is not None else 0
    return replaced + len(event.record.data) if event.deleted else replaced
