"""Backups of a plane's store: periodic ones while it runs, and their restoration into a stopped plane's folder.

A backup has the objects of the API, Secrets included. Certificates, token and keys stay with the folder, and so do logs
and the files that programs made.
"""

import asyncio
import logging
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gangline.apiserver.store.backup import BackupHeader, StoreSnapshot, read_backup, write_backup
from gangline.apiserver.store.disk.marker import read_marker
from gangline.apiserver.store.journal import JournalContents
from gangline.apiserver.store.sqlite import SqliteJournal, write_database
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError, InputError
from gangline.base.files import sync_folder
from gangline.local.home import PlaneHome

log = logging.getLogger(__name__)

REVISION_GAP = 10**9
"""How far a restored store is ahead of the backup and of what it replaces: no revision must stand for two states."""


class BackupSettings(msgspec.Struct, frozen=True):
    """Periodic backups."""

    folder: Path
    period: timedelta
    keep: int


class PeriodicBackups:
    """Writes a backup of a store whenever it has changed, and keeps the newest ones."""

    def __init__(self, store: Store, settings: BackupSettings, clock: Clock) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._revision = 0
        self._problem = ""

    async def run(self) -> None:
        """Write backups until cancelled."""
        while True:
            await self.write()
            await self._clock.sleep(self._settings.period)

    async def write(self) -> None:
        """Write a backup if the store has changed since the last one. A failure is logged, once until it passes."""
        snapshot = self._store.snapshot()
        if snapshot.revision == self._revision:
            return
        try:
            await asyncio.to_thread(self._write, snapshot, self._clock.now())
        except (OSError, GanglineError) as error:
            if str(error) != self._problem:
                log.error("no backup could be written: %s", error)  # noqa: TRY400 - one line, no traceback
            self._problem = str(error)
        else:
            self._revision, self._problem = snapshot.revision, ""

    def _write(self, snapshot: StoreSnapshot, now: datetime) -> None:
        folder, cluster = self._settings.folder, snapshot.cluster_id[:8]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_backup(
            folder / f"gangline-{cluster}-{now:%Y%m%dT%H%M%SZ}-{snapshot.revision:012d}.backup", snapshot.contents()
        )
        # The names sort by time.
        for old in sorted(folder.glob(f"gangline-{cluster}-*.backup"))[: -self._settings.keep]:
            old.unlink()


def back_up_stopped(home: PlaneHome, file: Path) -> BackupHeader:
    """Write a backup of a plane that does not run. Raises `InputError`, `StoreFailed`, `OSError`."""
    with home.lock.acquire():
        if not home.state.exists():
            raise InputError(f"{home.folder}: there is no plane to back up; start one with gangline up")
        check_restoration(home)
        journal = SqliteJournal(home.state)
        try:
            contents = journal.open()
        finally:
            journal.close()
        return write_backup(file, contents)


def restore(home: PlaneHome, file: Path, now: datetime) -> tuple[int, Path | None]:
    """Replace the store of a stopped plane by a backup. Returns how many objects it has, and where the old store is.

    Raises `InputError` when the plane runs or the backup is damaged; nothing has changed then.
    """
    backup = read_backup(file)
    home.create_folder()
    with home.lock.acquire():
        contents = _restored_contents(backup, home)
        fresh = _unfinished(home)
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            write_database(fresh, contents)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        sync_folder(fresh)
        replaced = home.folder / f"state.replaced-{now:%Y%m%dT%H%M%S.%f}"
        if home.state.exists():
            home.state.rename(replaced)
        fresh.rename(home.state)
        sync_folder(home.folder)
    return len(contents.changes), replaced if replaced.exists() else None


def check_restoration(home: PlaneHome) -> None:
    """Raise `InputError` when a restoration was cut off between the removal of the old store and the new one's place."""
    if not home.state.exists() and _unfinished(home).exists():
        raise InputError(f"{home.folder}: a restoration was cut off; repeat it with gangline restore FILE")


def _unfinished(home: PlaneHome) -> Path:
    return home.folder / "state.restoring"


def _restored_contents(contents: JournalContents, home: PlaneHome) -> JournalContents:
    """The contents at a revision that no client has seen. Watches cannot be resumed: clients list again."""
    marker = read_marker(home.state)
    revision = max(contents.revision, marker.revision if marker is not None else 0) + REVISION_GAP
    newest = {record.path: None if deleted else record for record, deleted in contents.changes}
    records = sorted((record for record in newest.values() if record is not None), key=lambda record: record.revision)
    return JournalContents(contents.cluster_id, revision, revision, [(record, False) for record in records])
