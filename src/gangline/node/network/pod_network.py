"""The network of isolated pods: every pod has its own address, and services have the names they have in a cluster.

An address belongs to the name of a pod or service, and a replica's service is named like its pod. So the address of a
replica is known before the pod exists, and stays when the pod is recreated. Each namespace has a hosts file, which its
pods see as /etc/hosts; it is rewritten when services or pods change.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gangline.api.core import Pod, Service, is_terminal_phase
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION
from gangline.api.meta import Key
from gangline.base.files import private_folder, write_private
from gangline.kube.client import ApiWriter
from gangline.kube.config.access import PlaneAccess
from gangline.node.network.bridge import GATEWAY
from gangline.node.network.bridge_client import BridgeClient
from gangline.node.network.namespaces import SERVER_NAME, Isolation
from gangline.node.network.service_ports import annotate_addresses
from gangline.node.pod_types import RunPod
from gangline.runtime.cache import Cache

FIRST_ADDRESS, LAST_ADDRESS = int(IPv4Address(GATEWAY)) + 1, int(IPv4Address(GATEWAY)) + 2**16 - 3
CHUNK_BYTES = 65536


class PodAddressPool:
    """The addresses of names, kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._assigned: dict[str, int] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
        self._last = max(self._assigned.values(), default=FIRST_ADDRESS - 1)

    def address_of(self, key: Key) -> str:
        """The address of a name: the same every time, until it is released."""
        number = self._assigned.get(str(key))
        if number is None:
            number = self._assigned[str(key)] = self._next_free()
            self._save()
        return str(IPv4Address(number))

    def release(self, key: Key) -> None:
        if self._assigned.pop(str(key), None) is not None:
            self._save()

    def _next_free(self) -> int:
        # The next address rather than the lowest: peers may still use one that was just released.
        used, number = set(self._assigned.values()), self._last
        while True:
            number = number + 1 if number < LAST_ADDRESS else FIRST_ADDRESS
            if number not in used:
                self._last = number
                return number

    def _save(self) -> None:
        private_folder(self._file.parent)
        write_private(self._file, msgspec.json.encode(self._assigned))


def hosts_text(namespace: str, pods: Iterable[tuple[str, str]], services: Iterable[tuple[Key, tuple[str, ...]]]) -> str:
    """The hosts file of a namespace: its pods (name, address), and the services of all namespaces (key, addresses)."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost",
        f"{GATEWAY} {SERVER_NAME} {SERVER_NAME}.cluster.local kubernetes.default kubernetes",
    ]
    for key, addresses in services:
        full = f"{key.name}.{key.namespace}"
        names = [f"{full}.svc.cluster.local", f"{full}.svc", full]
        names += [key.name] if key.namespace == namespace else []
        lines += [f"{address} {' '.join(names)}" for address in addresses]
    lines += [f"{address} {name}" for name, address in pods]
    return "\n".join(lines) + "\n"


class PodNetwork:
    """The network plugin of isolated pods, and the reconciler that gives services their addresses."""

    def __init__(self, folder: Path, services: Cache[Service], pods: Cache[Pod], writer: ApiWriter) -> None:
        self._folder, self._services, self._pods, self._writer = folder, services, pods, writer
        self._addresses = PodAddressPool(folder / "addresses")
        self._bridge = BridgeClient(folder)

    # Services and names

    async def reconcile(self, key: Key) -> timedelta | None:
        """Update hosts files and the service after a change of the service or pod of this name."""
        service = self._services.get(key)
        if service is None and self._pods.get(key) is None:
            self._addresses.release(key)
        self._write_hosts({key.namespace, *self._known_namespaces()})
        if service is None or not service.spec.selector or not service.spec.ports:
            return None
        if ADDRESSES_ANNOTATION not in service.metadata.annotations:
            host = f"{key.name}.{key.namespace}.svc"
            addresses = {port.name: f"{host}:{port.port}" for port in service.spec.ports}
            await annotate_addresses(self._writer, key, addresses)
        return None

    def _write_hosts(self, namespaces: Iterable[str]) -> None:
        services = [
            (service.metadata.key, self._service_addresses(service))
            for service in self._services
            if service.spec.selector
        ]
        services.sort()
        for namespace in namespaces:
            pods = sorted(
                (pod.metadata.name, self._addresses.address_of(pod.metadata.key))
                for pod in self._pods
                if pod.metadata.namespace == namespace
            )
            rewrite_in_place(self._hosts_file(namespace), hosts_text(namespace, pods, services))

    def _service_addresses(self, service: Service) -> tuple[str, ...]:
        """The addresses of the pods that a service selects; without such pods, the address of the service's name."""
        selector, namespace = service.spec.selector.items(), service.metadata.namespace
        addresses = [
            self._addresses.address_of(pod.metadata.key)
            for pod in self._pods
            if pod.metadata.namespace == namespace
            and selector <= pod.metadata.labels.items()
            and not is_terminal_phase(pod.status.phase)
        ]
        return tuple(sorted(addresses)) or (self._addresses.address_of(service.metadata.key),)

    def _hosts_file(self, namespace: str) -> Path:
        return self._folder / "hosts" / namespace

    def _known_namespaces(self) -> set[str]:
        return {file.name for file in (self._folder / "hosts").glob("*")}

    # Pods

    def address(self, pod: RunPod) -> str:
        return self._addresses.address_of(pod.metadata.key)

    async def join(self, pod: RunPod) -> Isolation:
        key = pod.metadata.key
        self._write_hosts({key.namespace})
        address = self._addresses.address_of(key)
        namespaces = await asyncio.to_thread(self._bridge.join, pod.metadata.uid, address)
        return Isolation(
            address=namespaces["address"],
            hostname=pod.spec.hostname or pod.metadata.name,
            net=namespaces["net"],
            user=namespaces["user"],
            hosts=str(self._hosts_file(key.namespace).absolute()),
        )

    async def leave(self, uid: str) -> None:
        await asyncio.to_thread(self._bridge.leave, uid)

    @property
    def tcp_socket(self) -> Callable[[], socket.socket]:
        return self._bridge.tcp_socket

    def open(self) -> None:
        """Create the network. Raises `NetworkUnavailable` where that is not possible."""
        self._bridge.open()

    def close(self, *, leave_running: bool) -> None:
        if leave_running:
            self._bridge.close()
        else:
            self._bridge.stop()

    # Access to the API server

    async def serve_api(self, access: PlaneAccess) -> None:
        """Proxy connections of pods to the API server, which listens on loopback only, until cancelled."""
        parts = urlsplit(access.server)
        await self.serve_port(parts.hostname or "", parts.port or 443)

    async def serve_port(self, host: str, port: int) -> None:
        """Proxy connections of pods to this port of the gateway, to a server of this machine, until cancelled."""

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await proxy_connection(reader, writer, host, port)

        listener = self._bridge.tcp_socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((GATEWAY, port))
        server = await asyncio.start_server(proxy, sock=listener)
        async with server:
            await server.serve_forever()


async def proxy_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Copy in both directions until both have ended."""
    with contextlib.closing(writer):
        try:
            server_reader, server_writer = await asyncio.open_connection(host, port)
        except OSError:
            return
        await join_connections((reader, writer), (server_reader, server_writer))


async def join_connections(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Copy in both directions until both have ended. The other connection is closed then."""
    with contextlib.closing(other[1]):
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy_stream(one[0], other[1]))
            group.create_task(_copy_stream(other[0], one[1]))


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


def rewrite_in_place(file: Path, text: str) -> None:
    """Replace the content of a file, not the file: it is mounted in pods."""
    private_folder(file.parent)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        data = text.encode()
        if os.pread(descriptor, len(data) + 1, 0) != data:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
