"""Diagnoses of teams: who was first, who only suffers, who waits, and which rank a replica has."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.quantity import parse_resources
from gangline.cli.jobs.why import PARTLY_READ_TEXT, report_text
from gangline.why.diagnosis.case import DiagnosisTimeouts, EventFact, JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.diagnose import diagnose, with_ranks
from gangline.why.diagnosis.report import Diagnosis
from support.cases.why import (
    failed_condition,
    failed_replica,
    make_condition,
    make_job_facts,
    make_replica_facts,
    make_snapshot,
    minutes_ago,
    terminated_state,
    waiting_state,
)

LED = {"Master": 1, "Worker": 2}
IDLE, BUSY = parse_resources({"cpu": "1m"})["cpu"], parse_resources({"cpu": "900m"})["cpu"]


def causes(report: Diagnosis) -> list[tuple[str, tuple[str, ...]]]:
    return [(cause.rule, cause.replicas) for cause in report.causes]


def as_master(replica: ReplicaFacts) -> ReplicaFacts:
    """The replica as the master of its team."""
    metadata = msgspec.structs.replace(replica.pod.metadata, name="bert-master-0", uid="u-m")
    return msgspec.structs.replace(
        replica, name="master-0", type="Master", pod=msgspec.structs.replace(replica.pod, metadata=metadata)
    )


# Silence


def silent_team(**more: Any) -> JobSnapshot:
    replicas = (make_replica_facts(index, last_log_at=minutes_ago(25), **more) for index in range(2))
    return make_snapshot(make_job_facts(), *replicas)


def test_a_silent_job_whose_cpu_use_is_unknown_is_not_called_healthy() -> None:
    case = msgspec.structs.replace(silent_team(), usage_error="the server has no metrics API (metrics.k8s.io)")
    report = diagnose(case)
    assert report.healthy
    (unread,) = report.unread
    assert unread.startswith("CPU use of the pods: the server has no metrics API (metrics.k8s.io)")
    assert PARTLY_READ_TEXT in report_text(report)


def test_cpu_use_of_a_job_that_writes_lines_is_not_missed() -> None:
    case = make_snapshot(make_job_facts(), make_replica_facts(0), make_replica_facts(1), usage_error="forbidden")
    assert diagnose(case).unread == ()


def test_a_silent_and_idle_job_hangs() -> None:
    report = diagnose(silent_team(cpu=IDLE))
    assert causes(report) == [("hung", ("worker-0", "worker-1"))]
    assert report.cause.startswith("worker-0 (rank 0) and worker-1 (rank 1) hang: ")
    assert report.unread == ()


def test_a_job_that_is_silent_for_a_minute_says_how_to_ask_again() -> None:
    quiet = (make_replica_facts(index, last_log_at=minutes_ago(1.5)) for index in range(2))
    (note,) = diagnose(make_snapshot(make_job_facts(), *quiet)).notes
    assert note == (
        "no replica has written a line for 90 s; does it hang? gangline why bert --hung-after 60s -n team-a"
    )


def test_a_run_that_was_stopped_in_silence_says_so() -> None:
    facts = make_job_facts(run_ended_at=minutes_ago(0), run_end_reason="the run was interrupted")
    case = msgspec.structs.replace(silent_team(), job=facts, timeouts=DiagnosisTimeouts(hung_after=timedelta(hours=9)))
    assert diagnose(case).notes[-1] == "no replica had written a line for 25 min then"


# Probes


def test_a_failing_readiness_probe_is_no_health() -> None:
    event = EventFact(
        "Unhealthy", "Readiness probe failed: no such file\n", warning=True, time=minutes_ago(1), count=12
    )
    report = diagnose(make_snapshot(make_job_facts(), make_replica_facts(0, events=(event,)), make_replica_facts(1)))
    assert causes(report) == [("not-ready", ("worker-0",))]
    assert any("Readiness probe failed: no such file (at " in line and "12 times" in line for line in report.evidence)


def test_a_pod_that_stays_unready_without_an_event_is_found() -> None:
    unready = make_condition("Ready", "ContainersNotReady", "containers with unready status: [pytorch]", "False")
    unready = msgspec.structs.replace(unready, last_transition_time=minutes_ago(20))
    report = diagnose(
        make_snapshot(make_job_facts(), make_replica_facts(0, conditions=(unready,)), make_replica_facts(1))
    )
    assert causes(report) == [("not-ready", ("worker-0",))]


def test_a_probe_that_passes_by_now_is_no_cause() -> None:
    event = EventFact("Unhealthy", "Readiness probe failed: not yet", warning=True, time=minutes_ago(20))
    replica = make_replica_facts(0, events=(event,))
    status = replica.pod.status
    ready = tuple(msgspec.structs.replace(one, ready=True) for one in status.container_statuses)
    pod = msgspec.structs.replace(replica.pod, status=msgspec.structs.replace(status, container_statuses=ready))
    assert diagnose(make_snapshot(make_job_facts(), msgspec.structs.replace(replica, pod=pod))).healthy


@pytest.mark.parametrize("code", [137, 143, 3])
def test_who_was_killed_by_its_own_liveness_probe_is_the_cause(code: int) -> None:
    killing = EventFact(
        "Unhealthy",
        "Liveness probe failed: HTTP probe failed with statuscode: 500",
        warning=True,
        time=minutes_ago(2.2),
    )
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, "RuntimeError: the ring is broken, worker-1 no longer answers", at=2.0),
        failed_replica(1, code, "step 7", at=2.0, events=(killing,)),
    )
    report = diagnose(case)
    assert causes(report)[0] == ("probe-failed", ("worker-1",))
    assert len(report.causes) == 1
    assert "livenessProbe" in report.cause


def test_a_probe_event_of_an_earlier_run_is_not_why_it_ended() -> None:
    old = EventFact("Unhealthy", "Liveness probe failed: timeout", warning=True, time=minutes_ago(30))
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(1, 1, "Traceback (most recent call last):", "ValueError: bad", at=2, events=(old,)),
    )
    assert causes(diagnose(case)) == [("python-exception", ("worker-1",))]


# Who was first


def error_at(replica: ReplicaFacts, seconds: float) -> ReplicaFacts:
    """The replica with the time of its traceback, so many seconds before it ended."""
    state = replica.pod.status.container_statuses[0].state.terminated
    assert state is not None
    assert state.finished_at is not None
    moment = state.finished_at - timedelta(seconds=seconds)
    return msgspec.structs.replace(replica, error_times={"pytorch": (moment, moment)})


@pytest.mark.parametrize(
    "complaint", ["ValueError: rank 1 is not there", "Fatal: der Kollege antwortet nicht", "AssertionError"]
)
def test_whose_error_came_first_is_the_cause_even_if_it_ended_last(complaint: str) -> None:
    """The one with the error may take its time to end; its peers complain in words that nobody knows, and end first."""
    header = "Traceback (most recent call last):"
    case = make_snapshot(
        make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}),
        error_at(failed_replica(0, 1, header, complaint, at=2.05), 0.2),
        error_at(failed_replica(1, 1, header, "KeyError: 'label'", at=2.0), 4),
        error_at(failed_replica(2, 1, header, complaint, at=2.05), 0.1),
    )
    report = diagnose(case)
    assert causes(report) == [("python-exception", ("worker-1",))]
    assert "KeyError" in report.cause
    assert any(line.startswith("worker-0 (rank 0) and worker-2 (rank 2) then ") for line in report.evidence)


def test_who_was_killed_comes_before_a_complaint_in_the_same_second() -> None:
    header = "Traceback (most recent call last):"
    complaint = failed_replica(0, 1, header, "ValueError: nobody there", at=2)
    complaint = msgspec.structs.replace(
        complaint, error_times={"pytorch": (minutes_ago(2) + timedelta(milliseconds=300),) * 2}
    )
    case = make_snapshot(make_job_facts("Failed", failed_condition()), complaint, failed_replica(1, 137, at=2))
    assert causes(diagnose(case)) == [("killed", ("worker-1",))]


def test_the_same_error_of_all_replicas_is_one_cause_of_all() -> None:
    lines = ("Traceback (most recent call last):", "ValueError: no shard {}")
    replicas = (failed_replica(i, 1, *(line.format(7) for line in lines), at=2 - i / 60) for i in range(3))
    case = make_snapshot(make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}), *replicas)
    assert causes(diagnose(case)) == [("python-exception", ("worker-0", "worker-1", "worker-2"))]


# Stragglers


def test_a_straggler_of_two_is_found() -> None:
    case = make_snapshot(
        make_job_facts(), make_replica_facts(0, log=("step 400",)), make_replica_facts(1, log=("step 90",))
    )
    report = diagnose(case)
    assert causes(report) == [("straggler", ("worker-1",))]
    assert "slower than its peer" in report.cause


def test_a_slow_master_is_found_among_its_workers() -> None:
    case = make_snapshot(
        make_job_facts(desired_replicas=LED),
        as_master(make_replica_facts(0, log=("step 90",))),
        make_replica_facts(0, log=("step 400",)),
        make_replica_facts(1, log=("step 398",)),
    )
    report = diagnose(case)
    assert causes(report) == [("straggler", ("master-0",))]
    assert report.cause.startswith("master-0 (rank 0) is slower than the others")
    assert "worker-1 (rank 2) 398" in report.evidence[0]


def test_the_evaluator_is_not_compared() -> None:
    evaluator = msgspec.structs.replace(make_replica_facts(1, log=("step 5",)), type="Evaluator", name="evaluator-0")
    case = make_snapshot(make_job_facts(kind="TFJob"), make_replica_facts(0, log=("step 400",)), evaluator)
    assert diagnose(case).healthy


# Ranks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker-1 failed", "worker-1 (rank 2) failed"),
        ("a peer (worker-0) left", "a peer (worker-0, rank 1) left"),
        ("pod bert-worker-1 and spec.worker-1", "pod bert-worker-1 and spec.worker-1"),
        ("worker-1 (rank 2) failed", "worker-1 (rank 2) failed"),
        ("node-1 and worker-9", "node-1 and worker-9"),
    ],
)
def test_ranks_are_shown_beside_replica_names(text: str, expected: str) -> None:
    assert with_ranks(text, make_job_facts(desired_replicas=LED)) == expected


def test_ranks_that_are_not_fixed_are_not_shown() -> None:
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, ranks_per_replica=None)) == "worker-1"
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, kind="TFJob")) == "worker-1"


def test_several_processes_of_a_replica_have_several_ranks() -> None:
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, ranks_per_replica=4)) == "worker-1 (ranks 8-11)"


def test_a_job_of_one_replica_needs_no_ranks() -> None:
    case = make_snapshot(
        make_job_facts(desired_replicas={"Worker": 1}),
        make_replica_facts(0, state=waiting_state("CrashLoopBackOff"), last=terminated_state(3), restarts=3),
    )
    assert diagnose(case).cause.startswith("worker-0 ended")
