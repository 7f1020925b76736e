"""How runs ended, and what a restarted node finds of them."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gangline.node.checkpoint import ExitRecord, KillReason, RunFiles, RunRecord, StartRecord
from gangline.node.pod_types import RunContainerStatus
from gangline.node.pods.plan import ContainerRun
from gangline.node.pods.recovery import LOST_CONTAINER, OOM_KILLED, RunPhase, ended_run, recover_run, runs_from_status
from gangline.testing.clock import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = RunRecord("id", 2, 1)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    run_files = RunFiles(tmp_path / "main", 2)
    run_files.begin(RECORD)
    return run_files


def write_exit(files: RunFiles, **fields: object) -> None:
    files.exit_file.write_bytes(msgspec.json.encode({"at": NOW.timestamp(), **fields}))


def write_start(files: RunFiles) -> None:
    files.start_file.write_bytes(msgspec.json.encode(StartRecord(shim=1, pid=2, at=NOW.timestamp())))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"code": 0}, (0, 0, "Completed", "")),
        ({"code": 3}, (3, 0, "Error", "")),
        ({"code": -15}, (143, 15, "Error", "")),
        ({"failed": "x: No such file"}, (128, 0, "StartError", "exec: x: No such file")),
    ],
)
def test_an_exit_is_what_the_shim_recorded(
    files: RunFiles, fields: dict[str, object], expected: tuple[int, int, str, str]
) -> None:
    write_exit(files, **fields)
    ended = ended_run(ContainerRun(2), files, "File", NOW).exit
    assert ended is not None
    assert (ended.exit_code, ended.signal, ended.reason, ended.message) == expected


def test_the_reason_of_the_node_wins_over_the_exit_code(files: RunFiles) -> None:
    write_exit(files, code=1)
    files.write_kill_reason(KillReason(OOM_KILLED, "peak memory 5Mi"))
    ended = ended_run(ContainerRun(2), files, "File", NOW).exit
    assert ended is not None
    assert (ended.exit_code, ended.reason, ended.message) == (137, OOM_KILLED, "peak memory 5Mi")


def test_a_drill_decides_the_exit_code(files: RunFiles) -> None:
    write_exit(files, code=-9)
    files.write_kill_reason(KillReason("Error", exit_code=3))
    ended = ended_run(ContainerRun(2), files, "File", NOW).exit
    assert ended is not None
    assert (ended.exit_code, ended.signal, ended.reason) == (3, 0, "Error")


def test_the_end_of_the_log_explains_a_failure_if_the_policy_says_so(files: RunFiles) -> None:
    write_exit(files, code=1)
    files.log_file.write_bytes(b"2026-01-01T00:00:00.000000000Z stderr F broken\n")
    ended = ended_run(ContainerRun(2), files, "FallbackToLogsOnError", NOW).exit
    assert ended is not None
    assert ended.message == "broken\n"


def test_a_run_that_never_started_is_discarded(files: RunFiles) -> None:
    assert recover_run(files, RECORD, "File", FakeClock()).phase is RunPhase.DISCARDED
    assert files.run_record() is None


def test_a_run_whose_shim_died_is_lost(files: RunFiles) -> None:
    write_start(files)
    recovered = recover_run(files, RECORD, "File", FakeClock())
    assert recovered.phase is RunPhase.ENDED
    assert recovered.run.exit is not None
    assert (recovered.run.exit.exit_code, recovered.run.exit.reason) == (137, LOST_CONTAINER.reason)


def test_a_run_that_ended_meanwhile_keeps_its_times(files: RunFiles) -> None:
    write_start(files)
    write_exit(files, code=0)
    recovered = recover_run(files, RECORD, "File", FakeClock())
    assert (recovered.phase, recovered.run.attempt, recovered.run.streak) == (RunPhase.ENDED, 2, 1)
    assert recovered.run.exit is not None
    assert recovered.run.exit.finished_at == ExitRecord(NOW.timestamp()).finished_at


def test_without_files_a_running_container_is_lost_and_an_ended_one_is_as_the_status_says() -> None:
    status = {
        "name": "main",
        "restartCount": 1,
        "containerID": "process://id",
        "lastState": {"terminated": {"exitCode": 7, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    first, second = runs_from_status(msgspec.convert(status, RunContainerStatus), NOW)
    assert first.exit is not None
    assert second.exit is not None
    assert (first.attempt, first.exit.exit_code) == (0, 7)
    assert (second.attempt, second.exit.exit_code, second.exit.reason) == (1, 137, LOST_CONTAINER.reason)


class EndingLock:
    """The lock of a shim that records the exit and ends at the moment when somebody looks at its lock."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files

    def is_held(self) -> bool:
        write_exit(self._files, code=3)
        return False


def test_a_run_that_ends_while_it_is_read_is_not_lost(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    write_start(files)
    monkeypatch.setattr(files, "lock", EndingLock(files))
    recovered = recover_run(files, RECORD, "File", FakeClock())
    assert recovered.phase is RunPhase.ENDED
    assert recovered.run.exit is not None
    assert (recovered.run.exit.exit_code, recovered.run.exit.reason) == (3, "Error")
