"""What is made of objects as servers have them."""

from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.frameworks.tensorflow import TensorFlow
from gangline.why.kinds import BATCH, JOBSET, OWNERS, TRAINJOB, VOLCANO, owner
from gangline.why.model.decode import claim, gang, job, replica, told

METADATA = {"name": "x", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-01-02T15:00:00Z"}


def made(kind: str, spec: Any, status: Any = None) -> Any:
    framework = TensorFlow() if kind == "tfjob" else None
    return job(owner(kind), {"metadata": METADATA, "spec": spec, "status": status}, framework)


def test_training_job_without_status_has_not_been_noticed() -> None:
    found = made("tfjob", {"tfReplicaSpecs": {"worker": {"replicas": 3}}})
    assert (found.state, found.noticed, found.wanted) == ("Pending", False, {"Worker": 3})
    assert found.templates == {"Worker": "spec.tfReplicaSpecs.Worker.template.spec"}


def test_spec_that_cannot_run_says_where_and_what_to_write() -> None:
    found = made(
        "tfjob", {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}}
    )
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
    assert (found.state, found.wanted, found.training) == (state, wanted, False)


def test_kinds_are_called_as_in_kubectl() -> None:
    kinds = {"job": BATCH, "jobs.batch": BATCH, "jobset": JOBSET, "trainjobs": TRAINJOB, "vj": VOLCANO}
    assert {name: owner(name).resource for name in kinds} == kinds
    with pytest.raises(InputError, match=r"deployment: .* write one of tfjob"):
        owner("deployment")
    assert len({one.resource.name for one in OWNERS}) == len(OWNERS)


def test_pod_of_a_team_is_called_by_its_seat() -> None:
    labels = {"training.kubeflow.org/replica-type": "ps", "training.kubeflow.org/replica-index": "1"}
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    container = {"name": "tensorflow", "volumeMounts": [{"name": "d", "mountPath": "/data"}]}
    body = {
        "metadata": {"name": "x-ps-1", "labels": labels},
        "spec": {"volumes": [volume], "containers": [container]},
    }
    found = replica(owner("tfjob"), "x", body)
    assert found is not None
    assert (found.name, found.type, found.path("tensorflow")) == (
        "ps-1",
        "PS",
        "spec.tfReplicaSpecs.PS.template.spec.containers[0]",
    )
    assert found.volumes[0].claim == "data"
    assert found.mounts[0].read_only


def test_event_of_an_old_reporter_has_its_time_and_count() -> None:
    found = told(
        {
            "reason": "BackOff",
            "note": "n",
            "type": "Warning",
            "deprecatedLastTimestamp": "2026-01-02T15:00:00Z",
            "deprecatedCount": 7,
        }
    )
    assert (found.warning, found.count, found.at is not None) == (True, 7, True)


def test_claim_that_is_not_there_and_group_of_any_scheduler() -> None:
    assert not claim("data", None).exists
    body = {"metadata": {"name": "g"}, "spec": {"minMember": 4, "queue": "q"}, "status": {"phase": "Inqueue"}}
    assert (gang(body).min_member, gang(body).queue, gang(body).phase) == (4, "q", "Inqueue")
