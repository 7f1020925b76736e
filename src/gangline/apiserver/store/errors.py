"""The errors of a store.

::

    GanglineError
    ├── StaleWrite           another writer changed the record first
    ├── RevisionCompacted    history no longer has that revision
    ├── RevisionTooNew       the store has not reached that revision
    ├── WatcherTooSlow       a watcher does not keep up
    └── StoreFailed          the disk fails, or the store is closed
        ├── DiskFull         there is no space left; deletions are still accepted
        └── StoreDamaged     what is on disk is not what was written
"""

from pathlib import Path

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
    """The journal failed. No write of the failed commit is visible, and it may be tried again.

    The message is for the administrator and names the file. `cause` is for clients and names none.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause or message


class DiskFull(StoreFailed):
    """There is no space left. Deletions are still accepted, as long as there is a reserve."""

    def __init__(self, folder: Path, *, has_reserve: bool = True) -> None:
        accepted = (
            "only deletions are accepted"
            if has_reserve
            else "nothing is accepted, the reserve for deletions is used up"
        )
        super().__init__(
            f"{folder}: the disk is full: {accepted}; free some space",
            f"the disk of the control plane is full: {accepted} until there is space again",
        )
        self.folder, self.has_reserve = folder, has_reserve

    def copy(self) -> "DiskFull":
        """The same error for another request: an instance that is raised twice would collect tracebacks."""
        return DiskFull(self.folder, has_reserve=self.has_reserve)


class StoreDamaged(StoreFailed):
    """The files of the store are not as they were written. Nothing is changed, so that they can be examined."""

    def __init__(self, file: Path, damage: str) -> None:
        super().__init__(
            f"{file}: damaged: {damage}; restore a backup with gangline restore FILE, "
            f"or move {file.parent} away to start with an empty store",
            f"the store of the control plane is damaged: {damage}",
        )
