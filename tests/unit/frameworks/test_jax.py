import pytest

from gangline.api.kubeflow.kinds import JAXJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.jax import Jax
from gangline.jobs.defaults import problems
from gangline.jobs.framework import ConditionText, EnvTarget, Framework
from gangline.jobs.pods.replicas import Member
from support.builders.teams import env_text, local_addresses, make_framework_job, make_gang, member_pod_edits

JAX: Framework[JAXJob] = Jax()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_everyone_meets_at_worker_0(index: int) -> None:
    job = make_framework_job(JAX, {"Worker": 3}, "spmd")
    edits = member_pod_edits(JAX, job, "Worker", index)
    assert env_text(edits) == (
        f"PYTHONUNBUFFERED=1 COORDINATOR_PORT=6666 COORDINATOR_ADDRESS=spmd-worker-0 NUM_PROCESSES=3 PROCESS_ID={index}"
    )
    assert edits.into is EnvTarget.EVERY
    assert edits.labels == ({JOB_ROLE: "master"} if index == 0 else {})


def test_a_custom_port_is_told() -> None:
    job = make_framework_job(JAX, {"Worker": 1})
    assert "COORDINATOR_PORT=1234 " in env_text(member_pod_edits(JAX, job, "Worker", worker=1234))


def test_on_one_machine_the_coordinator_has_a_port_of_its_own() -> None:
    job = make_framework_job(JAX, {"Worker": 2})
    edits = JAX.wiring(job, Member("Worker", 1), local_addresses(JAX, job))
    assert "COORDINATOR_PORT=7000 COORDINATOR_ADDRESS=127.0.0.1 " in env_text(edits)


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ({"worker_0": "Pending"}, ""),
        ({"worker_0": "Running", "worker_1": "Pending"}, "JAXJob ml/job is running."),
        ({"worker_0": "Succeeded", "worker_1": "Running"}, "JAXJob ml/job is running."),
        ({"worker_0": "Succeeded", "worker_1": "-Running"}, ""),
        ({"worker_0": "Succeeded", "worker_1": "Succeeded"}, "JAXJob ml/job successfully completed."),
    ],
)
def test_all_workers_decide(phases: dict[str, str], told: str) -> None:
    job = make_framework_job(JAX, {"Worker": 2})
    assert JAX.verdict(job, make_gang(JAX, job, **phases)).message == told


def test_failure_and_defaults() -> None:
    job = make_framework_job(JAX, {"Worker": None})
    assert JAX.failure(job, "Worker", 1) == ConditionText(
        "JAXJobFailed", "JAXJob job is failed because 1 Worker replica(s) failed."
    )
    worker = JAX.replicas(job)["Worker"]
    assert (worker.replicas, worker.restart_policy) == (1, "Never")
    assert problems(JAX, job) == ()
    assert not JAX.tolerates(job, "Worker")
