"""The values that a store takes and returns."""

import msgspec

from gangline.api.meta import JSON


# gc=False here and below: instances have no cycles, and the collector need not traverse tens of thousands of them.
class StoreRecord(msgspec.Struct, frozen=True, gc=False):
    """An object at a revision. `data` is its JSON as clients get it, including `metadata.resourceVersion`."""

    path: str
    revision: int
    data: bytes


class StoreEvent(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One change. All watchers share the same instance."""

    record: StoreRecord
    """The new record; for a deletion the final content, at the revision of the deletion."""
    previous: StoreRecord | None
    """The replaced record; None if the change created the object."""
    deleted: bool = False


class StoreWrite(msgspec.Struct, frozen=True):
    """Set the object at a path or, with a body of None, delete it.

    `expected_revision` is the revision the path must have; 0: it must not exist. The store sets
    `metadata.resourceVersion` in `body` and `final_body` in place, so the caller must not touch them until the
    commit returns.
    """

    path: str
    body: JSON | None
    expected_revision: int
    final_body: JSON | None = None
    """The object in the watch event of a deletion; by default the current object."""


class RangeResult(msgspec.Struct, frozen=True):
    """Records under a prefix, in order of path, all at one revision."""

    revision: int
    records: tuple[StoreRecord, ...]
    remaining: int = 0
    """The number of records beyond the limit."""

    @property
    def has_more(self) -> bool:
        return self.remaining > 0


class HistoryRetention(msgspec.Struct, frozen=True):
    """How much history is kept for resuming watches and for lists at older revisions.

    History is compacted when it exceeds either limit: the number of changes, or the bytes that only history
    retains (replaced content and deleted objects; current objects do not count).
    """

    max_changes: int = 20_000
    max_bytes: int = 64 * 2**20
