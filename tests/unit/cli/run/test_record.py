"""The archive that a run writes when it ends."""

import asyncio
from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import RUN_ENDED_ANNOTATION
from gangline.api.meta import JSON
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.cli.run.record import ABORTED, DELETED, INTERRUPTED, TIMED_OUT, RunRecorder, record_run
from gangline.local.archive.runs import ArchivedRun, archived_runs
from gangline.testing.clock import FakeClock
from support.builders.runs import recorded_job, recorded_pod, stored_objects, write_container_log

TF = next(kind for kind in TRAINING_KINDS if kind.kind == "TFJob")


async def filled(*bodies: JSON, gone: tuple[str, ...] = ()) -> Store:
    """A closed store; the objects of `gone` were deleted before that."""
    async with Store() as store:
        for path, body in stored_objects(*bodies).items():
            await store.commit(StoreWrite(path, body, 0))
        for path in gone:
            there = store.get(path)
            assert there is not None
            await store.commit(StoreWrite(path, None, there.revision))
    return store


def recording(tmp_path: Path, store: Store | None) -> RunRecorder:
    made = RunRecorder(tmp_path / "runs", [TF, TF], tmp_path / "state", FakeClock())
    made.store = store
    return made


def told(tmp_path: Path) -> list[str]:
    """The reasons in the archived jobs, without the time."""
    (run,) = archived_runs(tmp_path / "runs")
    found = (body["metadata"].get("annotations") or {} for body in run.objects.values())
    return [each[RUN_ENDED_ANNOTATION].partition(" ")[2] for each in found if each]


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (asyncio.CancelledError(), INTERRUPTED),
        (TimeoutError(), TIMED_OUT),
        (BaseExceptionGroup("", [TimeoutError()]), TIMED_OUT),
        (RuntimeError(), ABORTED),
    ],
)
async def test_an_unfinished_job_is_archived_with_the_reason(tmp_path: Path, error: BaseException, how: str) -> None:
    with pytest.raises(type(error)), record_run(recording(tmp_path, await filled(recorded_job())), print):
        raise error
    assert told(tmp_path) == [how]


async def test_a_job_that_was_deleted_during_a_complete_run_says_so(tmp_path: Path) -> None:
    gone = tuple(stored_objects(recorded_job()))
    with record_run(recording(tmp_path, await filled(recorded_job(), gone=gone)), print):
        pass
    assert told(tmp_path) == [DELETED]


async def test_a_finished_job_is_archived_without_a_reason(tmp_path: Path) -> None:
    with record_run(recording(tmp_path, await filled(recorded_job("small", "Succeeded"))), print):
        pass
    assert told(tmp_path) == [""]


async def test_deleted_objects_are_archived_too(tmp_path: Path) -> None:
    write_container_log(tmp_path / "state", "hello")
    gone = tuple(stored_objects(recorded_pod(), recorded_job()))
    with record_run(recording(tmp_path, await filled(recorded_job(), recorded_pod(), gone=gone)), print):
        pass
    (run,) = archived_runs(tmp_path / "runs")
    assert set(run.objects) == set(gone)
    assert len(list(run.folder.rglob("*.log"))) == 1


async def test_each_job_has_an_archive_with_its_own_pods(tmp_path: Path) -> None:
    others = [recorded_job("other", uid="j2"), recorded_pod("other-worker-0", uid="p2", owner="j2")]
    with record_run(recording(tmp_path, await filled(recorded_job(), recorded_pod(), *others)), print):
        pass
    assert {names(run) for run in archived_runs(tmp_path / "runs")} == {
        ("other", "other-worker-0"),
        ("small", "small-worker-0"),
    }


def names(run: ArchivedRun) -> tuple[str, ...]:
    return tuple(sorted(path.rpartition("/")[2] for path in run.objects))


async def test_a_run_whose_plane_never_started_writes_no_archive(tmp_path: Path) -> None:
    with record_run(recording(tmp_path, None), print):
        pass
    assert not (tmp_path / "runs").exists()


async def test_a_write_error_does_not_change_the_result_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    said: list[str] = []
    with record_run(recording(tmp_path, await filled(recorded_job())), said.append):
        pass
    assert said == [f"nothing was kept of this run: {tmp_path / 'runs'}: File exists"]
