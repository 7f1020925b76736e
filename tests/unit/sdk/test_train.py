"""`gangline.train` with a cluster that only remembers what it is asked."""

import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gangline import Job, JobFailed, TrainingClient, train
from gangline.api.core import Pod
from gangline.sdk.train import DEFAULT_IMAGE
from gangline.testing.builders import make_pod

TRACEBACK = 'step 1\nTraceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\nValueError: no\n'


class RememberingClient:
    """Creates jobs that fail at once, as the operator of Kubeflow records it."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def is_local(self) -> bool:
        return False

    def create_job(self, job: Job, namespace: str | None = None) -> Job:
        self.jobs.append(job)
        return job

    def watch_job(self, name: str, **arguments: Any) -> Iterator[Job]:
        condition = {"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed."}
        yield Job({**self.jobs[-1].to_dict(), "status": {"conditions": [condition]}})

    def get_job_pods(self, name: str, **arguments: Any) -> list[Pod]:
        labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
        failed = make_pod(f"{name}-worker-0", phase="Failed", labels=labels, exit_code=1, container="pytorch")
        return [make_pod(f"{name}-master-0", phase="Running"), failed]

    def get_job_logs(self, name: str, **arguments: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
        return {f"{name}-worker-0": TRACEBACK}, {}


@pytest.fixture
def client() -> Any:
    return RememberingClient()


def by_source() -> int:
    return 1


def test_a_cluster_gets_the_image_of_this_python_and_no_folder_of_this_machine(client: Any) -> None:
    train(by_source, replicas=2, client=cast(TrainingClient, client))
    spec = client.jobs[0].to_dict()["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["image"] == DEFAULT_IMAGE == f"python:3.{sys.version_info[1]}-slim"
    assert "env" not in container


def test_a_pickle_is_refused_by_an_image_that_says_it_has_another_python(client: Any) -> None:
    with pytest.raises(
        ValueError, match=r"registry/python:3.9-slim has Python 3.9, and .* pickle of Python 3\.\d+; write"
    ):
        train(lambda: 1, image="registry/python:3.9-slim", client=client)
    train(lambda: 1, image="registry/own:1", client=client)
    train(by_source, image="python:3.9", client=client)
    assert len(client.jobs) == 2


def test_a_failure_that_the_operator_does_not_record_is_read_from_the_pods(client: Any) -> None:
    with pytest.raises(JobFailed) as failed:
        train(by_source, replicas=2, client=client).wait(show=False)
    error = failed.value
    assert (error.error_type, error.replica, error.rank, error.exit_code) == ("ValueError", "worker-0", 1, 1)
    assert (
        str(error)
        == "worker-0 (rank 1): ValueError: no\n1 Worker replica(s) failed.\nlast lines of worker-0:\n  step 1"
    )
