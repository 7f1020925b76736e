"""From frames to lines: how a running job is drawn."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
)
from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_ANNOTATION, IN_PLACE_REASON
from gangline.cli.follow.view import (
    JobFrame,
    ReplicaState,
    RestartHistory,
    job_lines,
    plain_progress,
    replica_condition,
    replica_line,
    updated_history,
)
from gangline.cli.output.text import duration_text, elapsed_text, number_text, plain_text
from gangline.node.usage import ResourceUsage
from gangline.progress.line import Progress
from gangline.testing.builders import make_member

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def worker(index: int = 1, **more: Any) -> Pod:
    return make_member("Worker", index, **more)


def waiting(reason: str, **more: Any) -> Pod:
    pod = worker(**more)
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason))
    status = msgspec.structs.replace(pod.status, container_statuses=(ContainerStatus(name="tensorflow", state=state),))
    return msgspec.structs.replace(pod, status=status)


def test_the_block_reads_like_the_first_minute() -> None:
    killed = updated_history(RestartHistory(), worker(2, phase="Failed", exit_code=137, uid="a"))
    frame = JobFrame(
        "TFJob",
        "linear",
        "Running",
        (
            ReplicaState("ps-0", make_member("PS")),
            ReplicaState("worker-0", worker(0), RestartHistory(), Progress(240, 400, {"loss": 0.113})),
            ReplicaState("worker-1", worker(1), RestartHistory(), Progress(3)),
            ReplicaState("worker-2", None, killed),
            ReplicaState("worker-3"),
        ),
        {"PS": 1, "Worker": 4},
        7.9,
    )
    assert [plain_text(line) for line in job_lines(frame, 70, 10)] == [
        "tfjob/linear  ps 1 · worker 4                           Running  00:07",
        "  ps-0      ● running      0 restarts  ",
        "  worker-0  ● running      0 restarts  step 240/400  60 %  loss 0.113",
        "  worker-1  ● running      0 restarts  step 3",
        "  worker-2  ◐ restarting   0 restarts  exit 137 (SIGKILL)",
        "  worker-3  ○ waiting      0 restarts  ",
    ]


@pytest.mark.parametrize(
    ("replica", "light", "word"),
    [
        (ReplicaState("worker-1"), "○", "waiting"),
        (ReplicaState("worker-1", worker(phase="Pending")), "◐", "starting"),
        (ReplicaState("worker-1", waiting("ContainerCreating", phase="Pending")), "◐", "starting"),
        (ReplicaState("worker-1", waiting("ErrImagePull", phase="Pending")), "◐", "stuck"),
        (ReplicaState("worker-1", worker()), "●", "running"),
        (
            ReplicaState("worker-1", waiting("CrashLoopBackOff"), RestartHistory({"a": 1}, 1)),
            "◐",
            "restarting",
        ),
        (
            ReplicaState("worker-1", worker(phase="Pending"), RestartHistory({"a": 0, "b": 0}, 137)),
            "◐",
            "restarting",
        ),
        (ReplicaState("worker-1", worker(phase="Succeeded")), "✔", "succeeded"),
        (ReplicaState("worker-1", worker(phase="Failed", exit_code=1)), "✖", "failed"),
        (ReplicaState("worker-1", worker(leaving=NOW)), "◐", "stopping"),
        (ReplicaState("worker-1", None, RestartHistory({"a": 0})), "◐", "restarting"),
    ],
)
def test_each_condition_of_a_replica_has_a_light(replica: ReplicaState, light: str, word: str) -> None:
    assert replica_condition(replica)[:2] == (light, word)


def between_starts(code: int, reason: str) -> Pod:
    """A pod that restarts in place, whose program has ended."""
    pod = worker(uid="a")
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason=reason))
    statuses = (
        ContainerStatus(name="tensorflow", restart_count=1, state=state),
        ContainerStatus(name=HOLD_CONTAINER, restart_count=1, state=ContainerState(running=ContainerStateRunning())),
    )
    metadata = msgspec.structs.replace(pod.metadata, annotations={IN_PLACE_ANNOTATION: "2 stop"})
    status = msgspec.structs.replace(pod.status, container_statuses=statuses)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)


def test_a_replica_that_its_node_stopped_for_a_restart_has_not_failed() -> None:
    stopped, failed = between_starts(143, IN_PLACE_REASON), between_starts(42, "Error")
    assert updated_history(RestartHistory(), stopped) == RestartHistory({"a": 1}, None)
    assert updated_history(RestartHistory(), failed) == RestartHistory({"a": 1}, 42)
    for pod in (stopped, failed):
        assert replica_condition(ReplicaState("worker-1", pod))[1] == "restarting"


def test_no_replica_of_a_finished_job_is_running() -> None:
    replicas = (
        ReplicaState("ps-0", make_member("PS")),
        ReplicaState("worker-0", worker(0, phase="Succeeded")),
        ReplicaState("worker-1"),
    )
    lines = [plain_text(line).split()[1:3] for line in job_lines(JobFrame("TFJob", "x", "Succeeded", replicas), 80)[1:]]
    assert lines == [["○", "stopped"], ["✔", "succeeded"], ["○", "stopped"]]


def test_the_reason_of_a_stuck_container_is_shown() -> None:
    assert "ErrImagePull" in plain_text(
        replica_line(ReplicaState("worker-1", waiting("ErrImagePull", phase="Pending")))
    )


def test_restarts_are_replaced_pods_plus_restarted_containers() -> None:
    history = updated_history(RestartHistory(), worker(phase="Failed", exit_code=137, uid="a"))
    assert (history.restarts, history.exit_code) == (0, 137)
    history = updated_history(history, worker(uid="b"))
    assert (history.restarts, history.exit_code) == (1, 137)
    history = updated_history(history, worker(uid="b", restarts=2))
    assert updated_history(history, worker(uid="b", restarts=2)).restarts == 3
    assert "1 restart " in plain_text(
        replica_line(ReplicaState("worker-1", worker(), RestartHistory({"a": 0, "b": 0})))
    )


def test_a_recovered_replica_shows_its_progress_and_no_old_exit_code() -> None:
    replica = ReplicaState("worker-1", worker(), RestartHistory({"a": 0, "b": 0}, 137), Progress(1, 2))
    assert "137" not in plain_text(replica_line(replica))
    assert "50 %" in plain_text(replica_line(replica))


def test_a_big_job_shows_the_replicas_that_need_attention() -> None:
    replicas = [ReplicaState(f"worker-{index}", worker(index)) for index in range(100)]
    replicas[70] = ReplicaState("worker-70", worker(70, phase="Failed", exit_code=1))
    lines = [plain_text(line) for line in job_lines(JobFrame("TFJob", "big", "Running", tuple(replicas)), 80, 4)]
    assert [line.split()[0] for line in lines[1:5]] == ["worker-0", "worker-1", "worker-2", "worker-70"]
    assert lines[5] == "  … and 96 more"


@pytest.mark.parametrize("width", [10, 40, 100])
def test_no_line_of_a_replica_is_wider_than_the_screen(width: int) -> None:
    replica = ReplicaState(
        "worker-1", worker(), RestartHistory(), Progress(1, 10**9, {"loss": 1.0, "accuracy": 0.123456})
    )
    lines = job_lines(JobFrame("TFJob", "x", "Running", (replica,)), width, 4)
    assert all(len(plain_text(line)) <= width for line in lines[1:])


@pytest.mark.parametrize(
    ("share", "full"), [(0.0, 0), (0.049, 0), (0.05, 1), (0.5, 10), (0.999, 19), (1.0, 20), (2.0, 20)]
)
def test_the_bar_is_full_only_at_the_end(share: float, full: int) -> None:
    line = plain_text(replica_line(ReplicaState("worker-1", worker(), RestartHistory(), Progress(share * 1000, 1000))))
    bar = line[line.index("/1000") + 6 :].split()[0]
    assert len(bar) == 20
    assert bar == "━" * full + ("╺" + "━" * (19 - full) if full < 20 else "")


def test_usage_is_shown_where_there_is_room() -> None:
    replica = ReplicaState(
        "worker-1", worker(), RestartHistory(), Progress(200, 400), usage=ResourceUsage(0.31, 44_200_000)
    )
    assert "  31 % cpu     44 MB   step 200/400 ━━" in plain_text(replica_line(replica, 8, 110))
    assert "cpu" not in plain_text(replica_line(replica, 8, 80))
    assert "cpu" not in plain_text(replica_line(msgspec.structs.replace(replica, pod=worker(phase="Failed")), 8, 110))


def test_the_bar_is_shortened_for_longer_numbers() -> None:
    replica = ReplicaState("worker-1", worker(), RestartHistory(), Progress(200, 400, {"loss": 0.113}))
    shown = [plain_text(replica_line(replica, 8, width)).split("/400")[1] for width in (120, 80, 70)]
    assert shown == [
        " ━━━━━━━━━━╺━━━━━━━━━  50 %  loss 0.113",
        " ━━━╺━━━  50 %  loss 0.113",
        "  50 %  loss 0.113",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.113, "0.113"),
        (1.9234, "1.92"),
        (12345.0, "12300"),
        (0.0000452, "0.0000452"),
        (1e-9, "1.00e-09"),
        (-0.5, "-0.5"),
        (2e12, "2.00e+12"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, said: str) -> None:
    assert number_text(value) == said


def test_durations_are_short() -> None:
    assert [elapsed_text(0), elapsed_text(61.9), elapsed_text(3723)] == ["00:00", "01:01", "1:02:03"]
    assert [duration_text(0.64), duration_text(14.2), duration_text(125)] == ["0.6 s", "14 s", "2 min 5 s"]


def test_progress_as_plain_text() -> None:
    assert plain_progress(Progress(240, 400, {"loss": 0.113})) == "step 240/400  60 %  loss 0.113"
    assert plain_progress(Progress(7, None, {"reward": 3})) == "step 7  reward 3"
    assert plain_progress(Progress(240, 400, {"loss": 0.1}, 130)) == "step 240/400  60 %  2m10s left  loss 0.1"
    assert plain_progress(Progress(400, 400, {}, 0)) == "step 400/400  100 %"


def test_the_time_that_is_left_stands_beside_the_bar() -> None:
    replica = ReplicaState("worker-0", worker(0), progress=Progress(240, 400, {"loss": 0.113}, 130))
    assert re.search(r"━ +60 %  2m10s left +loss 0\.113$", plain_text(replica_line(replica)))


def test_of_many_metrics_those_are_shown_for_which_there_is_room() -> None:
    metrics = {"loss": 0.5, "grad_norm": 1.5, "learning_rate": 2e-05, "epoch": 0.5, "train_runtime": 12.5}
    replica = ReplicaState("worker-0", worker(0), progress=Progress(240, 400, metrics))
    wide, narrow = plain_text(replica_line(replica, width=200)), plain_text(replica_line(replica, width=100))
    assert "train_runtime 12.5" in wide
    assert "loss 0.5" in narrow
    assert "train_runtime" not in narrow
    assert len(narrow) <= 100


def test_on_a_narrow_terminal_the_metric_has_the_room_of_restarts_that_did_not_happen() -> None:
    progress = Progress(200, 200, {"loss": 7.23e-07})
    replica = ReplicaState("worker-0", progress=progress, ranked_name="worker-0 (rank 1)")
    restarted = msgspec.structs.replace(replica, history=RestartHistory({"a": 1}))
    narrow = plain_text(job_lines(JobFrame("PyTorchJob", "net", "Running", (replica,)), 79)[1])
    assert narrow.endswith("loss 7.23e-07")
    assert "restart" not in narrow
    assert "0 restarts" in plain_text(job_lines(JobFrame("PyTorchJob", "net", "Running", (replica,)), 99)[1])
    assert "1 restart" in plain_text(job_lines(JobFrame("PyTorchJob", "net", "Running", (restarted,)), 79)[1])


def test_the_bar_of_a_program_is_shown_where_it_reports_no_progress() -> None:
    bar = "Epoch 1:  50%|█████     | 50/100 [00:01<00:01, 51.2it/s]"
    running = ReplicaState("worker-0", worker(0), bar=bar)
    assert plain_text(replica_line(running)).endswith(f"0 restarts  {bar}")
    assert plain_text(replica_line(running, width=60)) == plain_text(replica_line(running))[:60]
    assert bar not in plain_text(replica_line(msgspec.structs.replace(running, progress=Progress(3))))
    assert bar not in plain_text(replica_line(running, finished=True))
