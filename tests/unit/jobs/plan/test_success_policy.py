"""The annotation `success-policy: AllReplicas`: the job succeeds when all of its replicas have."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import ConditionType, JobKind
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.framework import Framework
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import condition_pairs, created_names, deleted_names, job_plan

ANNOTATION = "training.gangline.dev/success-policy"
KINDS: list[tuple[Framework[Any], JobKind, dict[str, Any], str]] = [
    (PyTorch(), PYTORCHJOB, {"master": 1, "worker": 1}, "Master"),
    (TensorFlow(), TFJOB, {"worker": 2}, "Worker"),
]


def conditions(framework: Framework[Any], job: Any, *pods: Any) -> set[str]:
    """The conditions that are true."""
    plan = job_plan(framework, job, *pods)
    assert not created_names(plan)
    assert not deleted_names(plan)
    return {str(name) for name, status in condition_pairs(plan.status) if status == "True"}


@pytest.mark.parametrize(("framework", "kind", "replicas", "leader"), KINDS)
def test_a_job_ends_with_its_last_replica(
    framework: Framework[Any], kind: JobKind, replicas: dict[str, Any], leader: str
) -> None:
    def pods(phase: str, **more: Any) -> list[Any]:
        other = 1 if leader == "Worker" else 0
        return [
            make_member(leader, 0, of=kind, phase="Succeeded", exit_code=0),
            make_member("Worker", other, of=kind, phase=phase, **more),
        ]

    job = make_job(kind, **replicas, restart="Never", annotations={ANNOTATION: "AllReplicas"})
    as_in_v1 = make_job(kind, **replicas, restart="Never")
    assert ConditionType.SUCCEEDED in conditions(framework, as_in_v1, *pods("Running"))
    assert ConditionType.SUCCEEDED not in conditions(framework, job, *pods("Running"))
    assert ConditionType.FAILED in conditions(framework, job, *pods("Failed", exit_code=1))
    assert ConditionType.SUCCEEDED in conditions(framework, job, *pods("Succeeded", exit_code=0))


def test_an_unknown_success_policy_is_reported() -> None:
    def messages(policy: str) -> list[str]:
        events = job_plan(PyTorch(), make_job(PYTORCHJOB, master=1, annotations={ANNOTATION: policy})).events
        return [note.message for note in events if note.reason == "FieldIgnored"]

    assert not messages("AllReplicas")
    (message,) = messages("AllWorkers")
    assert message.endswith('is "AllWorkers", which has no effect; write AllReplicas, or leave it out')
