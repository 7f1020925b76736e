"""Real ports for services of pods that share one machine, written into an annotation of the service.

A port is allocated once and stays with its service. Until the service's pod listens on it, and between two processes
of the pod, the allocator keeps it bound, so that no other process gets it by chance. While a process runs, the
allocator binds the same number of the other protocol (the mark), by which other planes see that the port is in use. If
another process takes the port nevertheless, the pod fails with `PortTaken`: its peers know the old port, so only a
restart of the whole gang helps. That restart recreates the gang's services, which then get new ports: ports belong to
the uid of a service.
"""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

import msgspec

from gangline.api.core import Service, ServicePort
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION
from gangline.api.meta import Key
from gangline.base.errors import GanglineError
from gangline.kube.client import ApiWriter
from gangline.node.pod_types import RunPod
from gangline.node.ports import LOOPBACK, POD_PORTS, bind_port, other_protocol, reserve_port
from gangline.runtime.cache import Cache


class PortTaken(GanglineError):
    """Another process listens on a port that belongs to a pod."""


class ServicePortAllocator:
    """A reconciler that gives each new Service its addresses, once; and the `PortAllocator` of the node."""

    def __init__(self, services: Cache[Service], writer: ApiWriter) -> None:
        self._services, self._writer = services, writer
        # Sockets by service and port name: bound, not listening.
        self._reserved: dict[Key, dict[str, socket.socket]] = {}
        # Sockets of the other protocol, for ports that are handed over to a process.
        self._marks: dict[Key, list[socket.socket]] = {}
        self._uids: dict[Key, str] = {}
        # By pod uid: the number of its processes that may listen. The ports of these pods are not reserved.
        self._handed_over: dict[str, int] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        service = self._services.get(key)
        uid = service.metadata.uid if service is not None else ""
        if self._uids.pop(key, uid) != uid:
            # The service was recreated, and gets new ports.
            self._release(key)
        if service is None:
            self._release(key)
            return None
        self._uids[key] = uid
        if ADDRESSES_ANNOTATION in service.metadata.annotations and key not in self._reserved:
            # An earlier process of this plane allocated the ports.
            self._mark(service)
        if service.spec.selector and service.spec.ports and ADDRESSES_ANNOTATION not in service.metadata.annotations:
            ports = self._allocate(key, service)
            await annotate_addresses(self._writer, key, {name: f"{LOOPBACK}:{port}" for name, port in ports.items()})
        return None

    def close(self) -> None:
        """Release all ports."""
        for key in {*self._reserved, *self._marks}:
            self._release(key)

    # Ports

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        ports: dict[str, int] = {}
        for service in self._services_of(pod):
            real_ports = service_ports(service)
            for port in service.spec.ports:
                if port.name in real_ports:
                    ports[port.name] = real_ports[port.name]
                    ports[str(port.target_port or port.port)] = real_ports[port.name]
        return ports

    def hand_over(self, pod: RunPod) -> None:
        uid = pod.metadata.uid
        if uid not in self._handed_over:
            for service in self._services_of(pod):
                self._release(service.metadata.key)
                for name, number in service_ports(service).items():
                    _check_port_free(service, name, number)
                self._mark(service)
        self._handed_over[uid] = self._handed_over.get(uid, 0) + 1

    def take_back(self, pod: RunPod) -> str:
        remaining = self._handed_over.get(pod.metadata.uid, 0) - 1
        if remaining > 0:
            self._handed_over[pod.metadata.uid] = remaining
            return ""
        self._handed_over.pop(pod.metadata.uid, None)
        return "; ".join(filter(None, [self._reserve(service) for service in self._services_of(pod)]))

    def _services_of(self, pod: RunPod) -> Iterator[Service]:
        labels = pod.metadata.labels.items()
        for service in self._services:
            selector = service.spec.selector
            if selector and service.metadata.namespace == pod.metadata.namespace and selector.items() <= labels:
                yield service

    def _allocate(self, key: Key, service: Service) -> dict[str, int]:
        """Free ports by name, reserved from now on. A second call returns the same ports."""
        reserved = self._reserved.setdefault(key, {})
        for port in service.spec.ports:
            if port.name not in reserved:
                reserved[port.name] = reserve_port(POD_PORTS, _socket_kind(port))
        return {name: bound.getsockname()[1] for name, bound in reserved.items()}

    def _reserve(self, service: Service) -> str:
        """Bind the service's ports. Returns a message about ports that another process has."""
        self._unmark(service.metadata.key)
        problems = []
        reserved = self._reserved.setdefault(service.metadata.key, {})
        kinds = {port.name: _socket_kind(port) for port in service.spec.ports}
        for name, number in service_ports(service).items():
            if name not in reserved and name in kinds:
                try:
                    reserved[name] = bind_port(number, kinds[name])
                except OSError:
                    problems.append(_port_taken_message(service, name, number))
        return "; ".join(problems)

    def _release(self, key: Key) -> None:
        self._unmark(key)
        for bound in self._reserved.pop(key, {}).values():
            bound.close()

    def _mark(self, service: Service) -> None:
        """Bind the marks of a service's ports. Best effort: only other planes look at them."""
        key = service.metadata.key
        if key in self._marks:
            return
        kinds = {port.name: other_protocol(_socket_kind(port)) for port in service.spec.ports}
        marks = self._marks[key] = []
        for name, number in service_ports(service).items():
            with suppress(OSError):
                marks.append(bind_port(number, kinds.get(name, socket.SOCK_DGRAM)))

    def _unmark(self, key: Key) -> None:
        for mark in self._marks.pop(key, ()):
            mark.close()


async def annotate_addresses(writer: ApiWriter, service: Key, addresses: Mapping[str, str]) -> None:
    """Write the addresses of a service, host and port by port name, into its annotation."""
    annotations = {ADDRESSES_ANNOTATION: msgspec.json.encode(addresses).decode()}
    await writer.patch(Service, service, {"metadata": {"annotations": annotations}})


def service_ports(service: Service) -> dict[str, int]:
    """Real ports by name, as the service's annotation has them."""
    text = service.metadata.annotations.get(ADDRESSES_ANNOTATION)
    if not text:
        return {}
    addresses = msgspec.json.decode(text, type=dict[str, str])
    return {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}


def _check_port_free(service: Service, name: str, number: int) -> None:
    kinds = {port.name: _socket_kind(port) for port in service.spec.ports}
    try:
        bind_port(number, kinds.get(name, socket.SOCK_STREAM)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(_port_taken_message(service, name, number)) from error


def _port_taken_message(service: Service, name: str, number: int) -> str:
    return f'port {number}, given to service "{service.metadata.name}" as "{name}", is taken by another process'


def _socket_kind(port: ServicePort) -> socket.SocketKind:
    return socket.SOCK_DGRAM if port.protocol == "UDP" else socket.SOCK_STREAM
