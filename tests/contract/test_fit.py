"""Whether a job would fit, on a real kube-apiserver and on ours: what is said is what the scheduler then does."""

from collections.abc import AsyncIterator

import pytest

from gangline.api.codec.documents import Document, documents
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import Key
from gangline.api.scheduling import Queue
from gangline.cli.manifests.lint import kind_of
from gangline.cli.plan.fit import check_fit
from gangline.cli.plan.objects import PlanTarget
from gangline.kube.config.connection import Connection
from support.cluster.scheduler_env import ENV_LABEL, SchedulerEnv, scheduler_env

JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: NAME}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: COUNT
      template:
        spec:
          nodeSelector: {SELECTED}
          containers: [{name: pytorch, image: x, resources: {limits: {cpu: 1}}}]
"""


@pytest.fixture
async def town(server: Connection) -> AsyncIterator[SchedulerEnv]:
    async with scheduler_env(server) as town:
        yield town


def job(town: SchedulerEnv, name: str, count: int) -> tuple[Document, JobKind]:
    text = JOB.replace("NAME", name).replace("COUNT", str(count)).replace("SELECTED", f"{ENV_LABEL}: {town.namespace}")
    document = next(iter(documents(text)))
    kind = kind_of(document)
    assert isinstance(kind, JobKind)
    return document, kind


async def test_a_job_fits_until_somebody_else_has_the_room(town: SchedulerEnv) -> None:
    first, second = await town.create_node("a", cpu="3"), await town.create_node("b", cpu="1")
    (before,) = await check_fit(town.client, [job(town, "j", 4)], PlanTarget(town.namespace))
    assert before.fits
    assert before.nodes == {first: {"worker": 3}, second: {"worker": 1}}
    async with town.run_scheduler():
        await town.create_pod("other", cpu="1")
        await town.wait.bound("other")
    (after,) = await check_fit(town.client, [job(town, "j", 4)], PlanTarget(town.namespace))
    assert (after.fits, after.cause) == (False, "Resources")
    assert after.message.startswith("3 of 4 fit: ")


async def test_a_queue_on_the_server_counts(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="9")
    queue = f"{town.namespace}-small"
    await town.client.create(Queue, {"metadata": {"name": queue}, "spec": {"capability": {"cpu": "2"}}})
    document, kind = job(town, "j", 4)
    body = {
        **document.body,
        "spec": {**document.body["spec"], "runPolicy": {"schedulingPolicy": {"queue": queue}}},
    }
    try:
        (found,) = await check_fit(town.client, [(Document(body, {}), kind)], PlanTarget(town.namespace))
    finally:
        await town.client.delete(Queue, Key("", queue))
    assert (found.fits, found.cause) == (False, "Queue")
    assert found.message == f"queue {queue!r} may have 2 cpu and holds 0; 4 more are needed"
