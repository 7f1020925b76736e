import pytest

from gangline.api.kubeflow.jaxjob import JAXJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.jax import Jax
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Framework, Into, Told
from gangline.jobs.pods.replicas import Member
from support.builders.teams import gang_of, job_of, on_one_machine, wired, words

JAX: Framework[JAXJob] = Jax()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_everyone_meets_at_worker_0(index: int) -> None:
    job = job_of(JAX, {"Worker": 3}, "spmd")
    edits = wired(JAX, job, "Worker", index)
    assert words(edits) == (
        "PYTHONUNBUFFERED=1 COORDINATOR_PORT=6666 COORDINATOR_ADDRESS=spmd-worker-0 NUM_PROCESSES=3 "
        f"PROCESS_ID={index}"
    )
    assert edits.into is Into.EVERY
    assert edits.labels == ({JOB_ROLE: "master"} if index == 0 else {})


def test_a_custom_port_is_told() -> None:
    job = job_of(JAX, {"Worker": 1})
    assert "COORDINATOR_PORT=1234 " in words(wired(JAX, job, "Worker", worker=1234))


def test_on_one_machine_the_coordinator_has_a_port_of_its_own() -> None:
    job = job_of(JAX, {"Worker": 2})
    edits = JAX.wiring(job, Member("Worker", 1), on_one_machine(JAX, job))
    assert "COORDINATOR_PORT=7000 COORDINATOR_ADDRESS=127.0.0.1 " in words(edits)


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
    job = job_of(JAX, {"Worker": 2})
    assert JAX.verdict(job, gang_of(JAX, job, **phases)).message == told


def test_failure_and_defaults() -> None:
    job = job_of(JAX, {"Worker": None})
    assert JAX.failure(job, "Worker", 1) == Told(
        "JAXJobFailed", "JAXJob job is failed because 1 Worker replica(s) failed."
    )
    worker = JAX.replicas(job)["Worker"]
    assert (worker.replicas, worker.restart_policy) == (1, "Never")
    assert problems(JAX, job) == ()
    assert not JAX.tolerates(job, "Worker")
