"""The values that go in and out of a store."""

import msgspec

from gangline.api.meta import JSON


# gc=False here and below: no cycles, and the collector need not walk what may be 10,000s of them.
class StoreRecord(msgspec.Struct, frozen=True, gc=False):
    """An object at a revision. `data` is its JSON as clients get it, `metadata.resourceVersion` included."""

    path: str
    revision: int
    data: bytes


class StoreEvent(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One change. The same object goes to every watcher."""

    record: StoreRecord
    """What is there now; for a deletion the last content, at the revision of the deletion."""
    previous: StoreRecord | None
    """What was there. None: the record was created."""
    deleted: bool = False

    @property
    def revision(self) -> int:
        return self.record.revision

    @property
    def path(self) -> str:
        return self.record.path

    @property
    def data(self) -> bytes:
        return self.record.data


class StoreWrite(msgspec.Struct, frozen=True):
    """Set a path or, with a body of None, delete it.

    `expected` is the revision it must have now; 0: it must not exist. The store sets `metadata.resourceVersion` in
    the body (and in `final`) in place, so both belong to it until the commit returns, and then read as stored.
    """

    path: str
    body: JSON | None
    expected_revision: int
    final_body: JSON | None = None
    """What watchers of a deletion are told; by default what was there."""


class RangeResult(msgspec.Struct, frozen=True):
    """Records under a prefix, in order of path, all as of one revision."""

    revision: int
    records: tuple[StoreRecord, ...]
    remaining: int = 0
    """How many more there are after a limit."""

    @property
    def has_more(self) -> bool:
        return self.remaining > 0


class HistoryRetention(msgspec.Struct, frozen=True):
    """How much history is kept for watches that resume and lists that read older revisions.

    Whichever is reached first: that many changes, or that many bytes which nothing but history needs (old content
    and deleted objects; what is still current costs nothing extra).
    """

    max_changes: int = 20_000
    max_bytes: int = 64 * 2**20
