"""A job in one row."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.summary.job_rows import PodDetails, job_cells, job_duration, job_reason, ready_text
from gangline.summary.job_state import job_state

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def job(*conditions: str, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A job with these conditions True."""
    return {
        "kind": "TFJob",
        "metadata": {"name": "linear", "creationTimestamp": "2026-01-01T11:57:00Z", **metadata},
        "spec": {"tfReplicaSpecs": {"PS": {}, "Worker": {"replicas": 3}}},
        "status": {
            "conditions": [{"type": kind, "status": "True", "message": f"{kind} it is"} for kind in conditions],
            **(status or {}),
        },
    }


FAILURE = {"replica": "worker-3", "reason": "OOMKilled", "exitCode": 137}


def test_a_healthy_job_has_no_reason() -> None:
    cells = job("Created", "Running", status={"replicaStatuses": {"PS": {"active": 1}, "Worker": {"active": 3}}})
    assert job_cells(cells, NOW) == ["linear", "Running", "4/4", "0", "-", "3m", "-"]


def test_succeeded_replicas_count_as_ready() -> None:
    cells = job(
        "Created",
        "Succeeded",
        status={"replicaStatuses": {"PS": {"succeeded": 1}, "Worker": {"succeeded": 3}}},
    )
    assert (job_state(cells), ready_text(cells)) == ("Succeeded", "4/4")


def test_a_job_that_succeeded_is_complete_although_its_workers_were_removed() -> None:
    """The launcher of an MPIJob succeeds, and its workers are deleted while they run."""
    cells = job("Created", "Succeeded", status={"replicaStatuses": {"PS": {"succeeded": 1}, "Worker": {}}})
    assert ready_text(cells) == "4/4"


def test_ready_counts_ready_pods_and_not_those_that_run() -> None:
    running = job("Running", status={"replicaStatuses": {"PS": {"succeeded": 1}, "Worker": {"active": 3}}})
    details = PodDetails("worker-0: not ready", 1)
    cells = job_cells(running, NOW, pods=details)
    assert (cells[2], cells[-1]) == ("2/4", "worker-0: not ready")
    running["status"]["firstFailure"] = FAILURE
    assert job_reason(running, NOW, details) == "worker-3 OOMKilled, restarting"


def test_a_final_condition_is_the_state_whatever_came_after() -> None:
    assert job_state(job("Created", "Failed", "Blocked")) == "Failed"


def test_a_job_without_conditions_is_pending_and_later_has_no_operator() -> None:
    cells = job()
    assert job_state(cells) == "Pending"
    assert job_reason(cells, NOW) == "no operator has seen it"
    young = job(creationTimestamp="2026-01-01T11:59:58Z")
    assert job_reason(young, NOW) == "-"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (FAILURE, "worker-3 OOMKilled"),
        ({"replica": "worker-1", "reason": "Error", "exitCode": 2}, "worker-1 exit 2"),
        ({"replica": "ps-0", "signal": 9}, "ps-0 killed by signal 9"),
        ({"replica": "ps-0"}, "ps-0 failed"),
    ],
)
def test_the_reason_of_a_failed_job_is_its_first_failure(failure: dict[str, Any], expected: str) -> None:
    assert job_reason(job("Created", "Failed", status={"firstFailure": failure}), NOW) == expected


def test_the_reason_of_a_job_that_lacks_replicas_is_the_restart() -> None:
    short = {"firstFailure": FAILURE, "restarts": 2, "replicaStatuses": {"Worker": {"active": 2}}}
    cells = job_cells(job("Created", "Running", status=short), NOW)
    assert cells[2:4] == ["2/4", "2"]
    assert cells[-1] == "worker-3 OOMKilled, restarting"


def test_a_recovered_job_has_no_reason_any_more() -> None:
    well = {"firstFailure": FAILURE, "replicaStatuses": {"PS": {"active": 1}, "Worker": {"active": 3}}}
    assert job_reason(job("Created", "Running", status=well), NOW) == "-"


def test_the_reason_of_a_blocked_job_is_the_conditions_message() -> None:
    assert job_reason(job("Created", "Blocked"), NOW) == "Blocked it is"


def test_the_duration_of_a_job_ends_when_its_plane_stops() -> None:
    cells = job("Created", "Stopped", status={"startTime": "2026-01-01T11:58:00Z"})
    cells["status"]["conditions"][-1]["lastTransitionTime"] = "2026-01-01T11:59:00Z"
    assert (job_state(cells), job_reason(cells, NOW), job_duration(cells, NOW)) == (
        "Stopped",
        "Stopped it is",
        "60s",
    )


def test_the_queue_is_that_of_kueue_or_of_the_scheduling_policy() -> None:
    cells = job("Created")
    cells["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "gpu"}}
    assert job_cells(cells, NOW)[4] == "gpu"
    assert job_cells(job("Created", labels={"kueue.x-k8s.io/queue-name": "q"}), NOW)[4] == "q"


def test_wide_adds_replicas_duration_phase_and_progress() -> None:
    times = {"startTime": "2026-01-01T11:58:00Z", "completionTime": "2026-01-01T11:58:42Z", "phase": "Done"}
    assert job_cells(job("Succeeded", status=times), NOW, wide=True)[-4:] == [
        "ps 1, worker 3",
        "42s",
        "Done",
        "-",
    ]


def test_a_job_with_a_deletion_timestamp_is_terminating() -> None:
    assert job_state(job("Running", deletionTimestamp="2026-01-01T11:59:00Z")) == "Terminating"


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (None, "-"),
        ({"step": 120, "total": 500, "metrics": {"loss": 0.123456}}, "step 120/500 loss=0.1235"),
        ({"step": 120, "total": 500, "estimatedRemainingSeconds": 187}, "step 120/500 eta=3m7s"),
        ({"step": 500, "total": 500, "estimatedRemainingSeconds": 0}, "step 500/500"),
        ({"step": 5, "estimatedRemainingSeconds": "soon"}, "step 5"),
        ({"step": 5, "metrics": {"a": 1, "b": 2, "loss": 3}}, "step 5 loss=3 a=1 b=2"),
        ({"step": 1234567}, "step 1234567"),
        ({"step": 2.5, "metrics": {"epoch": 3.0, "lr": 1e-5}}, "step 2.5 epoch=3 lr=1e-05"),
        ({"step": "many"}, "-"),
        ({"step": True}, "-"),
        ({"step": 1, "total": "x", "metrics": ["no"]}, "step 1"),
        ("nonsense", "-"),
    ],
)
def test_progress_is_a_short_text(progress: Any, expected: str) -> None:
    assert job_cells(job("Running", status={"progress": progress}), NOW, wide=True)[-1] == expected
