"""Whoever waits for a job hears of the rank that failed first as it is known when the job was cleaned up."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from io import StringIO
from typing import Any

import msgspec
import pytest

from gangline import AsyncTrainingClient, Job, JobFailed, train
from gangline.api.kubeflow.kinds import PYTORCHJOB, PyTorchJob
from gangline.api.kubeflow.training import Failure, JobPhase, JobStatus
from gangline.api.meta import Condition
from gangline.cli.follow.follower import Follower
from gangline.cli.follow.screen import PlainScreen
from gangline.jobs.plan.failures.records import is_provisional
from gangline.runtime.informer import Delta, Informer
from gangline.testing.builders import make_job
from gangline.testing.clock import FakeClock, settle
from support.servers.flaky_reader import ModelServer

FAILED = {"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed."}


def body(phase: str, replica: str, **more: Any) -> Any:
    failure = {"replica": replica, "exitCode": 1, "log": ["what a pity"], **more}
    status = {"conditions": [FAILED], "phase": phase, "firstFailure": failure}
    metadata = {"name": "job", "namespace": "default"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": {}},
        "status": status,
    }


# At first a peer is named, whose kubelet was faster.
VERDICT, FINAL = Job(body("CleanUp", "worker-1")), Job(body("Failed", "worker-0"))


class ScriptedClient(AsyncTrainingClient):
    """A client for which the job changes as written here."""

    async def watch_job(self, *arguments: Any, **more: Any) -> AsyncGenerator[Job, None]:
        yield VERDICT
        yield FINAL


async def test_a_wait_for_conditions_names_the_final_first_failure() -> None:
    async with ScriptedClient(namespace="default") as client:
        with pytest.raises(JobFailed) as failed:
            await client.wait_for_job_conditions("job")
        assert failed.value.replica == "worker-0"
        changed = await client.wait_for_job_conditions("job", expected_conditions={"Failed"})
        assert changed is VERDICT, "who expects a failure does not wait"


class BlockingClient:
    """The same for a function that is trained."""

    def is_local(self) -> bool:
        return False

    def create_job(self, job: Job, namespace: str | None = None) -> Job:
        return job

    def watch_job(self, name: str, **arguments: Any) -> Iterator[Job]:
        yield VERDICT
        yield FINAL


def nothing() -> None:
    """Trained."""


def test_a_function_that_fails_names_the_final_first_failure() -> None:
    client: Any = BlockingClient()
    with pytest.raises(JobFailed) as failed:
        train(nothing, replicas=2, image="python:3.11", client=client).wait(show=False)
    assert failed.value.replica == "worker-0"


def status(phase: JobPhase, replica: str, **more: Any) -> JobStatus:
    conditions = (Condition(type="Failed", status="True"),)
    return JobStatus(conditions=conditions, phase=phase, first_failure=Failure(replica, exit_code=1, **more))


async def test_a_run_shows_the_final_first_failure() -> None:
    clock = FakeClock()
    jobs: Informer[Any] = Informer(ModelServer(), PyTorchJob, clock=clock)
    job = make_job(PYTORCHJOB, master=1, worker=1)
    verdict = msgspec.structs.replace(job, status=status(JobPhase.CLEAN_UP, "worker-0"))
    final = msgspec.structs.replace(job, status=status(JobPhase.FAILED, "master-0"))
    parts: Any = (None, PYTORCHJOB, None, clock, PlainScreen(StringIO(), clock))
    follower = Follower(*parts)
    jobs.cache.put(verdict)
    async with asyncio.TaskGroup() as group:
        shown = group.create_task(follower._with_final_failure(jobs, verdict))
        await settle()
        assert not shown.done()
        jobs.cache.put(final)
        jobs._notify(Delta(verdict, final))
    assert shown.result() == final


@pytest.mark.parametrize(
    ("phase", "more", "provisional"),
    [
        (JobPhase.CLEAN_UP, {}, True),
        (JobPhase.CLEAN_UP, {"reason": "OOMKilled"}, False),
        (JobPhase.FAILED, {}, False),
    ],
)
def test_a_first_failure_is_provisional_while_its_job_is_cleaned_up_and_its_end_leaves_doubt(
    phase: JobPhase, more: Any, provisional: bool
) -> None:
    assert is_provisional(status(phase, "worker-0", **more)) is provisional
