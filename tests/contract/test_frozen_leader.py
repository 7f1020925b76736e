"""A leader that is stopped until another one leads, and then continues, writes nothing any more.

Both processes reach the server through a proxy of their own, which sees every request that is really sent.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from gangline.api.core import Lease, Pod, Service
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.operator.definitions import create_crds
from support.servers.real import HOST, free_ports
from support.waiting import wait_until

pytestmark = pytest.mark.faults

WAIT_SECONDS = 120.0
TOKEN = "secret"
TFJOBS: Resource[JSON] = Resource("kubeflow.org", "v1", "TFJob", "tfjobs", dict[str, Any])
JOB_LABEL = "training.kubeflow.org/job-name"
JOBS, REPLICAS, PODS = 12, 8, 60
NODES: Resource[JSON] = Resource("", "v1", "Node", "nodes", dict[str, Any], namespaced=False)


class RecordingProxy:
    """Passes requests on, and notes each as it arrives."""

    def __init__(self, target: str, session: aiohttp.ClientSession) -> None:
        self._target, self._session = target, session
        self.requests: list[str] = []
        self.free_writes: int | None = None
        """After so many writes the others are held back until `gate` is open: they are sent, and not carried out yet."""
        self.gate = asyncio.Event()

    def writes(self) -> list[str]:
        """The writes but for those of the Lease, which have a resourceVersion."""
        return [text for text in self.requests if not text.startswith("GET ") and "/leases" not in text]

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.free_writes is not None and len(self.writes()) > self.free_writes and request.method != "GET":
            await self.gate.wait()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
        async with self._session.request(
            request.method, self._target + request.path_qs, data=await request.read(), headers=headers
        ) as answer:
            if "watch" not in request.query:
                body = await answer.read()
                return web.Response(status=answer.status, body=body, content_type=answer.content_type)
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


@asynccontextmanager
async def recording_proxy(target: str) -> AsyncIterator[tuple[RecordingProxy, str]]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        proxy = RecordingProxy(target, session)
        runner = web.ServerRunner(web.Server(proxy, handler_cancellation=True, access_log=None), shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, 0).start()
            yield proxy, f"http://{HOST}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def write_kubeconfig(path: Path, url: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": url}}],
        "users": [{"name": "one", "user": {"token": TOKEN}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one", "namespace": "default"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def process(
    folder: Path, name: str, url: str, command: Sequence[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of `gangline` that reaches the server at this URL."""
    metrics, probes = free_ports(2)
    kubeconfig = write_kubeconfig(folder / f"{name}.yaml", url)
    addresses = ["--metrics-bind-address", f"{HOST}:{metrics}", "--health-probe-bind-address", f"{HOST}:{probes}"]
    with (folder / f"{name}.log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gangline", *command, "--kubeconfig", str(kubeconfig), *addresses,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                running.send_signal(signal.SIGCONT)
                running.kill()
            await running.wait()


@pytest.fixture
async def plane() -> AsyncIterator[Connection]:
    """A server without HTTPS, so that a proxy can read what goes through it."""
    settings = PlaneSettings(token=TOKEN)
    async with Store() as store, control_plane(store, settings, SystemClock()) as running:
        yield running.connection


@pytest.fixture
async def client(plane: Connection) -> AsyncIterator[Client]:
    async with HttpTransport(plane) as transport:
        client = Client(transport)
        await create_crds(client, SystemClock())
        yield client


def tfjob(number: int) -> JSON:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["true"]}]}}
    worker = {"replicas": REPLICAS, "template": template}
    return {"metadata": {"name": f"job-{number}"}, "spec": {"tfReplicaSpecs": {"Worker": worker}}}


async def create_jobs(client: Client) -> None:
    for number in range(JOBS):
        await client.create(TFJOBS, tfjob(number), namespace="default")


async def count_services(client: Client) -> int:
    """The services of all replicas. On this server pods are created when a node has given the services their ports."""
    return len([item async for item in client.iterate(Service, Selector(namespace="default", labels=JOB_LABEL))])


async def holder(client: Client, lease: Key) -> str:
    found = [item async for item in client.iterate(Lease, Selector(namespace=lease.namespace))]
    return next((item.spec.holder_identity for item in found if item.metadata.name == lease.name), "")


async def freeze_and_thaw(
    plane: Connection,
    client: Client,
    folder: Path,
    command: Sequence[str],
    begin: Callable[[], Awaitable[object]],
    is_complete: Callable[[], Awaitable[bool]],
) -> None:
    """Stop the leader in the middle of its work, let it continue when another one has done the rest, and count."""
    lease = Key("default", "frozen")
    command = [*command, "--leader-election-id", lease.name]
    async with (
        recording_proxy(plane.server) as (first_proxy, first_url),
        recording_proxy(plane.server) as (second_proxy, second_url),
        process(folder, "first", first_url, command) as first,
    ):
        leader = await wait_until(lambda: holder(client, lease))
        async with process(folder, "second", second_url, command):
            first_proxy.free_writes = len(first_proxy.writes()) + 6
            await begin()
            await wait_until(lambda: len(first_proxy.writes()) > (first_proxy.free_writes or 0) + 3)
            first.send_signal(signal.SIGSTOP)
            first_proxy.gate.set()

            async def is_taken_over() -> bool:
                return await holder(client, lease) not in ("", leader)

            await wait_until(is_taken_over)
            await wait_until(is_complete)
            assert second_proxy.writes(), "the first had finished before it was stopped"
            before = len(first_proxy.writes())
            first.send_signal(signal.SIGCONT)
            async with asyncio.timeout(WAIT_SECONDS):
                assert await first.wait() == 1
            assert first_proxy.writes()[before:] == []
            assert "no longer leading" in (folder / "first.log").read_text()


async def test_an_operator_that_was_frozen_writes_nothing_when_it_continues(
    plane: Connection, client: Client, tmp_path: Path
) -> None:
    async def is_complete() -> bool:
        return await count_services(client) == JOBS * REPLICAS

    command = ["operator", "--leader-elect", "--enable-scheme", "TFJob"]
    await freeze_and_thaw(plane, client, tmp_path, command, lambda: create_jobs(client), is_complete)


async def test_a_scheduler_that_was_frozen_binds_nothing_when_it_continues(
    plane: Connection, client: Client, tmp_path: Path
) -> None:
    amounts = {"cpu": "1000", "memory": "1000Gi", "pods": "500"}
    await client.create(NODES, {"metadata": {"name": "node-1"}})
    await client.patch(NODES, Key("", "node-1"), {"spec": {"taints": None}})
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    await client.patch(NODES, Key("", "node-1"), {"status": status}, subresource="status")

    async def create_pods() -> None:
        for number in range(PODS):
            spec = {"schedulerName": "gangline", "containers": [{"name": "c", "image": "i"}]}
            await client.create(Pod, {"metadata": {"name": f"pod-{number}"}, "spec": spec}, namespace="default")

    async def is_complete() -> bool:
        pods = [pod async for pod in client.iterate(Pod, Selector(namespace="default"))]
        return len(pods) == PODS and all(pod.spec.node_name for pod in pods)

    await freeze_and_thaw(plane, client, tmp_path, ["scheduler"], create_pods, is_complete)
