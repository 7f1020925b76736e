"""Pods with networks of their own: the names and ports of a cluster, on one machine."""

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from gangline.api.core import Pod, Service
from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, DRILL_ANNOTATION
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.local.plane import PlaneSettings
from gangline.node.options import check_network
from gangline.node.settings import NodeSettings
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Informer
from support.servers.real import free_ports
from support.waiting import wait_until

# Answers every connection with its own host name.
SERVER = """
import socket
with socket.create_server(("0.0.0.0", 2222)) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(socket.gethostname().encode())
"""
# Asks a name and a port until somebody answers, and says what was answered.
CLIENT = """
import socket, sys, time
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
            print(connection.recv(100).decode())
            break
    except OSError:
        time.sleep(0.05)
"""


@pytest.fixture(scope="module", autouse=True)
def permitted() -> None:
    try:
        check_network()
    except InputError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def running(folder: Path, *, leave_running: bool = False, port: int = 0) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        folder=folder,
        logs=folder / "logs",
        state=folder / "store",
        plane=PlaneSettings(certificates=folder / "certificates", token="t", port=port),
        node=NodeSettings(network="isolated", leave_running=leave_running),
    )
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as plane:
        yield plane


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running(tmp_path) as plane:
        yield plane
    assert hubs(tmp_path) == []


def hubs(folder: Path) -> list[int]:
    """The processes that hold a network of this folder."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [each.info["pid"] for each in found if str(folder / "logs" / "network") in (each.info["cmdline"] or ())]


def python(name: str, script: str, *arguments: str, **container: object) -> JSON:
    command = [sys.executable, "-c", script, *arguments]
    main = {"name": "main", "image": "none", "command": command, **container}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [main]}
    return {"metadata": {"name": name, "namespace": "default", "labels": {"name": name}}, "spec": spec}


async def service(client: Client, name: str) -> None:
    """As the operator makes one for a replica: headless, named like its pod."""
    ports = [{"name": "tfjob-port", "port": 2222}]
    spec = {"clusterIP": "None", "selector": {"name": name}, "ports": ports}
    await client.create(Service, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def until(client: Client, name: str, *phases: str, ready: bool = False) -> Pod:
    pods = Informer(client, Pod, Selector("default", fields=f"metadata.name={name}"), clock=SystemClock())

    def there(cache: Cache[Pod]) -> bool:
        return any(
            pod.status.phase in phases and (not ready or pod.status.container_statuses[0].ready) for pod in cache
        )

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        following = group.create_task(pods.run())
        await pods.wait_until(there)
        following.cancel()
    (found,) = pods.cache
    return found


async def said(client: Client, name: str) -> str:
    await until(client, name, "Succeeded", "Failed")
    return "\n".join([line.decode() async for line in PodSubresources(client).logs(Key("default", name))])


async def test_replicas_listen_on_one_port_and_are_found_by_their_services(cluster: LocalCluster) -> None:
    client = cluster.client
    for name in ("job-worker-0", "job-worker-1"):
        await service(client, name)
        await client.create(Pod, python(name, SERVER))
    for number in range(2):
        name = f"job-worker-{number}.default.svc"
        await client.create(Pod, python(f"asks-{number}", CLIENT, name, "2222"))
    assert await said(client, "asks-0") == "job-worker-0"
    assert await said(client, "asks-1") == "job-worker-1"


async def test_a_drill_limits_what_a_pod_sends_for_a_while(cluster: LocalCluster) -> None:
    if shutil.which("tc") is None:
        pytest.skip("tc (iproute2) is not there, so a drill refuses to slow a network down")
    client, key = cluster.client, Key("default", "slow")
    await client.create(Pod, python("slow", "import time; time.sleep(600)"))
    await until(client, "slow", "Running")

    async def queue() -> str:
        return (await PodSubresources(client).run(key, ["tc", "qdisc", "show", "dev", "eth0"])).stdout.decode()

    request = FaultRequest(id="x", fault=FaultKind.SLOW_NETWORK, seconds=5, bits_per_second=10**6)
    annotations = {DRILL_ANNOTATION: msgspec.json.encode(request).decode()}
    await client.patch(Pod, key, {"metadata": {"annotations": annotations}})

    async def is_limited() -> bool:
        return "tbf" in await queue() and "rate 1Mbit" in await queue()

    async def is_free() -> bool:
        return "tbf" not in await queue()

    await wait_until(is_limited)
    await wait_until(is_free)


async def test_services_are_told_the_names_and_ports_of_a_cluster(cluster: LocalCluster) -> None:
    services = Informer(cluster.client, Service, clock=SystemClock())
    await service(cluster.client, "job-ps-0")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        following = group.create_task(services.run())
        await services.wait_until(
            lambda cache: any(ADDRESSES_ANNOTATION in each.metadata.annotations for each in cache)
        )
        following.cancel()
    found = services.cache.get(Key("default", "job-ps-0"))
    assert found is not None
    book = msgspec.json.decode(found.metadata.annotations[ADDRESSES_ANNOTATION])
    assert book == {"tfjob-port": "job-ps-0.default.svc:2222"}


async def test_a_pod_has_a_host_name_and_an_address_that_belong_together(cluster: LocalCluster) -> None:
    script = "import os, socket; n = socket.gethostname(); print(n, socket.gethostbyname(n) == os.environ['IP'])"
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    await cluster.client.create(Pod, python("p", script, env=env))
    assert await said(cluster.client, "p") == "p True"
    assert socket.gethostname() != "p"


async def test_a_name_resolves_before_its_pod_is_there_and_stays_when_the_pod_is_made_anew(
    cluster: LocalCluster,
) -> None:
    client = cluster.client
    await service(client, "w")
    await client.create(Pod, python("early", "import socket; print(socket.gethostbyname('w.default.svc'))"))
    address = await said(client, "early")
    for _ in range(2):
        await client.create(Pod, python("w", "pass"))
        ended = await until(client, "w", "Succeeded")
        assert ended.status.pod_ip == address
        await client.delete(Pod, Key("default", "w"))


async def test_commands_connections_and_probes_go_into_the_pods_network(cluster: LocalCluster) -> None:
    client, pods = cluster.client, PodSubresources(cluster.client)
    probes: dict[str, JSON] = {
        "tcp": {"tcpSocket": {"port": 2222}},
        "command": {"exec": {"command": ["sh", "-c", "[ $(hostname) = command ]"]}},
    }
    for name, probe in probes.items():
        key = Key("default", name)
        await client.create(Pod, python(name, SERVER, readinessProbe={**probe, "periodSeconds": 1}))
        await until(client, name, "Running", ready=True)
        done = await pods.run(key, [sys.executable, "-c", CLIENT, "127.0.0.1", "2222"])
        assert done.stdout == f"{name}\n".encode()
        async with pods.port_forward(key, 2222) as connection:
            assert await connection.read() == name.encode()


async def test_an_http_probe_reaches_a_pod(cluster: LocalCluster) -> None:
    script = "import http.server as h; h.test(HandlerClass=h.SimpleHTTPRequestHandler, port=8000)"
    probe = {"httpGet": {"port": 8000, "path": "/"}, "periodSeconds": 1}
    await cluster.client.create(Pod, python("web", script, readinessProbe=probe))
    await until(cluster.client, "web", "Running", ready=True)


async def test_a_pod_reaches_the_api_and_other_pods_through_it(cluster: LocalCluster) -> None:
    await cluster.client.create(Pod, python("worker", "import time; time.sleep(999)"))
    script = "import os; os.execv(os.environ['GANGLINE_AGENT'], ['agent', 'worker', 'hostname'])"
    await cluster.client.create(Pod, python("launcher", script))
    assert await said(cluster.client, "launcher") == "worker"


async def test_the_network_outlives_the_node_and_is_found_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)  # one that nobody is given by chance while the node is away
    async with running(tmp_path, leave_running=True, port=port) as first:
        await service(first.client, "server")
        await first.client.create(Pod, python("server", SERVER))
        await until(first.client, "server", "Running")
    (hub,) = hubs(tmp_path)
    async with running(tmp_path, port=port) as second:
        assert hubs(tmp_path) == [hub]
        await second.client.create(Pod, python("asks", CLIENT, "server.default.svc", "2222"))
        assert await said(second.client, "asks") == "server"
    assert hubs(tmp_path) == []
