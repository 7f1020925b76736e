"""What a store needs of a disk. `Journal` is the seam: SQLite is in sqlite.py, tests have others that break."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gangline.apiserver.store.records import StoreEvent, StoreRecord


class JournalContents(msgspec.Struct, frozen=True):
    """What a journal kept."""

    cluster_id: str
    """Made up when the journal was created, and kept."""
    revision: int
    """The newest that was ever given out, even if nothing of it is left."""
    compacted_revision: int
    changes: Sequence[tuple[StoreRecord, bool]] = ()
    """In order of revision, whether each was a deletion. All after `compacted`, and what of the rest is needed."""


class Compaction(msgspec.Struct, frozen=True):
    """Compaction: history now starts after `compacted`, and the content of these revisions is not needed."""

    compacted_revision: int
    obsolete_revisions: tuple[int, ...] = ()


class Journal(Protocol):
    """Keeps changes. Blocking; all methods are called from one thread, `open` first and `close` last.

    Raises `StoreFailed` when the disk does, `InputError` when it is the user who must do something.
    """

    def open(self) -> JournalContents: ...

    def write(self, events: Sequence[StoreEvent], forget: Compaction | None) -> None:
        """All of it or nothing, and durable on return. After an error the next one may succeed."""
        ...

    def close(self) -> None:
        """Give up what is held. Idempotent, and allowed after a failed `open`."""
        ...
