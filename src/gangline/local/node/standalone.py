"""This machine as a node of any Kubernetes-compatible server, as a process of its own."""

import ssl
from contextlib import closing
from pathlib import Path

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.meta import Selector
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.local.certs import authority
from gangline.local.node.kubelet import LogServer, serving_logs
from gangline.local.node.logs import LogReader
from gangline.local.node.network import AddressBook
from gangline.local.node.node import Node
from gangline.local.node.settings import NodeSettings
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import Changes, itself

HOST = "127.0.0.1"


async def run_node(client: Client, folder: Path, state: Path, settings: NodeSettings, clock: Clock) -> None:
    """Register the node and run what is bound to it, until a signal. Serves logs where a kube-apiserver asks."""
    manager = Manager(client, clock)
    # Only its own pods: in a big cluster a node must not cache everyone's.
    pods = manager.informer(Pod, Selector(fields=f"spec.nodeName={settings.name}"))
    services = manager.informer(Service)
    book = AddressBook(services.cache, client)
    async with serving_logs(
        LogServer(LogReader(state, clock), clock.now), HOST, tls=_tls(state, clock)
    ) as port:
        served = msgspec.structs.replace(settings, kubelet_port=port)
        node = Node(client, pods, folder=folder, logs=state, clock=clock, settings=served, ports=book)
        manager.controller("addresses", book, [Changes(services, itself)], ControllerOptions(workers=1))
        manager.add_runnable(node.run)
        with closing(book):
            await manager.run()


def _tls(state: Path, clock: Clock) -> ssl.SSLContext:
    issued = authority(state / "certificates", (HOST,), clock.now())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.server.certificate, issued.server.key)
    return context
