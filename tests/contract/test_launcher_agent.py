"""The agent of MPI launchers on a real kube-apiserver, with the account and the role that the operator creates for it.

tests/e2e/test_agent.py asks it the same on the embedded server; the tests in agent/ have servers that fail.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.frameworks import mpi_objects
from gangline.frameworks.mpi import Mpi
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from support.builders.objects import create_node, create_running_pod, pod_body, unique_name
from support.builders.teams import make_framework_job, make_gang
from support.cluster.agent import built_agent
from support.servers.real import RealServer

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

MPI = Mpi(agent_image="gangline:1")
RBAC = "rbac.authorization.k8s.io"
WRITTEN: dict[str, Resource[JSON]] = {
    "serviceaccounts": Resource("", "v1", "ServiceAccount", "serviceaccounts", dict[str, Any]),
    f"roles.{RBAC}": Resource(RBAC, "v1", "Role", "roles", dict[str, Any]),
    f"rolebindings.{RBAC}": Resource(RBAC, "v1", "RoleBinding", "rolebindings", dict[str, Any]),
}


@pytest.fixture
def server(real_server: RealServer, tmp_path: Path) -> Connection:
    """Only the real server goes through a kubelet."""
    real_server.revive()
    return load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)


class Launcher:
    """The agent in the launcher of the job `pi`, which has two workers."""

    def __init__(self, url: str, folder: Path) -> None:
        server = urlsplit(url)
        self._env = {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "GANGLINE_SERVICE_ACCOUNT": str(folder),
        }

    async def run(
        self, *words: str, stdin: bytes = b"", program: tuple[str, ...] = ()
    ) -> tuple[int | None, bytes, bytes]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(program or (str(built_agent()),)), *words, env=self._env, stdin=pipe, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        return process.returncode, out, err


@pytest.fixture
async def launcher(
    client: Client, namespace: str, kubelet_port: int, real_server: RealServer, server: Connection, tmp_path: Path
) -> Launcher:
    """A launcher with its token, and its workers on a node with a kubelet."""
    node = unique_name("node")
    await create_node(client, node, kubelet_port)
    for name in ("pi-worker-0", "pi-worker-1", "stranger"):
        await run_pod(client, pod_body(name, namespace, nodeName=node))
    job = make_framework_job(MPI, {"Launcher": 1, "Worker": 2}, "pi")
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, namespace=namespace))
    for companion in MPI.companions(job, make_gang(MPI, job)):
        metadata = {**companion.body["metadata"], "namespace": namespace}
        body = {**companion.body, "metadata": metadata}
        if companion.resource == "configmaps":
            await client.create(ConfigMap, body)
            (tmp_path / "hostfile").write_text(body["data"]["hostfile"])
        else:
            await client.create(WRITTEN[companion.resource], body)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/pi-launcher/token"
    answer = json.loads(await client.requests.call(Request("POST", path, (), b"{}", "application/json")))
    (tmp_path / "token").write_text(answer["status"]["token"])
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_bytes(real_server.ca.read_bytes())
    return Launcher(server.server, tmp_path)


async def run_pod(client: Client, body: JSON) -> None:
    made = await create_running_pod(client, body)
    state = {"containerStatuses": [container_status(one["name"]) for one in body["spec"]["containers"]]}
    await client.patch(Pod, made.metadata.key, {"status": state}, subresource="status")


def container_status(name: str) -> JSON:
    running = {"startedAt": "2026-01-01T00:00:00Z"}
    return {"name": name, "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "state": {"running": running}}


async def test_the_role_of_the_launcher_is_enough(launcher: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    hostfile = str(tmp_path / "hostfile")
    installed = await launcher.run("install", "--hostfile", hostfile, "--launcher", "pi-launcher", str(folder))
    assert installed == (0, b"", b"")
    assert os.access(folder / "gangline-agent", os.X_OK)
    assert os.access(folder / "kubectl", os.X_OK)
    for worker in ("pi-worker-0", "pi-worker-1"):
        assert await launcher.run("exec", worker, "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


async def test_the_role_of_the_launcher_is_not_more_than_enough(
    launcher: Launcher, server: Connection, namespace: str, tmp_path: Path
) -> None:
    del launcher  # for its token
    token = (tmp_path / "token").read_text()
    for verb, resource, name, allowed in (
        ("get", "pods", "pi-worker-1", True),
        ("get", "pods", "stranger", False),
        ("list", "pods", "", False),
        ("create", "pods/exec", "stranger", False),
        ("get", "pods/exec", "stranger", False),
        ("get", "secrets", "", False),
    ):
        kind, _, subresource = resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "resource": kind,
            "subresource": subresource,
            "name": name,
        }
        assert await can(server, token, attributes) is allowed, (verb, resource, name)


async def can(server: Connection, token: str, attributes: JSON) -> bool:
    connection = msgspec.structs.replace(server, credentials=StaticToken(token, "test"))
    body = json.dumps({"spec": {"resourceAttributes": attributes}}).encode()
    request = Request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", (), body, "application/json")
    async with HttpTransport(connection) as transport:
        answer = json.loads(await Client(transport).requests.call(request))
    return bool(answer["status"]["allowed"])


async def test_the_script_of_v1_works_with_the_agent(launcher: Launcher, tmp_path: Path) -> None:
    """So the launcher still reaches its workers when the Kubeflow operator has taken its job over."""
    assert await launcher.run("install", str(tmp_path)) == (0, b"", b"")
    script = tmp_path / "kubexec.sh"
    script.write_text(mpi_objects.kubectl_script("main").replace(mpi_objects.KUBECTL_FOLDER, str(tmp_path)))
    code, out, _ = await launcher.run("pi-worker-1", "echo $((1 + 1));", "exit 4", program=("sh", str(script)))
    assert (code, out) == (4, b"2\n")


async def test_much_input_and_output_are_whole(launcher: Launcher) -> None:
    much = os.urandom(5_000_000)
    code, out, err = await launcher.run("exec", "pi-worker-0", "cat; seq 1 200000 >&2", stdin=much)
    expected = b"".join(b"%d\n" % number for number in range(1, 200_001))
    assert (code, out == much, err == expected) == (0, True, True)


async def test_a_command_that_does_not_exist_is_the_shells_error(launcher: Launcher) -> None:
    code, out, err = await launcher.run("exec", "pi-worker-0", "no-such-command")
    assert (code, out) == (127, b"")
    assert b"not found" in err
