"""Jobs are counted by their status writes: once each, whatever is repeated."""

from prometheus_client import CollectorRegistry

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import Condition
from gangline.operator.metrics import JobMetrics, transitions


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
