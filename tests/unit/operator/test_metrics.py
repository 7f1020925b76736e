"""Jobs are counted by their status writes: once each, whatever is repeated."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import (
    MPIJOB,
    MPIJOB_V2,
    TRAINING_KINDS,
    MPIJob,
    MPIJobSpec,
    MPIJobV2,
    MPIJobV2Spec,
    TFJob,
    TFJobSpec,
)
from gangline.api.kubeflow.training import GoodputLedger, JobStatus, ReplicaStatus, RunPolicy, SchedulingPolicy
from gangline.api.meta import Condition, ObjectMeta
from gangline.operator.metrics import JobMetrics, queue_of, transitions
from gangline.runtime.cache import Cache
from gangline.testing.clock import FakeClock


def status(*conditions: str, restarts: int = 0) -> JobStatus:
    return JobStatus(conditions=tuple(Condition(type=kind, status="True") for kind in conditions), restarts=restarts)


def test_a_job_is_created_when_something_is_first_said_of_it() -> None:
    assert transitions(status(), status("Created")) == {"created": 1}
    assert transitions(status("Created"), status("Created", "Running")) == {}


def test_a_job_that_is_refused_at_once_is_created_and_failed() -> None:
    assert transitions(status(), status("Failed")) == {"created": 1, "failed": 1}


def test_an_end_is_counted_when_it_comes_and_not_again() -> None:
    assert transitions(status("Created"), status("Created", "Succeeded")) == {"successful": 1}
    assert transitions(status("Created", "Failed"), status("Created", "Failed")) == {}


def test_restarts_are_counted_as_the_status_counts_them() -> None:
    assert transitions(status("Created"), status("Created", restarts=3)) == {"restarted": 3}
    assert transitions(status("Created", restarts=3), status("Created", restarts=3)) == {}


def test_the_names_are_those_that_dashboards_know() -> None:
    registry = CollectorRegistry()
    report = JobMetrics(registry).for_kind(TRAINING_KINDS[0])
    for event in ("created", "deleted", "successful", "failed", "restarted"):
        report.count_job("team", event)
        name = f"training_operator_jobs_{event}_total"
        assert registry.get_sample_value(name, {"job_namespace": "team", "framework": "tensorflow"}) == 1


def test_children_other_than_pods_and_services_are_not_counted() -> None:
    registry = CollectorRegistry()
    report = JobMetrics(registry).for_kind(TRAINING_KINDS[3])
    report.count_child("team", "pods", "created")
    report.count_child("team", "configmaps", "created")
    labels = {"job_namespace": "team", "framework": "mpi"}
    assert registry.get_sample_value("training_operator_pods_created_total", labels) == 1
    assert registry.get_sample_value("training_operator_configmaps_created_total", labels) is None


# Times


LABELS = {"job_namespace": "team", "framework": "tensorflow"}
ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_times_of_a_start_are_observed_once_from_the_pods_of_the_job() -> None:
    registry = CollectorRegistry()
    report = JobMetrics(registry).for_kind(TRAINING_KINDS[0])
    replicas = {"Worker": ReplicaStatus(active=2, states={"Running": 2})}
    running = Condition(type="Running", status="True", last_transition_time=ZERO + timedelta(seconds=30))
    after = JobStatus(conditions=(running,), replica_statuses=replicas, start_time=ZERO)
    metadata = ObjectMeta(name="job", namespace="team", uid="u", creation_timestamp=ZERO)
    job = TFJob(metadata=metadata, spec=TFJobSpec(tf_replica_specs={}))
    asked: list[str] = []

    def pods(uid: str) -> list[Pod]:
        asked.append(uid)
        return [Pod(metadata=ObjectMeta(creation_timestamp=ZERO + timedelta(seconds=2)))]

    report.observe_times(job, after, pods)
    report.observe_times(msgspec.structs.replace(job, status=after), after, pods)
    assert asked == ["u"]
    assert registry.get_sample_value("gangline_job_pods_created_seconds_sum", LABELS) == 2
    assert registry.get_sample_value("gangline_job_pods_created_seconds_count", LABELS) == 1
    assert registry.get_sample_value("gangline_job_all_running_seconds_count", LABELS) is None


def test_what_is_added_to_the_ledger_of_a_job_is_counted_once_by_queue_and_activity() -> None:
    registry = CollectorRegistry()
    report = JobMetrics(registry).for_kind(TRAINING_KINDS[0])
    metadata = ObjectMeta(name="job", namespace="team", uid="u", labels={"kueue.x-k8s.io/queue-name": "research"})
    job = TFJob(metadata=metadata, spec=TFJobSpec(tf_replica_specs={}))

    def write(**seconds: int) -> None:
        nonlocal job
        after = msgspec.structs.replace(
            job.status, goodput=GoodputLedger(since=ZERO, until=ZERO, seconds=dict(seconds))
        )
        report.observe_times(job, after, lambda uid: ())
        job = msgspec.structs.replace(job, status=after)

    def counted(activity: str) -> float | None:
        labels = {**LABELS, "queue": "research", "activity": activity}
        return registry.get_sample_value("gangline_job_replica_seconds_total", labels)

    write(queueing=20)
    write(queueing=20, working=100)
    assert (counted("queueing"), counted("working")) == (20, 100)
    # 60 seconds of work were none, and 10 passed: 170 in all, none of them twice.
    write(queueing=20, working=40, stalled=70)
    assert (counted("queueing"), counted("working"), counted("stalled")) == (20, 100, 10)


def test_the_queue_of_a_job_is_that_of_its_scheduling_policy_without_kueue() -> None:
    policy = RunPolicy(scheduling_policy=SchedulingPolicy(queue="nightly"))
    assert queue_of(TFJob(spec=TFJobSpec(tf_replica_specs={}, run_policy=policy))) == "nightly"
    assert queue_of(TFJob(spec=TFJobSpec(tf_replica_specs={}))) == ""


def job_with(name: str, *conditions: str, age: float = 0) -> TFJob:
    created = ZERO - timedelta(seconds=age)
    return TFJob(
        metadata=ObjectMeta(name=name, namespace="team", creation_timestamp=created),
        spec=TFJobSpec(tf_replica_specs={}),
        status=status(*conditions),
    )


def test_jobs_are_counted_by_state_at_every_scrape_and_the_oldest_that_waits_is_known() -> None:
    registry, jobs = CollectorRegistry(), Cache[TFJob]()
    JobMetrics(registry, FakeClock(ZERO)).states.add_cache(TRAINING_KINDS[0], jobs)
    for job in (
        job_with("new", age=5),
        job_with("waits", "Created", age=70),
        job_with("runs", "Created", "Running", age=900),
        job_with("done", "Created", "Succeeded", age=9000),
    ):
        jobs.put(job)

    def count(state: str) -> float | None:
        return registry.get_sample_value("gangline_jobs", {**LABELS, "state": state})

    counts = {state: count(state) for state in ("Pending", "Created", "Running", "Succeeded", "Failed")}
    assert counts == {"Pending": 1, "Created": 1, "Running": 1, "Succeeded": 1, "Failed": 0}
    assert registry.get_sample_value("gangline_job_oldest_waiting_seconds", LABELS) == 70
    jobs.put(job_with("waits", "Created", "Running", age=70))
    assert count("Running") == 2
    assert registry.get_sample_value("gangline_job_oldest_waiting_seconds", LABELS) == 5


def test_a_replica_that_does_not_lead_reports_no_jobs() -> None:
    registry, jobs = CollectorRegistry(), Cache[TFJob]()
    JobMetrics(registry, FakeClock(ZERO), lambda: False).states.add_cache(TRAINING_KINDS[0], jobs)
    jobs.put(job_with("runs", "Running"))
    assert registry.get_sample_value("gangline_jobs", {**LABELS, "state": "Running"}) is None


def test_a_job_that_two_apis_of_a_framework_show_is_counted_once() -> None:
    registry = CollectorRegistry()
    states = JobMetrics(registry, FakeClock(ZERO)).states
    old, new = Cache[Any](), Cache[Any]()
    states.add_cache(MPIJOB, old)
    states.add_cache(MPIJOB_V2, new)
    for name, implementation in (("kubectl", ""), ("ssh", "OpenMPI")):
        metadata = ObjectMeta(name=name, namespace="team", creation_timestamp=ZERO)
        old.put(MPIJob(metadata=metadata, spec=MPIJobSpec(mpi_replica_specs={}, mpi_implementation=implementation)))
        new.put(MPIJobV2(metadata=metadata, spec=MPIJobV2Spec(mpi_replica_specs={}, mpi_implementation=implementation)))
    samples = [sample for family in registry.collect() for sample in family.samples if sample.name == "gangline_jobs"]
    counts = Counter((sample.labels["state"], sample.value) for sample in samples)
    assert counts["Pending", 2.0] == 1
    assert len(samples) == len({sample.labels["state"] for sample in samples})
