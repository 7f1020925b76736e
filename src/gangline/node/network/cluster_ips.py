"""Cluster IPs of services in the machine's own network: a listener for each port, as kube-proxy had them at first.

It works for cluster IPs of the loopback interface, which every user may listen on. Ports below 1024 need what the machine
asks for them; without it the cluster IP of such a port leads nowhere, and the log says so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Address, IPv4Network

from gangline.api.core import Pod, Service, ServicePort
from gangline.api.meta import Key
from gangline.base.host_features import SERVICE_RANGE
from gangline.kube.podstreams import ContainerNotRunning
from gangline.node.network.pod_network import join_connections
from gangline.runtime.cache import Cache

log = logging.getLogger(__name__)

CLUSTER_IPS = IPv4Network(SERVICE_RANGE)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PodConnector = Callable[[Pod, int], Awaitable[Connection]]
"""Connects to a port of a pod. Raises OSError and `ContainerNotRunning`."""


class ClusterIpProxy:
    """A reconciler that listens on the cluster IPs of services, and passes connections on to ready pods in turn."""

    def __init__(self, services: Cache[Service], pods: Cache[Pod], connect: PodConnector) -> None:
        self._services, self._pods, self._connect = services, pods, connect
        # By service, and by address and port.
        self._listeners: dict[Key, dict[tuple[str, int], asyncio.Server]] = {}
        self._turn = 0

    async def reconcile(self, key: Key) -> timedelta | None:
        service = self._services.get(key)
        wanted = set(_addresses(service)) if service is not None else set()
        listeners = self._listeners.setdefault(key, {})
        for address in [address for address in listeners if address not in wanted]:
            listeners.pop(address).close()
        for address in wanted - listeners.keys():
            try:
                listeners[address] = await asyncio.start_server(partial(self._serve, key, address[1]), *address)
            except OSError as error:
                host, port = address
                log.info(
                    "a cluster IP leads nowhere",
                    extra={"service": str(key), "address": f"{host}:{port}", "error": error.strerror},
                )
        if not listeners:
            del self._listeners[key]
        return None

    def close(self) -> None:
        """Stop listening."""
        for listeners in self._listeners.values():
            for server in listeners.values():
                server.close()
        self._listeners.clear()

    async def _serve(self, key: Key, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            connection = await self._connect_any(key, port)
            if connection is not None:
                await join_connections((reader, writer), connection)

    async def _connect_any(self, key: Key, port: int) -> Connection | None:
        """A connection to the next pod that accepts one; None if there is none."""
        service = self._services.get(key)
        ports = [item for item in service.spec.ports if item.port == port] if service is not None else []
        if service is None or not ports:
            return None
        backends = list(backend_ports(service, ports[0], self._pods))
        self._turn += 1
        for step in range(len(backends)):
            pod, number = backends[(self._turn + step) % len(backends)]
            with suppress(OSError, ContainerNotRunning):
                return await self._connect(pod, number)
        return None


def _addresses(service: Service) -> Iterator[tuple[str, int]]:
    """Where connections for a service are accepted."""
    try:
        if not service.spec.selector or IPv4Address(service.spec.cluster_ip) not in CLUSTER_IPS:
            return
    except ValueError:  # no cluster IP, or one of IPv6
        return
    yield from ((service.spec.cluster_ip, port.port) for port in service.spec.ports if port.protocol == "TCP")


def backend_ports(service: Service, port: ServicePort, pods: Cache[Pod]) -> Iterator[tuple[Pod, int]]:
    """The ready pods of a service, each with the port that it has for this port of the service."""
    selector, namespace = service.spec.selector.items(), service.metadata.namespace
    for pod in pods:
        if pod.metadata.namespace != namespace or not selector <= pod.metadata.labels.items() or not _is_ready(pod):
            continue
        target = port.target_port or port.port
        if isinstance(target, int):
            yield pod, target
            continue
        named = (item for container in pod.spec.containers for item in container.ports if item.name == target)
        yield from ((pod, item.container_port) for item in named)


def _is_ready(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is not None:
        return False
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
