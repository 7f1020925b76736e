"""The archive of ended runs."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.local.archive import runs as subject
from gangline.local.archive.runs import archive_run, archived_runs, log_tail
from gangline.node.checkpoint import ExitRecord
from support.builders.runs import (
    RECORDED_AT,
    job_path,
    recorded_job,
    recorded_pod,
    stored_objects,
    write_container_log,
)

SECOND = timedelta(seconds=1)


def archive(runs: Path, name: str = "small", second: int = 0, most: int = 20, state: Path | None = None) -> Path:
    state_folder = state or runs.parent / "nothing"
    return archive_run(
        runs, job_path(name), stored_objects(recorded_job(name)), state_folder, RECORDED_AT + second * SECOND, most
    )


def names(runs: Path) -> list[str]:
    return [run.folder.name.rpartition("_")[2] for run in archived_runs(runs)]


def test_a_run_comes_back_with_its_objects_its_log_and_how_it_ended(tmp_path: Path) -> None:
    write_container_log(tmp_path / "state", "hello")
    written = stored_objects(recorded_job(), recorded_pod())
    archive_run(tmp_path / "runs", job_path(), written, tmp_path / "state", RECORDED_AT)
    (run,) = archived_runs(tmp_path / "runs")
    assert run.objects == written
    assert run.exit_records() == {"run": ExitRecord(RECORDED_AT.timestamp() - 1, -15)}
    (log,) = run.folder.rglob("*.log")
    assert log.read_text() == "2026-01-01T00:00:00.000000000Z stdout F hello\n"


def test_logs_of_pods_that_are_not_the_jobs_are_left_out(tmp_path: Path) -> None:
    write_container_log(tmp_path / "state", "hello", uid="another")
    archive_run(
        tmp_path / "runs",
        job_path(),
        stored_objects(recorded_job(), recorded_pod()),
        tmp_path / "state",
        RECORDED_AT,
    )
    assert not list((tmp_path / "runs").rglob("*.log"))


def test_of_each_container_the_last_two_runs_are_kept(tmp_path: Path) -> None:
    for attempt in range(4):
        write_container_log(tmp_path / "state", f"attempt {attempt}", attempt=attempt)
    archive_run(
        tmp_path / "runs",
        job_path(),
        stored_objects(recorded_job(), recorded_pod()),
        tmp_path / "state",
        RECORDED_AT,
    )
    assert sorted(file.name for file in (tmp_path / "runs").rglob("*.log")) == ["2.log", "3.log"]


def test_a_new_run_of_a_job_replaces_the_one_before(tmp_path: Path) -> None:
    archive(tmp_path, "a")
    archive(tmp_path, "b", 1)
    newest = archive(tmp_path, "a", 2)
    assert names(tmp_path) == ["b", "a"]
    assert archived_runs(tmp_path)[-1].folder == newest


def test_only_the_newest_few_stay(tmp_path: Path) -> None:
    for second in range(5):
        archive(tmp_path, f"job-{second}", second, most=3)
    assert names(tmp_path) == ["job-2", "job-3", "job-4"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".lock"]
    assert len(list(tmp_path.iterdir())) == 4


def test_what_a_writer_left_that_was_killed_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".new" / "pods").mkdir(parents=True)
    archive(tmp_path)
    assert names(tmp_path) == ["small"]
    assert not (tmp_path / ".new").exists()


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = archive(tmp_path / "runs")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    archive(tmp_path, "good")
    (archive(tmp_path, "broken", 1) / "objects.json").write_text("{")
    (archive(tmp_path, "later", 2) / "objects.json").write_text('{"format": 99, "objects": {}}')
    (archive(tmp_path, "gone", 3) / "objects.json").unlink()
    assert names(tmp_path) == ["good"]


def test_a_place_that_cannot_be_written_is_told_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        archive(tmp_path / "file" / "runs")


def test_runs_that_end_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3]);"
        "from support.builders.runs import *; from gangline.local.archive.runs import archive_run;"
        "runs = Path(sys.argv[1]);"
        "[archive_run(runs, job_path(f'{sys.argv[2]}-{n}'), stored_objects(recorded_job(f'{sys.argv[2]}-{n}')), runs, RECORDED_AT) for n in range(5)]"
    )
    tests_folder = str(Path(__file__).parents[3])
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name, tests_folder], env=dict(os.environ))
        for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert sorted(names(tmp_path)) == sorted(f"{name}-{number}" for name in "ab" for number in range(5))


def test_the_end_of_a_log_is_whole_lines_across_its_files(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    (tmp_path / "0.log.2").write_text("one\ntwo\n")
    (tmp_path / "0.log.1").write_text("three\n")
    log.write_text("four\n")
    assert log_tail(log, 1000) == b"one\ntwo\nthree\nfour\n"
    assert log_tail(log, 16) == b"two\nthree\nfour\n"
    assert log_tail(log, 14) == b"three\nfour\n"
    assert log_tail(log, 10) == b"four\n"
    assert log_tail(log, 3) == b""
    assert log_tail(tmp_path / "none", 3) == b""


def test_a_large_team_gets_less_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_TOTAL_LOG_BYTES", 1000)
    pods = [recorded_pod(f"small-worker-{index}", uid=f"u{index}") for index in range(4)]
    for index in range(4):
        write_container_log(tmp_path / "state", "word\n" * 100, name=f"small-worker-{index}", uid=f"u{index}")
    archive_run(tmp_path / "runs", job_path(), stored_objects(recorded_job(), *pods), tmp_path / "state", RECORDED_AT)
    logs = list((tmp_path / "runs").rglob("*.log"))
    assert len(logs) == 4
    assert all(0 < log.stat().st_size <= 250 for log in logs)
