"""Tests of a program that submits training jobs: a cluster comes with the fixture, pods run as processes.

python -m pytest test_submitting.py
"""

import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gangline import JobFailed, Replica, TrainingClient, pytorch_job
from gangline.testing import FakeClock, ThreadedCluster


def submit(client: TrainingClient, name: str, code: str) -> list[str]:
    """The program under test: trains with a master and a worker, and gives what the master said."""
    replica = Replica("python:3.12-slim", [sys.executable, "-c", code])
    client.create_job(pytorch_job(name, master=replica, worker=replica))
    client.wait_for_job_conditions(name, wait_timeout=60)
    logs, _ = client.get_job_logs(name)
    return logs[f"{name}-master-0"].splitlines()


@pytest.fixture
def client(gangline_cluster: ThreadedCluster, gangline_namespace: str) -> Iterator[TrainingClient]:
    with TrainingClient(str(gangline_cluster.kubeconfig), namespace=gangline_namespace) as made:
        yield made


def test_what_the_master_says_is_given_back(client: TrainingClient) -> None:
    code = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    assert submit(client, "mnist", code) == ["rank 0 of 2"]


def test_a_failed_training_is_an_error(client: TrainingClient) -> None:
    with pytest.raises(JobFailed, match="mnist"):
        submit(client, "mnist", "raise SystemExit(1)")


def test_a_day_goes_by_in_no_time(fake_clock: FakeClock) -> None:
    before = fake_clock.now()
    fake_clock.skip(timedelta(days=1))
    assert fake_clock.now() - before == timedelta(days=1)
