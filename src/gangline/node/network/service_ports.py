"""The address book: on one machine every service port gets a real port of its own, written on the service.

A port is given out once and stays with its service. Until the service's pod listens on it, and again between two of
its processes, the book holds it bound, so that nobody gets it by chance. While a process runs, which may listen or not,
the book has the same number of the other protocol, by which other planes see that it is given. If somebody took it
nevertheless, the pod fails with `PortTaken`: its peers were told the old port, so only a new start of the whole team
helps. Whoever restarts it deletes the team's services and makes them anew: these get new ports. A service's ports are
those of its uid.
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
from gangline.node.ports import LOOPBACK, POD_PORTS, bind_port, other_protocol, reserve_port
from gangline.node.types import RunPod
from gangline.runtime.cache import Cache


class PortTaken(GanglineError):
    """Somebody else listens on a port that was given to a pod."""


class ServicePortAllocator:
    """A reconciler that gives each new Service its addresses, once; and `PortAllocator` for the node's pods."""

    def __init__(self, services: Cache[Service], writer: ApiWriter) -> None:
        self._services, self._writer = services, writer
        # By service and port name. Bound, not listening.
        self._reserved: dict[Key, dict[str, socket.socket]] = {}
        # The same, in the other protocol: of ports that are not held.
        self._marks: dict[Key, list[socket.socket]] = {}
        self._uids: dict[Key, str] = {}
        # Pods (by uid) with processes that may listen, and how many; their ports are not held.
        self._handed_over: dict[str, int] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        service = self._services.get(key)
        uid = service.metadata.uid if service is not None else ""
        if self._uids.pop(key, uid) != uid:
            # Made anew under its name: by whoever wants other ports.
            self._release(key)
        if service is None:
            self._release(key)
            return None
        self._uids[key] = uid
        if ADDRESSES_ANNOTATION in service.metadata.annotations and key not in self._reserved:
            # Given by an earlier life of this plane.
            self._mark(service)
        if service.spec.selector and service.spec.ports and ADDRESSES_ANNOTATION not in service.metadata.annotations:
            book = {name: f"{LOOPBACK}:{number}" for name, number in self._allocate(key, service).items()}
            note = {ADDRESSES_ANNOTATION: msgspec.json.encode(book).decode()}
            await self._writer.patch(Service, key, {"metadata": {"annotations": note}})
        return None

    def close(self) -> None:
        """Let all ports go."""
        for key in {*self._reserved, *self._marks}:
            self._release(key)

    # Ports

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        """The real ports of a pod, by name and by written number."""
        found: dict[str, int] = {}
        for service in self._services_of(pod):
            book = service_ports(service)
            for port in service.spec.ports:
                if port.name in book:
                    found[port.name] = book[port.name]
                    found[str(port.target_port or port.port)] = book[port.name]
        return found

    def hand_over(self, pod: RunPod) -> None:
        """The pod's process is about to start and will listen. Raises `PortTaken` if somebody else does."""
        uid = pod.metadata.uid
        if uid not in self._handed_over:
            for service in self._services_of(pod):
                self._release(service.metadata.key)
                for name, number in service_ports(service).items():
                    _check_port_free(service, name, number)
                self._mark(service)
        self._handed_over[uid] = self._handed_over.get(uid, 0) + 1

    def take_back(self, pod: RunPod) -> str:
        """The process has ended: keep its ports for the next one. Says so if somebody else has one of them."""
        left = self._handed_over.get(pod.metadata.uid, 0) - 1
        if left > 0:
            self._handed_over[pod.metadata.uid] = left
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
        """Ports nobody listens on, held from now on. The same again if they could not be written down."""
        held = self._reserved.setdefault(key, {})
        for port in service.spec.ports:
            if port.name not in held:
                held[port.name] = reserve_port(POD_PORTS, _socket_kind(port))
        return {name: each.getsockname()[1] for name, each in held.items()}

    def _reserve(self, service: Service) -> str:
        self._unmark(service.metadata.key)
        lost = []
        held = self._reserved.setdefault(service.metadata.key, {})
        kinds = {port.name: _socket_kind(port) for port in service.spec.ports}
        for name, number in service_ports(service).items():
            if name not in held and name in kinds:
                try:
                    held[name] = bind_port(number, kinds[name])
                except OSError:
                    lost.append(_port_taken_message(service, name, number))
        return "; ".join(lost)

    def _release(self, key: Key) -> None:
        self._unmark(key)
        for each in self._reserved.pop(key, {}).values():
            each.close()

    def _mark(self, service: Service) -> None:
        """Best effort: a mark that cannot be had is missed by nobody but other planes."""
        key = service.metadata.key
        if key in self._marks:
            return
        kinds = {port.name: other_protocol(_socket_kind(port)) for port in service.spec.ports}
        marks = self._marks[key] = []
        for name, number in service_ports(service).items():
            with suppress(OSError):
                marks.append(bind_port(number, kinds.get(name, socket.SOCK_DGRAM)))

    def _unmark(self, key: Key) -> None:
        for each in self._marks.pop(key, ()):
            each.close()


def service_ports(service: Service) -> dict[str, int]:
    """Ports by name, as the annotation has them."""
    text = service.metadata.annotations.get(ADDRESSES_ANNOTATION)
    if not text:
        return {}
    book = msgspec.json.decode(text, type=dict[str, str])
    return {name: int(address.rpartition(":")[2]) for name, address in book.items()}


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
