"""What is made of objects as servers have them."""

from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.frameworks.tensorflow import TensorFlow
from gangline.why.diagnosis.decode import claim_fact, event_fact, job_facts, pod_group_facts, replica_facts, with_logs
from gangline.why.diagnosis.failures import MAX_LINE_LENGTH, ReplicaFailure
from gangline.why.kinds import BATCH_JOBS, JOBSETS, TRAINJOBS, VOLCANO_JOBS, WORKLOAD_KINDS, workload_kind

METADATA = {"name": "x", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-01-02T15:00:00Z"}


def made(kind: str, spec: Any, status: Any = None) -> Any:
    framework = TensorFlow() if kind == "tfjob" else None
    return job_facts(workload_kind(kind), {"metadata": METADATA, "spec": spec, "status": status}, framework)


def test_training_job_without_status_has_not_been_noticed() -> None:
    found = made("tfjob", {"tfReplicaSpecs": {"worker": {"replicas": 3}}})
    assert (found.state, found.has_status, found.desired_replicas) == ("Pending", False, {"Worker": 3})
    assert found.template_paths == {"Worker": "spec.tfReplicaSpecs.Worker.template.spec"}


def test_spec_that_cannot_run_says_where_and_what_to_write() -> None:
    found = made("tfjob", {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}})
    assert found.problems == (
        "spec.tfReplicaSpecs.Worker.template.spec.containers: is empty; write at least one container",
    )


def test_spec_that_does_not_decode_is_a_problem_and_no_error() -> None:
    found = made("tfjob", {"tfReplicaSpecs": {"Worker": {"replicas": "three"}}})
    assert "spec.tfReplicaSpecs.Worker.replicas" in found.problems[0]


@pytest.mark.parametrize(
    ("kind", "spec", "status", "state", "wanted"),
    [
        ("job.batch", {"parallelism": 4, "completions": 2}, {"active": 2}, "Running", {"": 2}),
        ("job.batch", {}, {"conditions": [{"type": "Failed", "status": "True"}]}, "Failed", {"": 1}),
        ("job.batch", {}, {"conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded", {"": 1}),
        (
            "jobset",
            {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4}}}]},
            {"replicatedJobsStatus": [{"name": "w", "active": 1}]},
            "Running",
            {"w": 8},
        ),
        ("trainjob", {"trainer": {"numNodes": 4}}, {}, "Pending", {"node": 4}),
        (
            "vcjob",
            {"tasks": [{"name": "ps", "replicas": 2}]},
            {"state": {"phase": "Aborted"}},
            "Failed",
            {"ps": 2},
        ),
    ],
)
def test_other_kinds_speak_the_same_words(kind: str, spec: Any, status: Any, state: str, wanted: Any) -> None:
    found = made(kind, spec, status)
    assert (found.state, found.desired_replicas, found.is_training_job) == (state, wanted, False)


def test_kinds_are_called_as_in_kubectl() -> None:
    kinds = {
        "job": BATCH_JOBS,
        "jobs.batch": BATCH_JOBS,
        "jobset": JOBSETS,
        "trainjobs": TRAINJOBS,
        "vj": VOLCANO_JOBS,
    }
    assert {name: workload_kind(name).resource for name in kinds} == kinds
    with pytest.raises(InputError, match=r"deployment: .* write one of tfjob"):
        workload_kind("deployment")
    assert len({one.resource.name for one in WORKLOAD_KINDS}) == len(WORKLOAD_KINDS)


def test_pod_of_a_team_is_called_by_its_seat() -> None:
    labels = {"training.kubeflow.org/replica-type": "ps", "training.kubeflow.org/replica-index": "1"}
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    container = {"name": "tensorflow", "volumeMounts": [{"name": "d", "mountPath": "/data"}]}
    body = {
        "metadata": {"name": "x-ps-1", "labels": labels},
        "spec": {"volumes": [volume], "containers": [container]},
    }
    found = replica_facts(workload_kind("tfjob"), "x", body)
    assert found is not None
    assert (found.name, found.type, found.container_path("tensorflow")) == (
        "ps-1",
        "PS",
        "spec.tfReplicaSpecs.PS.template.spec.containers[0]",
    )
    assert found.volumes[0].claim == "data"
    assert found.mounts[0].read_only


def test_long_lines_lose_their_middle_before_any_pattern_sees_them() -> None:
    # A line of 30,000 letters took the rules minutes, in which a plane answered nobody.
    container = {"name": "tensorflow"}
    body = {"metadata": {"name": "x-worker-0"}, "spec": {"containers": [container]}}
    found = replica_facts(workload_kind("tfjob"), "x", body)
    assert found is not None
    line = f"ValueError: {'x' * 30_000} is too long"
    clipped = with_logs(found, {"tensorflow": [(None, line)]}, {"tensorflow": (line,)})
    end = ReplicaFailure("worker-0", "x-worker-0", message=line)
    for seen in (clipped.logs["tensorflow"], clipped.previous_logs["tensorflow"], end.output, end.last_output):
        assert len(seen[0]) == MAX_LINE_LENGTH
        assert (seen[0][:11], seen[0][-11:]) == ("ValueError:", "is too long")


def test_event_of_an_old_reporter_has_its_time_and_count() -> None:
    found = event_fact(
        {
            "reason": "BackOff",
            "note": "n",
            "type": "Warning",
            "deprecatedLastTimestamp": "2026-01-02T15:00:00Z",
            "deprecatedCount": 7,
        }
    )
    assert (found.warning, found.count, found.time is not None) == (True, 7, True)


def test_claim_that_is_not_there_and_group_of_any_scheduler() -> None:
    assert not claim_fact("data", None).exists
    body = {"metadata": {"name": "g"}, "spec": {"minMember": 4, "queue": "q"}, "status": {"phase": "Inqueue"}}
    assert (pod_group_facts(body).min_member, pod_group_facts(body).queue, pod_group_facts(body).phase) == (
        4,
        "q",
        "Inqueue",
    )
