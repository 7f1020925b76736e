"""All that readers can see: the records, in order, and the way there. Pure: no disk, no tasks, no clock."""

from collections.abc import Iterable, Sequence

from gangline.apiserver.store.errors import TooNew
from gangline.apiserver.store.history import History
from gangline.apiserver.store.index import SortedKeys, under_sorted
from gangline.apiserver.store.records import Event, Record, Retention, Snapshot

FIRST = 1
"""The revision of an empty store. Not 0, which in Kubernetes' lists and watches means "any"."""


class State:
    """Records at the newest revision, and history."""

    def __init__(self) -> None:
        self.revision = FIRST
        self._records: dict[str, Record] = {}
        self._keys = SortedKeys()
        self._history = History()

    def load(self, revision: int, compacted: int, changes: Iterable[tuple[Record, bool]]) -> None:
        """Start from what a journal kept, in order of revision; the flag says that it was a deletion."""
        self._history = History(compacted)
        for record, deleted in changes:
            before = self._records.pop(record.path, None)
            if not deleted:
                self._records[record.path] = record
            if record.revision > compacted:
                self._history.append(Event(record, before, deleted))
        self._keys = SortedKeys(self._records)
        self.revision = max(FIRST, revision)

    def apply(self, events: Sequence[Event]) -> None:
        """Make changes visible, all at once as far as readers can tell."""
        for event in events:
            record = event.record
            if event.deleted:
                del self._records[record.path]
                self._keys.remove(record.path)
            else:
                if event.before is None:
                    self._keys.add(record.path)
                self._records[record.path] = record
            self._history.append(event)
            self.revision = record.revision

    def get(self, path: str) -> Record | None:
        return self._records.get(path)

    def count(self, prefix: str) -> int:
        return self._keys.count(prefix)

    def range(self, prefix: str, start_after: str = "", limit: int = 0) -> Snapshot:
        paths, remaining = self._keys.under(prefix, start_after, limit)
        return Snapshot(self.revision, tuple(map(self._records.__getitem__, paths)), remaining)

    def range_at(self, revision: int, prefix: str, start_after: str = "", limit: int = 0) -> Snapshot:
        """The same as of an earlier revision. Raises `Compacted`, `TooNew`."""
        if revision > self.revision:
            raise TooNew(revision, self.revision)
        then = self._history.undone(revision, prefix)
        if not then:
            now = self.range(prefix, start_after, limit)
            return Snapshot(revision, now.records, now.remaining)
        same = [path for path in self._keys.under(prefix, start_after)[0] if path not in then]
        changed = sorted(path for path, record in then.items() if record is not None)
        # Two sorted runs: sorting them together is one merge.
        paths = sorted(same + under_sorted(changed, prefix, start_after))
        page = paths[:limit] if limit else paths
        records = tuple(then.get(path) or self._records[path] for path in page)
        return Snapshot(revision, records, len(paths) - len(page))

    @property
    def compacted(self) -> int:
        return self._history.compacted

    def after(self, revision: int, prefix: str) -> tuple[Event, ...]:
        """Changes after a revision. Raises `Compacted`."""
        return self._history.after(revision, prefix)

    def compact(self, revision: int) -> list[int]:
        """Forget history up to a revision. Returns the revisions that nothing needs any more."""
        if revision > self.revision:
            raise TooNew(revision, self.revision)
        return self._history.compact(revision)

    def horizon(self, keep: Retention) -> int:
        return self._history.horizon(keep)
