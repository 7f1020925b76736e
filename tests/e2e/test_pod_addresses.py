"""Addresses of pods that share the machine's network, and cluster IPs of their services."""

import asyncio
import sys
from ipaddress import IPv4Address, IPv4Network

import msgspec
import pytest

from gangline.api.core import Pod, Service
from gangline.api.meta import JSON, Key
from gangline.base.host_features import POD_RANGE, SERVICE_RANGE
from gangline.kube.client import Client
from gangline.kube.errors import Invalid
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.api import Request
from gangline.node.network.loopback_addresses import LoopbackAddresses, can_bind
from support.cluster.streams import WAIT, create_pod, first_line, wait_for_phase
from support.servers.real import free_ports
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(not can_bind("127.64.0.1"), reason="this machine answers on 127.0.0.1 only")

NAME_SERVER = """
import os, socketserver, sys
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(os.environ["NAME"].encode() + b" " + self.request.recv(100))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
with Server((sys.argv[1] or os.environ["POD_IP"], int(sys.argv[2])), Handler) as server:
    print(os.environ["POD_IP"], server.server_address[1], flush=True)
    server.serve_forever()
"""
ASK = (
    "import socket, sys\n"
    "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:\n"
    "    s.sendall(b'hello'); s.shutdown(socket.SHUT_WR)\n"
    "    print(s.makefile().read())\n"
)


async def named_pod(client: Client, name: str, host: str = "", port: int = 0) -> tuple[str, int]:
    """A pod that says its name, on the address of the pod or on another; returns its address and its port."""
    env: list[JSON] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAME", "value": name},
    ]
    command = [sys.executable, "-c", NAME_SERVER, host, str(port)]
    container: JSON = {"name": "main", "image": "none", "command": command, "env": env}
    if port:
        container["ports"] = [{"name": "talk", "containerPort": port}]
    key = await create_pod(client, name, container, labels={"app": "names"})
    await wait_for_phase(client, key, "Running")
    address, number = (await first_line(client, key)).split()
    return address, int(number)


async def ask(client: Client, pod: str, host: str, port: int) -> str:
    """What a program in a pod gets from an address."""
    async with asyncio.timeout(WAIT):
        done = await PodSubresources(client).run(Key("default", pod), [sys.executable, "-c", ASK, host, str(port)])
    return done.stdout.decode().strip()


async def test_pods_have_addresses_of_their_own(client: Client) -> None:
    first, port = await named_pod(client, "one")
    # Both listen on the same port, each on its own address.
    second, _ = await named_pod(client, "two", port=port)
    assert first != second
    for name, address in (("one", first), ("two", second)):
        assert IPv4Address(address) in IPv4Network(POD_RANGE)
        pod = await client.get(Pod, Key("default", name))
        assert pod.status.pod_ip == address
    assert await ask(client, "one", second, port) == "two hello"
    assert await ask(client, "two", first, port) == "one hello"
    # Who listens on the address of its pod only is forwarded to, as well.
    async with asyncio.timeout(WAIT), PodSubresources(client).port_forward(Key("default", "two"), port) as forwarded:
        await forwarded.write(b"by port-forward")
        assert await forwarded.read() == b"two by port-forward"


async def test_endpoint_slices_can_name_them(client: Client) -> None:
    address, port = await named_pod(client, "one")

    async def create_slice(name: str, address: str) -> None:
        body: JSON = {
            "metadata": {"name": name},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"name": "talk", "port": port}],
        }
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        await client.requests.call(Request("POST", path, (), msgspec.json.encode(body), "application/json"))

    await create_slice("good", address)
    with pytest.raises(Invalid, match="may not be in the loopback range"):
        await create_slice("bad", "127.0.0.1")


async def create_service(client: Client, port: JSON) -> str:
    """A service for the pods; returns its cluster IP."""
    spec: JSON = {"selector": {"app": "names"}, "ports": [port]}
    made = await client.create(Service, {"metadata": {"name": "names", "namespace": "default"}, "spec": spec})
    return made.spec.cluster_ip


async def test_cluster_ip_leads_to_the_pods_in_turn(client: Client) -> None:
    _, port = await named_pod(client, "one")
    await named_pod(client, "two", port=port)
    cluster_ip = await create_service(client, {"name": "talk", "port": 7000, "targetPort": port})
    assert IPv4Address(cluster_ip) in IPv4Network(SERVICE_RANGE)

    async def both() -> bool | None:
        said = {await ask(client, "one", cluster_ip, 7000) for _ in range(3)}
        return True if said == {"one hello", "two hello"} else None

    assert await wait_until(both)
    await client.delete(Service, Key("default", "names"))

    async def closed() -> bool | None:
        return True if not await ask(client, "one", cluster_ip, 7000) else None

    assert await wait_until(closed)


async def test_target_port_by_name_and_a_program_that_listens_everywhere(client: Client) -> None:
    await named_pod(client, "one", host="0.0.0.0", port=free_ports(1)[0])
    cluster_ip = await create_service(client, {"name": "talk", "port": 7000, "targetPort": "talk"})

    async def answered() -> bool | None:
        return True if await ask(client, "one", cluster_ip, 7000) == "one hello" else None

    assert await wait_until(answered)


async def test_pod_of_the_host_network_has_the_address_of_the_machine(client: Client) -> None:
    body: JSON = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"hostNetwork": True, "containers": [{"name": "main", "image": "x", "command": ["sleep", "1000"]}]},
    }
    await client.create(Pod, body)
    await wait_for_phase(client, Key("default", "p"), "Running")
    assert (await client.get(Pod, Key("default", "p"))).status.pod_ip == "127.0.0.1"


def test_addresses_stay_and_are_given_once() -> None:
    addresses = LoopbackAddresses(IPv4Network("127.64.0.0/29"))
    first = addresses.claim("a", "127.64.0.2")
    assert (first, addresses.claim("a")) == ("127.64.0.2", "127.64.0.2")
    assert addresses.claim("b", "127.64.0.2") != first
    assert addresses.claim("c", "10.0.0.1").startswith("127.64.0.")
    addresses.release("a")
    assert addresses.claim("d", "127.64.0.2") == "127.64.0.2"
