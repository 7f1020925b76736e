"""The address book: on one machine every service port gets a real port of its own, written on the service."""

import socket
from datetime import timedelta

import msgspec

from gangline.api.core import Service
from gangline.api.meta import Key
from gangline.api.training import ADDRESSES
from gangline.kube.client import Writer
from gangline.runtime.cache import Cache


class AddressBook:
    """A reconciler that gives each new Service its addresses, once."""

    def __init__(self, services: Cache[Service], writer: Writer) -> None:
        self._services, self._writer = services, writer

    async def reconcile(self, key: Key) -> timedelta | None:
        service = self._services.get(key)
        if service is not None and ADDRESSES not in service.metadata.annotations:
            ports = free_ports(len(service.spec.ports))
            book = {
                port.name: f"127.0.0.1:{number}"
                for port, number in zip(service.spec.ports, ports, strict=True)
            }
            note = {ADDRESSES: msgspec.json.encode(book).decode()}
            await self._writer.patch(Service, key, {"metadata": {"annotations": note}})
        return None


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, all different. Held open together while choosing, so none is given twice."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
