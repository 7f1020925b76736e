"""Periodic backups, and restoration into the folder of a stopped plane."""

import asyncio
import errno
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.apiserver.store import sqlite
from gangline.apiserver.store.backup import read_backup, write_backup
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.sqlite import DATABASE_FILE, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError
from gangline.local import backups
from gangline.local.backups import (
    REVISION_GAP,
    BackupSettings,
    PeriodicBackups,
    back_up_stopped,
    check_restoration,
    restore,
)
from gangline.local.home import PlaneHome
from gangline.testing.clock import FakeClock
from support.property.stores import file_names, put_thing, remove_thing


async def test_backups_follow_changes_and_old_ones_are_removed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Store() as store:
        periodic = PeriodicBackups(store, BackupSettings(tmp_path / "new", timedelta(minutes=10), 3), clock)
        for number in range(5):
            await put_thing(store, f"/{number}")
            await periodic.write()
            await periodic.write()
            await clock.advance(timedelta(minutes=10))
        files = sorted((tmp_path / "new").iterdir())
        assert [read_backup(file).revision for file in files] == [4, 5, 6]
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


async def test_failure_to_write_a_backup_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    clock = FakeClock()
    async with Store() as store:
        await put_thing(store, "/a")
        periodic = PeriodicBackups(store, BackupSettings(tmp_path, timedelta(minutes=10), 3), clock)
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(backups, "write_backup", fail)
            await periodic.write()
            await periodic.write()
        assert caplog.text.count("no backup could be written: [Errno 28] No space left on device") == 1
        await periodic.write()
    assert len(file_names(tmp_path)) == 1


async def filled_home(folder: Path) -> PlaneHome:
    home = PlaneHome(folder)
    async with Store(SqliteJournal(home.state)) as store:
        for number in range(10):
            await put_thing(store, f"/things/{number}", number)
        await remove_thing(store, "/things/3")
    return home


async def test_restored_plane_has_the_objects_at_a_revision_that_nobody_has_seen(tmp_path: Path) -> None:
    home, clock = await filled_home(tmp_path / "home"), FakeClock()
    header = back_up_stopped(home, tmp_path / "a.backup")
    assert (header.objects, header.revision) == (9, 12)
    async with Store(SqliteJournal(home.state)) as store:
        before = store.range("").records
        cluster = store.cluster_id
        for number in range(5):
            await put_thing(store, "/things/later", number)
    revisions = [17]
    for _ in range(2):
        count, replaced = restore(home, tmp_path / "a.backup", clock.now())
        await clock.advance(timedelta(seconds=1))
        assert count == 9
        async with Store(SqliteJournal(home.state)) as store:
            assert store.range("").records == before
            assert store.cluster_id == cluster
            assert store.revision == store.compacted_revision == revisions[-1] + REVISION_GAP
            revisions.append((await put_thing(store, "/new")).revision)
        assert replaced is not None
        async with Store(SqliteJournal(replaced)) as store:
            assert store.revision == revisions[-2], "what was replaced is kept whole"


async def test_restoration_repairs_a_damaged_plane_and_makes_a_new_one(tmp_path: Path) -> None:
    home, clock = await filled_home(tmp_path / "home"), FakeClock()
    back_up_stopped(home, tmp_path / "a.backup")
    (home.state / DATABASE_FILE).write_bytes(b"")
    restore(home, tmp_path / "a.backup", clock.now())
    other = PlaneHome(tmp_path / "other")
    assert restore(other, tmp_path / "a.backup", clock.now()) == (9, None)
    for folder in (home.state, other.state):
        async with Store(SqliteJournal(folder)) as store:
            assert store.count() == 9


async def test_restoration_refuses_a_running_plane_and_a_damaged_file(tmp_path: Path) -> None:
    home, clock = await filled_home(tmp_path / "home"), FakeClock()
    back_up_stopped(home, tmp_path / "a.backup")
    with home.lock.acquire(), pytest.raises(InputError, match="in use by process"):
        restore(home, tmp_path / "a.backup", clock.now())
    content = (tmp_path / "a.backup").read_bytes()
    (tmp_path / "a.backup").write_bytes(content[:-20])
    with pytest.raises(InputError, match="damaged"):
        restore(home, tmp_path / "a.backup", clock.now())
    assert {path.name for path in home.folder.iterdir()} == {"state", "lock"}


async def test_cut_off_restoration_does_not_start_an_empty_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, clock = await filled_home(tmp_path / "home"), FakeClock()
    back_up_stopped(home, tmp_path / "a.backup")
    rename, cut = Path.rename, []

    def rename_once(path: Path, target: Path) -> Path:
        cut.append(path)
        if len(cut) > 1:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_once)
        with pytest.raises(KeyboardInterrupt):
            restore(home, tmp_path / "a.backup", clock.now())
    with pytest.raises(InputError, match="a restoration was cut off; repeat it"):
        check_restoration(home)
    restore(home, tmp_path / "a.backup", clock.now())
    check_restoration(home)
    async with Store(SqliteJournal(home.state)) as store:
        assert store.count() == 9


async def test_restoration_without_space_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, clock = await filled_home(tmp_path / "home"), FakeClock()
    back_up_stopped(home, tmp_path / "a.backup")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sqlite, "create_tables", fail)
    with pytest.raises(StoreFailed, match=r"the disk is full; free some space, then try again"):
        restore(home, tmp_path / "a.backup", clock.now())
    assert file_names(home.folder) == ["lock", "state"]


def test_folder_without_a_plane_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no plane to back up"):
        back_up_stopped(PlaneHome(tmp_path), tmp_path / "a.backup")
    assert not (tmp_path / "a.backup").exists()


async def test_backup_is_of_one_moment(tmp_path: Path) -> None:
    """Objects that are always written together are the same in every backup that is made meanwhile."""
    async with Store(SqliteJournal(tmp_path / "state")) as store:
        done = asyncio.Event()

        async def write() -> None:
            for number in range(400):
                await asyncio.gather(*(put_thing(store, f"/{name}", number) for name in "ab"))
            done.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            revisions = set()
            while not done.is_set():
                snapshot = store.snapshot()
                await asyncio.to_thread(write_backup, tmp_path / "x.backup", snapshot.contents())
                contents = read_backup(tmp_path / "x.backup")
                assert (
                    contents.revision == snapshot.revision == max((r.revision for r, _ in contents.changes), default=1)
                )
                numbers = [record.revision for record, _ in contents.changes]
                assert numbers == list(range(2, contents.revision + 1)), "no change is missing"
                revisions.add(contents.revision)
        assert len(revisions) > 2
