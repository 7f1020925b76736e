"""`gangline node` as a process of its own, beside a real kube-apiserver."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.api.core import Node, Pod
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.informer import Informer
from support.servers.real import RealServer


@contextmanager
def node(server: RealServer, name: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "gangline", "node", "--name", name, "--dir", str(folder)]
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
