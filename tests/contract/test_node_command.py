"""`gangline node` as a process of its own, beside a real kube-apiserver."""

import asyncio
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline.api.core import Node, Pod
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.informer import Informer
from support.requirements import skip_or_fail
from support.servers.real import HOST, RealServer, find_assets


@contextmanager
def node(server: RealServer, name: str, folder: Path, *flags: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "gangline", "node", "--name", name, "--dir", str(folder), *flags]
    process = subprocess.Popen([*command, "--kubeconfig", str(server.kubeconfig)], cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def finished(client: Client, namespace: str, over: Callable[[Pod | None], bool]) -> None:
    pods = Informer(client, Pod, Selector(namespace=namespace), clock=SystemClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(pods.run())
        await pods.wait_until(lambda cache: over(cache.get(Key(namespace, "p"))))
        running.cancel()


async def test_a_real_server_runs_a_pod_here_and_shows_its_log(
    real_server: RealServer, real_namespace: str, tmp_path: Path
) -> None:
    name = real_namespace
    connection = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo from $WHO; exit 0"]}
    spec = {
        "nodeName": name,
        "restartPolicy": "Never",
        "containers": [{**container, "env": [{"name": "WHO", "value": "a process"}]}],
    }
    async with HttpTransport(connection) as transport:
        client = Client(transport)
        with node(real_server, name, tmp_path) as process:
            await client.create(Pod, {"metadata": {"name": "p"}, "spec": spec}, namespace=real_namespace)
            await finished(client, real_namespace, lambda pod: pod is not None and pod.status.phase == "Succeeded")
            lines = [line async for line in PodSubresources(client).logs(Key(real_namespace, "p"))]
            assert lines == [b"from a process"]
            ready = {found.type: found.status for found in (await client.get(Node, Key("", name))).status.conditions}
            assert ready["Ready"] == "True"
            await client.delete(Pod, Key(real_namespace, "p"))
            await finished(client, real_namespace, lambda pod: pod is None)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


@pytest.mark.real
async def test_with_a_client_ca_only_the_server_gets_logs(tmp_path: Path) -> None:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    files = tmp_path / "server"
    files.mkdir()
    flags = [f"--kubelet-client-certificate={files / 'client.crt'}", f"--kubelet-client-key={files / 'client.key'}"]
    with RealServer(directory=files, flags=flags) as server:
        connection = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=tmp_path)
        container = {"name": "main", "image": "none", "command": ["echo", "secret"]}
        spec = {"nodeName": "box", "restartPolicy": "Never", "containers": [container]}
        async with HttpTransport(connection) as transport:
            client = Client(transport)
            with node(server, "box", tmp_path, "--client-ca-file", str(server.ca)):
                await client.create(Pod, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
                await finished(client, "default", lambda pod: pod is not None and pod.status.phase == "Succeeded")
                assert [line async for line in PodSubresources(client).logs(Key("default", "p"))] == [b"secret"]
                body = server.call("GET", "/api/v1/nodes/box").body
                port = body["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
                url = f"https://{HOST}:{port}/containerLogs/default/p/main"
                with pytest.raises(OSError, match=r"certificate required|CERTIFICATE_REQUIRED|reset|closed|EOF"):
                    await asyncio.to_thread(urllib.request.urlopen, url, context=ssl._create_unverified_context())
