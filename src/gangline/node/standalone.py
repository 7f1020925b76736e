"""This machine as a node of any Kubernetes-compatible server, as a process of its own."""

import ssl
from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import Selector
from gangline.base.certs import ensure_certificates
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.node.kubelet import LocalKubelet
from gangline.node.logs import NodeLogReader
from gangline.node.network.setup import set_up_network
from gangline.node.server import LogServer, serve_logs
from gangline.node.settings import NodeSettings
from gangline.runtime.manager import Manager

LOOPBACK = "127.0.0.1"


async def run_node(client: Client, folder: Path, state: Path, settings: NodeSettings, clock: Clock) -> None:
    """Register the node and run what is bound to it, until a signal. Serves logs where a kube-apiserver asks."""
    manager = Manager(client, clock)
    # Only its own pods: in a big cluster a node must not cache everyone's.
    pods = manager.informer(Pod, Selector(fields=f"spec.nodeName={settings.name}"))
    async with serve_logs(
        LogServer(NodeLogReader(state, clock), clock.now), LOOPBACK, tls=_tls_context(state, clock)
    ) as port:
        served = msgspec.structs.replace(settings, kubelet_port=port)
        # No access: a pod has what its service account may, which is not what the node may.
        with set_up_network(manager, client, pods, state, served, None) as given:
            node = LocalKubelet(
                client,
                pods,
                folder=folder,
                logs=state,
                clock=clock,
                settings=served,
                ports=given.ports,
                network=given.network,
            )
            manager.add_runnable(node.run)
            await manager.run()


def _tls_context(state: Path, clock: Clock) -> ssl.SSLContext:
    issued = ensure_certificates(state / "certificates", (LOOPBACK,), clock.now())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.server.certificate, issued.server.key)
    return context
