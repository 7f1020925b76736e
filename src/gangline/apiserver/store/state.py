"""The visible state: all records in order of path, and history. Pure: no disk, no tasks, no clock."""

from collections.abc import Iterable, Sequence

from gangline.apiserver.store.errors import RevisionTooNew
from gangline.apiserver.store.history import RevisionHistory
from gangline.apiserver.store.index import SortedKeys, sorted_keys_under
from gangline.apiserver.store.records import HistoryRetention, RangeResult, StoreEvent, StoreRecord

FIRST_REVISION = 1
"""The revision of an empty store. Not 0, which means "any" in lists and watches of Kubernetes."""


class StoreState:
    """The records at the newest revision, and the history of changes."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self._records: dict[str, StoreRecord] = {}
        self._keys = SortedKeys()
        self._history = RevisionHistory()

    def load(self, revision: int, compacted_revision: int, changes: Iterable[tuple[StoreRecord, bool]]) -> None:
        """Start from the contents of a journal: changes in order of revision, each with whether it was a deletion."""
        self._history = RevisionHistory(compacted_revision)
        for record, deleted in changes:
            previous = self._records.pop(record.path, None)
            if not deleted:
                self._records[record.path] = record
            if record.revision > compacted_revision:
                self._history.append(StoreEvent(record, previous, deleted))
        self._keys = SortedKeys(self._records)
        self.revision = max(FIRST_REVISION, revision)

    def apply(self, events: Sequence[StoreEvent]) -> None:
        """Make changes visible, all at once for readers."""
        for event in events:
            record = event.record
            if event.deleted:
                del self._records[record.path]
                self._keys.remove(record.path)
            else:
                if event.previous is None:
                    self._keys.add(record.path)
                self._records[record.path] = record
            self._history.append(event)
            self.revision = record.revision

    def get(self, path: str) -> StoreRecord | None:
        return self._records.get(path)

    def count(self, prefix: str) -> int:
        return self._keys.count(prefix)

    def has(self, prefix: str) -> bool:
        return self._keys.has(prefix)

    def range(self, prefix: str, start_after: str = "", limit: int = 0) -> RangeResult:
        paths, remaining = self._keys.keys_under(prefix, start_after, limit)
        return RangeResult(self.revision, tuple(map(self._records.__getitem__, paths)), remaining)

    def range_at(self, revision: int, prefix: str, start_after: str = "", limit: int = 0) -> RangeResult:
        """The range at an earlier revision. Raises `RevisionCompacted`, `RevisionTooNew`."""
        if revision > self.revision:
            raise RevisionTooNew(revision, self.revision)
        replaced = self._history.replaced_since(revision, prefix)
        if not replaced:
            current = self.range(prefix, start_after, limit)
            return RangeResult(revision, current.records, current.remaining)
        unchanged = [path for path in self._keys.keys_under(prefix, start_after)[0] if path not in replaced]
        changed = sorted(path for path, record in replaced.items() if record is not None)
        # Both lists are sorted, so sorting the concatenation is one merge.
        paths = sorted(unchanged + sorted_keys_under(changed, prefix, start_after))
        page = paths[:limit] if limit else paths
        records = tuple(replaced.get(path) or self._records[path] for path in page)
        return RangeResult(revision, records, len(paths) - len(page))

    def all_records(self) -> tuple[StoreRecord, ...]:
        """The records at the newest revision, in no order."""
        return tuple(self._records.values())

    @property
    def compacted_revision(self) -> int:
        return self._history.compacted_revision

    def events_after(self, revision: int, prefix: str) -> tuple[StoreEvent, ...]:
        """Changes after a revision. Raises `RevisionCompacted`."""
        return self._history.events_after(revision, prefix)

    def compact(self, revision: int) -> list[int]:
        """Drop history up to a revision. Returns the revisions whose content is no longer needed."""
        if revision > self.revision:
            raise RevisionTooNew(revision, self.revision)
        return self._history.compact(revision)

    def compaction_target(self, retention: HistoryRetention) -> int:
        return self._history.compaction_target(retention)
