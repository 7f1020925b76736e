"""What can go wrong with a store.

::

    GanglineError
    ├── StaleWrite       somebody else changed the record first
    ├── Compacted        that far back is no longer known
    ├── TooNew           that revision has not happened yet
    ├── TooSlow          a watcher that does not keep up
    └── StoreFailed      the disk: full, broken, damaged; or the store is closed
"""

from gangline.apiserver.store.records import StoreRecord
from gangline.base.errors import GanglineError


class StaleWrite(GanglineError):
    """A record is not at the revision that its writer expected. Nothing of the commit took effect."""

    def __init__(self, path: str, expected: int, current: StoreRecord | None) -> None:
        found = f"at revision {current.revision}" if current else "not there"
        super().__init__(f"{path} is {found}, expected {f'revision {expected}' if expected else 'nothing'}")
        self.path = path
        self.current = current
        """What is there now, as `Store.get` gives it."""


class RevisionCompacted(GanglineError):
    """History starts after the revision that was asked for."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} is gone, the oldest one known is {oldest}")
        self.requested, self.oldest = asked, oldest


class RevisionTooNew(GanglineError):
    """A revision later than the newest."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} is yet to come, the newest is {current}")
        self.requested, self.current = asked, current


class WatcherTooSlow(GanglineError):
    """More changes wait for a watcher than it may leave waiting. It can resume where it stopped."""


class StoreFailed(GanglineError):
    """The journal could not do its work. Of a failed commit nothing is visible, and it may be tried again."""
