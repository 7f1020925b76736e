"""What a run writes down when it ends."""

import asyncio
from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.training import RUN_ENDED
from gangline.api.meta import JSON
from gangline.apiserver.store.records import Write
from gangline.apiserver.store.store import Store
from gangline.cli.run.record import BROKEN, DELETED, INTERRUPTED, OUT_OF_TIME, Recording, recorded
from gangline.local.archive.runs import Bygone, bygone
from gangline.testing.clock import FakeClock
from support.builders.runs import job, logged, objects, pod

TF = next(kind for kind in KINDS if kind.kind == "TFJob")


async def filled(*bodies: JSON, gone: tuple[str, ...] = ()) -> Store:
    """A store, closed; what is gone was deleted before that."""
    async with Store() as store:
        for path, body in objects(*bodies).items():
            await store.commit(Write(path, body, 0))
        for path in gone:
            there = store.get(path)
            assert there is not None
            await store.commit(Write(path, None, there.revision))
    return store


def recording(tmp_path: Path, store: Store | None) -> Recording:
    made = Recording(tmp_path / "runs", [TF, TF], tmp_path / "state", FakeClock())
    made.store = store
    return made


def told(tmp_path: Path) -> list[str]:
    """How jobs say that their runs ended, without the time."""
    (run,) = bygone(tmp_path / "runs")
    found = (body["metadata"].get("annotations") or {} for body in run.objects.values())
    return [each[RUN_ENDED].partition(" ")[2] for each in found if each]


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (asyncio.CancelledError(), INTERRUPTED),
        (TimeoutError(), OUT_OF_TIME),
        (BaseExceptionGroup("", [TimeoutError()]), OUT_OF_TIME),
        (RuntimeError(), BROKEN),
    ],
)
async def test_a_job_that_had_not_ended_says_how_its_run_did(
    tmp_path: Path, error: BaseException, how: str
) -> None:
    with pytest.raises(type(error)), recorded(recording(tmp_path, await filled(job())), print):
        raise error
    assert told(tmp_path) == [how]


async def test_a_job_that_was_deleted_says_so_though_its_run_came_to_its_end(tmp_path: Path) -> None:
    gone = tuple(objects(job()))
    with recorded(recording(tmp_path, await filled(job(), gone=gone)), print):
        pass
    assert told(tmp_path) == [DELETED]


async def test_a_job_that_ended_says_nothing_of_that(tmp_path: Path) -> None:
    with recorded(recording(tmp_path, await filled(job("small", "Succeeded"))), print):
        pass
    assert told(tmp_path) == [""]


async def test_what_was_cleaned_up_is_written_down_too(tmp_path: Path) -> None:
    logged(tmp_path / "state", "hello")
    gone = tuple(objects(pod(), job()))
    with recorded(recording(tmp_path, await filled(job(), pod(), gone=gone)), print):
        pass
    (run,) = bygone(tmp_path / "runs")
    assert set(run.objects) == set(gone)
    assert len(list(run.folder.rglob("*.log"))) == 1


async def test_several_jobs_have_a_record_each_with_its_own_pods(tmp_path: Path) -> None:
    others = [job("other", uid="j2"), pod("other-worker-0", uid="p2", owner="j2")]
    with recorded(recording(tmp_path, await filled(job(), pod(), *others)), print):
        pass
    assert {names(run) for run in bygone(tmp_path / "runs")} == {
        ("other", "other-worker-0"),
        ("small", "small-worker-0"),
    }


def names(run: Bygone) -> tuple[str, ...]:
    return tuple(sorted(path.rpartition("/")[2] for path in run.objects))


async def test_a_run_whose_plane_never_started_leaves_nothing(tmp_path: Path) -> None:
    with recorded(recording(tmp_path, None), print):
        pass
    assert not (tmp_path / "runs").exists()


async def test_where_nothing_can_be_written_the_run_is_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    said: list[str] = []
    with recorded(recording(tmp_path, await filled(job())), said.append):
        pass
    assert said == [f"nothing was kept of this run: {tmp_path / 'runs'}: File exists"]
