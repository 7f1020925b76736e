"""The SDK in a cluster: what it creates there. There is no kubelet, so nothing runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline import AsyncTrainingClient, Replica, TrainingError, pytorch_job
from gangline.api.kubeflow.kinds import JOB_SCHEME, PYTORCHJOB, PyTorchJob
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.operator.definitions import create_crds
from gangline.sdk.ship.upload import CONFIG_MAPS
from support.servers.real import RealServer

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]


@pytest.fixture
async def cluster(real_server: RealServer, tmp_path: Path) -> AsyncIterator[Client]:
    real_server.revive()
    connection = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)
    async with HttpTransport(connection) as transport:
        client = Client(transport, scheme=JOB_SCHEME)
        await create_crds(client, SystemClock(), [PYTORCHJOB])
        yield client


@pytest.fixture
async def sdk(cluster: Client, real_server: RealServer, real_namespace: str) -> AsyncIterator[AsyncTrainingClient]:
    async with AsyncTrainingClient(str(real_server.kubeconfig), namespace=real_namespace) as client:
        yield client


async def test_a_folder_goes_along_and_belongs_to_its_job(
    sdk: AsyncTrainingClient, cluster: Client, real_namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    (tmp_path / ".gitignore").write_text("data\n")
    (tmp_path / "data").write_text("x" * 1000)
    assert not await sdk.is_local()
    job = await sdk.ship_job(pytorch_job("folder", master=Replica("image", ["python", "train.py"])), tmp_path)
    (carrier,) = (
        found
        for found in (await cluster.list(CONFIG_MAPS, Selector(real_namespace))).items
        if found["metadata"]["name"].startswith("folder-")
    )
    assert sorted(carrier["data"].values()) == ["data\n", "print('hello')"]
    (owner,) = carrier["metadata"]["ownerReferences"]
    assert owner["uid"] == job.metadata.uid
    pod = job.to_dict()["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["workingDir"] == "/gangline/work"
    assert [each["name"] for each in pod["initContainers"]] == ["gangline-unpack"]


async def test_a_refused_job_leaves_no_folder_behind(
    sdk: AsyncTrainingClient, cluster: Client, real_namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    await sdk.create_job(pytorch_job("twice", master=Replica("image")))
    with pytest.raises(TrainingError, match='"twice" already exists'):
        await sdk.ship_job(pytorch_job("twice", master=Replica("image", ["x"])), tmp_path)
    left = (await cluster.list(CONFIG_MAPS, Selector(real_namespace))).items
    assert [found["metadata"]["name"] for found in left if "twice" in found["metadata"]["name"]] == []


async def test_a_folder_with_credentials_is_refused_before_anything_is_sent(
    sdk: AsyncTrainingClient, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".netrc").write_text("password hunter2")
    job = pytorch_job("secretive", master=Replica("image", ["x"]))
    with pytest.raises(ValueError, match=r"\.netrc \(passwords for servers\).*ship_secrets=True") as refusal:
        await sdk.ship_job(job, tmp_path)
    assert "hunter2" not in str(refusal.value)
    await sdk.ship_job(job, tmp_path, ship_secrets=True)


async def test_jobs_are_changed_watched_and_refused_in_the_servers_own_words(
    sdk: AsyncTrainingClient, cluster: Client, real_namespace: str
) -> None:
    states: list[Any] = []
    await sdk.create_job(pytorch_job("j", master=Replica("image"), worker=Replica("image")))

    async def watch() -> None:
        async for job in sdk.watch_job("j", wait_timeout=60):
            states.append(job.replicas["Worker"])
            if job.to_dict()["spec"]["runPolicy"].get("suspend"):
                return

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(watch())
        await sdk.scale_job("j", 3)
        await sdk.suspend_job("j")
    assert states[-1] == 3
    await sdk.update_job({"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}}, "j")
    with pytest.raises(ValueError, match="replicas: j may have 1 to 4 of Worker, not 5"):
        await sdk.scale_job("j", 5)
    assert (await sdk.scale_job("j", 4)).replicas["Worker"] == 4
    assert (await cluster.get(PyTorchJob, Key(real_namespace, "j"))).spec.run_policy.suspend
    with pytest.raises(TrainingError, match="Master must have exactly 1 replica"):
        await sdk.update_job({"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}}, "j")
    await sdk.delete_job("j")
    with pytest.raises(TrainingError, match='"j" not found'):
        await sdk.get_job("j")
