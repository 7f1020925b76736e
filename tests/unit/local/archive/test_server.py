"""The read-only server of archived objects."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import Key
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.sqlite import DATABASE_FILE, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.archive.closed_objects import job_with_run_end
from gangline.local.archive.server import archive_plane, merge_run, read_store, stopped_at
from gangline.local.home import PlaneHome
from gangline.node.checkpoint import StateFolder
from gangline.schema.crds.job_crds import crd
from support.builders.runs import (
    RECORDED_AT,
    recorded_event,
    recorded_job,
    recorded_pod,
    stored_objects,
    write_container_log,
)


@pytest.fixture
def home(tmp_path: Path) -> PlaneHome:
    return PlaneHome(tmp_path / "home")


async def test_the_store_of_a_stopped_plane_is_read_and_not_touched(home: PlaneHome) -> None:
    async with Store(SqliteJournal(home.state)) as store:
        await fill(store)
    before = {path.name: path.stat().st_mtime_ns for path in home.state.iterdir()}
    assert set(read_store(home.state / DATABASE_FILE)) == set(stored_objects(recorded_job()))
    async with archive_plane(home, map(crd, TRAINING_KINDS), SystemClock()) as plane:
        assert plane.registry.store.get("/kubeflow.org/tfjobs/default/small") is not None
    assert {path.name: path.stat().st_mtime_ns for path in home.state.iterdir()} == before


async def test_the_store_of_a_plane_that_was_killed_has_all_it_wrote(home: PlaneHome, tmp_path: Path) -> None:
    async with Store(SqliteJournal(home.state)) as store:
        await fill(store)
        # The files on disk while the plane runs.
        shutil.copytree(home.state, tmp_path / "killed")
    assert (tmp_path / "killed" / f"{DATABASE_FILE}-wal").exists()
    assert set(read_store(tmp_path / "killed" / DATABASE_FILE)) == set(stored_objects(recorded_job()))


async def test_what_ran_when_a_plane_was_stopped_is_shown_stopped_unless_it_still_runs(
    home: PlaneHome,
) -> None:
    write_container_log(home.pods, "hello")
    async with Store(SqliteJournal(home.state)) as store:
        objects = stored_objects(recorded_job("small", "Created", "Running"), recorded_pod())
        await store.commit(*(StoreWrite(path, body, 0) for path, body in objects.items()))
    (files,) = StateFolder(home.pods).pod(Key("default", "small-worker-0"), "pod").runs("tensorflow")
    assert await states(home) == ("Stopped", "Failed")
    assert await states(home, as_it_was=True) == ("Running", "Running")
    lock = files.lock.acquire()
    try:
        assert await states(home) == ("Running", "Running")
    finally:
        os.close(lock)


async def test_a_plane_was_last_alive_when_it_last_touched_its_store(home: PlaneHome) -> None:
    async with Store(SqliteJournal(home.state)) as store:
        await fill(store)
    for file, at in ((home.state / DATABASE_FILE, 1_600_000_000), (home.state, 1_700_000_000)):
        os.utime(file, (at, at))
    assert stopped_at(home) == datetime.fromtimestamp(1_700_000_000, UTC)


async def states(home: PlaneHome, *, as_it_was: bool = False) -> tuple[str, str]:
    """The phases of the job and its pod."""
    async with archive_plane(home, map(crd, TRAINING_KINDS), SystemClock(), as_it_was=as_it_was) as plane:
        records = [
            plane.registry.store.get(path)
            for path in ("/kubeflow.org/tfjobs/default/small", "//pods/default/small-worker-0")
        ]
        bodies = [msgspec.json.decode(record.data) for record in records if record is not None]
    return bodies[0]["status"]["conditions"][-1]["type"], bodies[1]["status"]["phase"]


def test_without_a_store_no_plane_was_stopped(home: PlaneHome) -> None:
    assert stopped_at(home) is None


async def fill(store: Store) -> None:
    (path,) = stored_objects(recorded_job())
    await store.commit(StoreWrite(path, recorded_job(), 0), StoreWrite("//pods/default/gone", recorded_pod("gone"), 0))
    record = store.get("//pods/default/gone")
    assert record is not None
    await store.commit(StoreWrite("//pods/default/gone", None, record.revision))


def test_no_store_is_no_objects_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    assert read_store(tmp_path / DATABASE_FILE) == {}
    (tmp_path / DATABASE_FILE).write_text("no database, but long enough to be taken for one " * 40)
    with pytest.raises(StoreFailed, match=DATABASE_FILE):
        read_store(tmp_path / DATABASE_FILE)


def test_the_newer_job_of_a_name_comes_with_its_own_pods_and_events() -> None:
    objects = stored_objects(
        recorded_job(uid="old"),
        recorded_pod(uid="p1", owner="old"),
        recorded_event("e", "old"),
        recorded_event("f", "p1"),
        recorded_event("g", "x"),
    )
    newer = stored_objects(
        job_with_run_end(recorded_job(uid="new", creationTimestamp="2026-01-02T00:00:00Z"), RECORDED_AT, "")
    )
    assert merge_run(objects, newer)
    assert objects == {**newer, **stored_objects(recorded_event("g", "x"))}


def test_an_older_job_does_not_hide_a_newer_one() -> None:
    newer = stored_objects(recorded_job(uid="new", creationTimestamp="2026-01-02T00:00:00Z"))
    objects = dict(newer)
    assert not merge_run(
        objects,
        stored_objects(job_with_run_end(recorded_job(uid="old"), RECORDED_AT, ""), recorded_pod(owner="old")),
    )
    assert objects == newer
