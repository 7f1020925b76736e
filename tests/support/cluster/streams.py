"""A local cluster with pods that sleep, print or listen, and the real kubectl for it."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.kube.watch import ObjectChange
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.local.plane import PlaneSettings
from support.requirements import skip_or_fail
from support.servers.real import find_assets

WAIT = 60.0
TOKEN = "one-of-many"


@asynccontextmanager
async def stream_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    """A cluster with TLS: kubectl sends no token without."""
    plane = PlaneSettings(certificates=folder / "certificates", token=TOKEN)
    settings = LocalSettings(folder=folder, logs=folder / "state", plane=plane)
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as running:
        yield running


def sh(script: str, name: str = "main", **more: Any) -> JSON:
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **more}


async def create_pod(
    client: Client, name: str, *containers: JSON, restart: str = "Never", labels: dict[str, str] | None = None
) -> Key:
    body = {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers),
        },
    }
    await client.create(Pod, body)
    return Key("default", name)


async def wait_for_phase(client: Client, key: Key, phase: str, *, restarts: int = 0) -> None:
    """Wait until the API says so, by a watch."""

    def there(pod: Pod) -> bool:
        count = sum(each.restart_count for each in pod.status.container_statuses)
        return pod.metadata.key == key and pod.status.phase == phase and count >= restarts

    async with asyncio.timeout(WAIT), aclosing(newest(client)) as found:
        async for pod in found:
            if there(pod):
                return


async def newest(client: Client) -> AsyncGenerator[Pod, None]:
    """The pods, and then every change of one."""
    listed = await client.list(Pod)
    for pod in listed.items:
        yield pod
    async with aclosing(client.watch(Pod, since=listed.metadata.resource_version)) as events:
        async for event in events:
            if isinstance(event, ObjectChange):
                yield event.object


async def sleeper(client: Client, name: str = "p", before: str = "") -> Key:
    key = await create_pod(client, name, sh(f"{before} exec sleep 1000"))
    await wait_for_phase(client, key, "Running")
    return key


async def first_line(client: Client, key: Key) -> str:
    """The first line of a pod's log, as soon as it is there."""
    async with aclosing(PodSubresources(client).logs(key, follow=True)) as lines, asyncio.timeout(WAIT):
        return (await anext(lines)).decode().strip()


HTTP_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.path.startswith("/redirect"):
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        names = ("Host", "Authorization", "X-Own", "X-Forwarded-Uri")
        seen = " ".join(f"{name}={self.headers.get(name)}" for name in names)
        text = f"{self.command} {self.path} {seen} {body.decode()}".encode()
        self.send_response(200)
        self.send_header("X-Answer", "yes")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def http_server(name: str = "main", port: int = 0) -> JSON:
    """A container that says what it was asked for, by HTTP; it prints its port."""
    command = [sys.executable, "-c", HTTP_SERVER, str(port)]
    return {"name": name, "image": "none", "command": command, "ports": [{"name": "web", "containerPort": 8080}]}


class Kubectl:
    """The real one."""

    def __init__(self, program: Path, cluster: LocalCluster, home: Path) -> None:
        tls = cluster.connection.tls
        assert tls is not None
        assert tls.ca is not None
        trust = f"--certificate-authority={tls.ca.file}"
        self._command = (str(program), f"--server={cluster.url}", trust, f"--token={TOKEN}")
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": os.devnull}

    async def __call__(self, *arguments: str, stdin: bytes | None = None) -> tuple[int | None, str, str]:
        process = await self.started(*arguments, stdin=stdin is not None)
        async with asyncio.timeout(WAIT):
            out, err = await process.communicate(stdin)
        return process.returncode, out.decode(), err.decode()

    async def started(
        self, *arguments: str, stdin: bool = False, terminal: int | None = None
    ) -> asyncio.subprocess.Process:
        given = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=self.env,
            stdin=given if terminal is None else terminal,
            stdout=asyncio.subprocess.PIPE if terminal is None else terminal,
            stderr=asyncio.subprocess.PIPE,
        )


def find_kubectl() -> Path:
    """The real kubectl. Skips the test if there is none."""
    assets = find_assets()
    if assets is None or not (assets / "kubectl").exists():
        skip_or_fail("kubectl not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    return assets / "kubectl"


def all_of(terminal: int) -> bytes:
    """What a terminal shows until its last user has left."""
    shown = b""
    with suppress(OSError), open(terminal, "rb", buffering=0) as file:
        while data := file.read(1000):
            shown += data
    return shown
