"""Stacks of pods in a cluster: the requests, as a real kube-apiserver takes them."""

import asyncio
from pathlib import Path

import pytest

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.stacks.cluster import PODS, ClusterStackSampler
from gangline.stacks.model import RankStack
from support.builders.objects import create_node, create_running_pod, pod_body, unique_name
from support.servers.real import RealServer
from support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

RESTRICTED = {
    "runAsUser": 65532,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def server(real_server: RealServer, tmp_path: Path) -> Connection:
    """Only the real server has ephemeral containers."""
    real_server.revive()
    return load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)


@pytest.fixture
async def placed(client: Client, namespace: str, kubelet_port: int) -> Pod:
    """A pod as restricted namespaces have them, on a node that has a kubelet."""
    name = unique_name("node")
    await create_node(client, name, kubelet_port)
    body = pod_body("one", namespace, nodeName=name)
    body["metadata"]["labels"] = {
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    body["spec"]["containers"][0]["securityContext"] = RESTRICTED
    return await create_running_pod(client, body)


async def sample_with(client: Client, pod: Pod, state: JSON) -> tuple[RankStack, JSON]:
    """A sample by an ephemeral container that comes into this state, and the container as the server has it."""
    key: Key = pod.metadata.key
    sampler = ClusterStackSampler(client, SystemClock(), debug_image="registry.example/py-spy:1")
    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sampler.sample([pod]))

        async def added() -> JSON | None:
            body = await client.get(PODS, key)
            return next(iter(body["spec"].get("ephemeralContainers") or ()), None)

        container: JSON = await wait_until(added)
        status = {"name": container["name"], "image": "", "imageID": "", "ready": False, "restartCount": 0}
        statuses = {"ephemeralContainerStatuses": [{**status, "state": state}]}
        await client.patch(PODS, key, {"status": statuses}, subresource="status")
    (stack,) = sampling.result()
    return stack, container


async def test_an_ephemeral_container_joins_the_processes_of_the_target_as_its_user(
    client: Client, placed: Pod
) -> None:
    stack, container = await sample_with(client, placed, {"terminated": {"exitCode": 0}})
    assert container["image"] == "registry.example/py-spy:1"
    assert container["targetContainerName"] == placed.spec.containers[0].name
    assert container["securityContext"] == RESTRICTED
    assert container["command"][:2] == ["sh", "-c"]
    # Its log was read: the stand-in for a kubelet answers with a text of its own.
    assert (stack.replica, stack.pod) == ("worker-1", "one")
    assert stack.error == "the shell in the container did not read the processes: last line"


async def test_an_image_that_cannot_be_pulled_is_said(client: Client, placed: Pod) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    stack, _ = await sample_with(client, placed, waiting)
    assert stack.error == "the ephemeral container does not start: ErrImagePull no such image"


async def test_the_missing_right_is_named(nobody: Connection, placed: Pod) -> None:
    async with HttpTransport(nobody) as transport:
        client = Client(transport)
        (by_exec,) = await ClusterStackSampler(client, SystemClock()).sample([placed])
        (by_debug,) = await ClusterStackSampler(client, SystemClock(), debug_image="x").sample([placed])
    assert by_exec.error.startswith("this needs the rights to get and create pods/exec: ")
    assert by_debug.error.startswith(
        "this needs the rights to get pods, patch pods/ephemeralcontainers and get pods/log: "
    )
