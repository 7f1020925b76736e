"""The journal: the interface of a store to the disk. sqlite.py implements it; tests have journals that fail."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gangline.apiserver.store.records import StoreEvent, StoreRecord


class JournalContents(msgspec.Struct, frozen=True):
    """The contents of a journal when it is opened."""

    cluster_id: str
    """Generated when the journal was created."""
    revision: int
    """The newest revision ever allocated, even if no change of it is left."""
    compacted_revision: int
    changes: Sequence[tuple[StoreRecord, bool]] = ()
    """Changes in order of revision, each with whether it was a deletion: all after `compacted_revision`, and the
    earlier ones that are still needed."""


class Compaction(msgspec.Struct, frozen=True):
    """A compaction: history starts after `compacted_revision`, the content of the obsolete revisions is deleted."""

    compacted_revision: int
    obsolete_revisions: tuple[int, ...] = ()


class Journal(Protocol):
    """Makes changes durable. Blocking; all methods are called from one thread, `open` first and `close` last.

    Raises `StoreFailed` when the disk fails, `InputError` when the user must act.
    """

    def open(self) -> JournalContents: ...

    def write(
        self, events: Sequence[StoreEvent], compaction: Compaction | None, *, may_use_reserve: bool = False
    ) -> None:
        """Write all or nothing; durable on return. After an error a later write may succeed.

        With `may_use_reserve` the events are steps of deletions, which a full disk does not stop.
        """
        ...

    def check(self) -> None:
        """Raise `StoreFailed` when the next write would fail. Called again and again while the journal is open."""
        ...

    def close(self) -> None:
        """Release all resources. Idempotent, and allowed after a failed `open`."""
        ...
