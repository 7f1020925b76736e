"""The errors of a store.

::

    GanglineError
    ├── StaleWrite           another writer changed the record first
    ├── RevisionCompacted    history no longer has that revision
    ├── RevisionTooNew       the store has not reached that revision
    ├── WatcherTooSlow       a watcher does not keep up
    └── StoreFailed          the disk is full, broken or damaged, or the store is closed
"""

from gangline.apiserver.store.records import StoreRecord
from gangline.base.errors import GanglineError


class StaleWrite(GanglineError):
    """A record is not at the revision that its writer expected. No write of the commit took effect."""

    def __init__(self, path: str, expected: int, current: StoreRecord | None) -> None:
        state = f"at revision {current.revision}" if current else "absent"
        super().__init__(f"{path} is {state}, expected {f'revision {expected}' if expected else 'nothing'}")
        self.path = path
        self.current = current
        """The current record, as `Store.get` returns it."""


class RevisionCompacted(GanglineError):
    """History starts after the requested revision."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} is compacted, the oldest is {oldest}")
        self.requested, self.oldest = requested, oldest


class RevisionTooNew(GanglineError):
    """The requested revision is later than the newest."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is in the future, the newest is {current}")
        self.requested, self.current = requested, current


class WatcherTooSlow(GanglineError):
    """More changes wait for a watcher than its backlog allows. The watcher can resume from its last revision."""


class StoreFailed(GanglineError):
    """The journal failed. No write of the failed commit is visible, and it may be tried again."""
