"""On one machine a verdict waits for replicas that may have failed before; in a cluster it comes when it comes in v1."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.plan.actions import JobPlan
from gangline.jobs.site import Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import OBSERVED_AT, deleted_names, job_plan

TORCH = PyTorch()
ONE_MACHINE = Site(shared_host=True)
UNCLEAR = ("zonk",)


def error(*words: str) -> tuple[str, ...]:
    return ("Traceback (most recent call last):", '  File "train.py", line 3, in main', "    step()", *words)


def worker(index: int, ended: float | None = None, **more: Any) -> Any:
    if ended is None:
        return make_member("Worker", index, of=PYTORCHJOB)
    at = OBSERVED_AT + timedelta(seconds=ended)
    return make_member("Worker", index, of=PYTORCHJOB, phase="Failed", exit_code=1, finished_at=at, **more)


def plan_after(seconds: float, *pods: Any, site: Site = ONE_MACHINE, **logs: tuple[str, ...]) -> JobPlan:
    job = make_job(PYTORCHJOB, worker=len(pods), restart="Never", policy={"cleanPodPolicy": "Running"})
    tails = {f"uid-job-{name.replace('_', '-')}": lines for name, lines in logs.items()}
    return job_plan(TORCH, job, *pods, after=timedelta(seconds=seconds), site=site, log_tails=tails)


def test_a_verdict_waits_for_replicas_that_run_and_looks_again_in_time() -> None:
    plan = plan_after(0.5, worker(0, 0), worker(1), worker_0=UNCLEAR)
    assert not plan.status.finished
    assert plan.requeue_after == timedelta(seconds=1)
    assert not deleted_names(plan)


def test_it_does_not_wait_for_ever() -> None:
    assert plan_after(1.6, worker(0, 0), worker(1), worker_0=UNCLEAR).status.finished


def test_it_waits_longer_while_more_replicas_end() -> None:
    pods = (worker(0, 0), worker(1, 1), worker(2))
    assert not plan_after(2, *pods, worker_0=UNCLEAR, worker_1=UNCLEAR).status.finished
    assert plan_after(2.6, *pods, worker_0=UNCLEAR, worker_1=UNCLEAR).status.finished


def test_it_does_not_wait_when_all_have_ended() -> None:
    assert plan_after(0.1, worker(0, 0), worker(1, 0), worker_0=UNCLEAR).status.finished


@pytest.mark.parametrize(
    ("more", "log"), [({}, error("KeyError: 'label'")), ({"reason": "OOMKilled"}, ())], ids=["bug", "memory"]
)
def test_it_does_not_wait_if_there_is_no_doubt(more: dict[str, str], log: tuple[str, ...]) -> None:
    assert plan_after(0.1, worker(0, 0, **more), worker(1), worker_0=log).status.finished


def test_it_waits_for_a_replica_that_has_written_its_error_and_takes_its_time_to_end() -> None:
    written = error("RuntimeError: shard 7 is empty")
    assert not plan_after(8, worker(0, 0), worker(1), worker_0=UNCLEAR, worker_1=written).status.finished
    assert plan_after(10.1, worker(0, 0), worker(1), worker_0=UNCLEAR, worker_1=written).status.finished
    complaint = error("ConnectionResetError: [Errno 104]")
    assert plan_after(8, worker(0, 0), worker(1), worker_0=UNCLEAR, worker_1=complaint).status.finished


def test_in_a_cluster_nothing_waits() -> None:
    assert plan_after(0.1, worker(0, 0), worker(1), site=Site(), worker_0=UNCLEAR).status.finished


def test_a_job_past_its_deadline_does_not_wait() -> None:
    policy = {"activeDeadlineSeconds": 1}
    job = make_job(PYTORCHJOB, worker=2, restart="Never", policy=policy)
    started = job_plan(TORCH, job, worker(0), worker(1), site=ONE_MACHINE).status
    running = type(job)(metadata=job.metadata, spec=job.spec, status=started)
    pods = (worker(0, 1.5), worker(1))
    plan = job_plan(TORCH, running, *pods, after=timedelta(seconds=2), site=ONE_MACHINE)
    assert plan.status.finished
