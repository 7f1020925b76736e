"""Which faults a job had: who ended how, at which step, how long after the start."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.replay.bundle import FaultCause
from gangline.replay.faults import JobHistory, recorded_faults, replica_records

START, END = "2026-11-18T03:00:00Z", "2026-11-18T03:02:30Z"


def job(*, failed: bool = True, **status: Any) -> JSON:
    conditions = [{"type": "Failed", "status": "True"}] if failed else [{"type": "Running", "status": "True"}]
    return {
        "metadata": {"name": "bert", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}},
        "status": {"conditions": conditions, "startTime": START, **status},
    }


def pod(replica: str, *, phase: str = "Failed", end: JSON | None = None, reason: str = "", **status: Any) -> JSON:
    state = {"terminated": {"startedAt": START, "finishedAt": END, **end}} if end else {"running": {"startedAt": START}}
    return {
        "metadata": {"name": f"bert-{replica}", "annotations": status.pop("annotations", {})},
        "spec": {"containers": [{"name": "pytorch"}], "nodeName": "n1"},
        "status": {
            "phase": phase,
            "reason": reason,
            "startTime": START,
            "containerStatuses": [{"name": "pytorch", "state": state, "restartCount": 0}] if end or not reason else [],
            **status,
        },
    }


@pytest.mark.parametrize(
    ("end", "reason", "cause", "signal"),
    [
        ({"exitCode": 3, "reason": "Error"}, "", FaultCause.EXIT, 0),
        ({"exitCode": 1}, "", FaultCause.EXIT, 0),
        ({"exitCode": 137, "reason": "Error"}, "", FaultCause.SIGNAL, 9),
        ({"exitCode": 139, "signal": 11}, "", FaultCause.SIGNAL, 11),
        ({"exitCode": 137, "reason": "OOMKilled"}, "", FaultCause.OOM, 9),
        ({"exitCode": 137}, "Evicted", FaultCause.EVICTED, 0),
        (None, "Evicted", FaultCause.EVICTED, 0),
        (None, "NodeLost", FaultCause.NODE_LOST, 0),
        (None, "UnexpectedAdmissionError", FaultCause.REJECTED, 0),
        (None, "OutOfcpu", FaultCause.REJECTED, 0),
    ],
)
def test_how_it_ended(end: JSON | None, reason: str, cause: FaultCause, signal: int) -> None:
    [fault] = recorded_faults(JobHistory(job(), [pod("worker-1", end=end, reason=reason)]))
    assert (fault.replica, fault.cause, fault.signal) == ("worker-1", cause, signal)


def test_a_pod_that_kubernetes_disrupted_says_so_in_a_condition() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    [fault] = recorded_faults(JobHistory(job(), [pod("worker-1", end={"exitCode": 143}, conditions=[condition])]))
    assert fault.cause is FaultCause.NODE_LOST


def test_when_it_failed_is_the_last_step_in_its_log_and_the_time_since_its_start() -> None:
    lines = ['{"progress": {"step": 11}}', "Traceback", '{"progress": {"step": 12}}', "ValueError: nan"]
    history = JobHistory(job(), [pod("worker-1", end={"exitCode": 1})], {"bert-worker-1": lines})
    [fault] = recorded_faults(history)
    assert (fault.step, fault.after_seconds) == (12, 150.0)


def test_without_a_line_in_the_log_the_annotation_says_the_step() -> None:
    reported = {"training.gangline.dev/progress": '{"progress": {"step": 7}}'}
    [fault] = recorded_faults(JobHistory(job(), [pod("worker-1", end={"exitCode": 1}, annotations=reported)]))
    assert fault.step == 7


def test_the_first_failure_of_the_status_is_the_first_and_the_rest_are_consequences() -> None:
    first = {"replica": "worker-1", "exitCode": 3, "time": END}
    pods = [
        pod("worker-0", end={"exitCode": 1, "finishedAt": "2026-11-18T03:02:29Z"}),
        pod("worker-1", end={"exitCode": 3}),
        pod("master-0", end={"exitCode": 1, "finishedAt": "2026-11-18T03:02:32Z"}),
    ]
    faults = recorded_faults(JobHistory(job(firstFailure=first), pods))
    assert [(one.replica, one.is_consequence, one.delay) for one in faults] == [
        ("worker-1", False, 0.0),
        ("worker-0", True, 0.0),
        ("master-0", True, 2.0),
    ]


def test_where_the_status_names_nobody_the_diagnosis_does() -> None:
    pods = [
        pod("worker-0", end={"exitCode": 1, "finishedAt": "2026-11-18T03:02:29Z"}),
        pod("worker-1", end={"exitCode": 3}),
    ]
    faults = recorded_faults(JobHistory(job(), pods, first_replica="worker-1"))
    assert [(one.replica, one.is_consequence) for one in faults] == [("worker-1", False), ("worker-0", True)]


def test_the_first_failure_is_known_when_its_pod_is_gone() -> None:
    first = {"replica": "worker-1", "exitCode": 3, "time": END, "log": ['{"progress": {"step": 5}}', "bad"]}
    history = JobHistory(job(firstFailure=first, restarts=2), [pod("worker-1", phase="Running")])
    [fault] = recorded_faults(history)
    assert (fault.replica, fault.exit_code, fault.step, fault.repeats) == ("worker-1", 3, 5, True)
    assert {one.name: one.log for one in replica_records(history)}["worker-1"] == ('{"progress": {"step": 5}}', "bad")


def test_a_restarted_container_shows_how_it_ended_before() -> None:
    restarted = pod("worker-1", phase="Running")
    restarted["status"]["containerStatuses"][0] |= {
        "lastState": {"terminated": {"exitCode": 1, "startedAt": START, "finishedAt": END}},
        "restartCount": 1,
    }
    logs = {"bert-worker-1": ['{"progress": {"step": 90}}']}
    previous = {"bert-worker-1": ['{"progress": {"step": 40}}', "boom"]}
    history = JobHistory(job(failed=False), [restarted], logs, previous)
    [fault] = recorded_faults(history)
    assert (fault.step, fault.repeats) == (40, False)
    assert {one.name: one.log for one in replica_records(history)}["worker-1"] == tuple(previous["bert-worker-1"])


def test_a_stalled_job_hangs_where_its_condition_says() -> None:
    stalled = {
        "type": "Stalled",
        "status": "True",
        "message": "2 of 3 ranks wait in all_reduce; worker-1 (rank 2) is stopped",
        "lastTransitionTime": END,
    }
    pods = [pod(name, phase="Running") for name in ("master-0", "worker-0", "worker-1")]
    lines = {"bert-worker-1": ['{"progress": {"step": 30}}']}
    [fault] = recorded_faults(JobHistory(job(failed=False, conditions=[stalled]), pods, lines))
    assert (fault.replica, fault.cause, fault.step, fault.after_seconds) == ("worker-1", FaultCause.HANG, 30, 150.0)


def test_a_job_without_trouble_has_no_faults() -> None:
    pods = [pod(name, phase="Running") for name in ("master-0", "worker-0", "worker-1")]
    history = JobHistory(job(failed=False), pods)
    assert recorded_faults(history) == ()
    assert [one.name for one in replica_records(history)] == ["master-0", "worker-0", "worker-1"]


def test_the_rate_of_a_replica_is_its_steps_by_its_time() -> None:
    lines = {"bert-worker-1": ['{"progress": {"step": 300, "total": 1000}}']}
    records = replica_records(JobHistory(job(), [pod("worker-1", end={"exitCode": 1})], lines))
    record = {one.name: one for one in records}["worker-1"]
    assert (record.rate, record.total, record.node) == (2.0, 1000, "n1")
