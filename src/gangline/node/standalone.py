"""This machine as a node of any Kubernetes-compatible server, in a process of its own."""

from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import Selector
from gangline.base.certificates.keeper import CertificateKeeper
from gangline.base.certificates.serving import require_client_certificates
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.node.api.server import NodeApi, serve_node_api
from gangline.node.kubelet import LocalKubelet
from gangline.node.logs import NodeLogReader
from gangline.node.network.setup import set_up_network
from gangline.node.ports import LOOPBACK
from gangline.node.settings import NodeSettings
from gangline.runtime.manager import Manager


async def run_node(
    client: Client,
    folder: Path,
    state: Path,
    settings: NodeSettings,
    clock: Clock,
    client_ca: Path | None = None,
) -> None:
    """Register the node and run the pods bound to it, until a signal. Serves logs for a kube-apiserver.

    With `client_ca`, only clients with a certificate of that CA get logs. Raises `InputError` if it cannot be read.
    """
    manager = Manager(client, clock)
    # Only the pods of this node: a node of a large cluster must not cache all pods.
    pods = manager.informer(Pod, Selector(fields=f"spec.nodeName={settings.name}"))
    certificates = CertificateKeeper(state / "certificates", (LOOPBACK,), clock)
    manager.add_runnable(certificates.run)
    server = NodeApi(NodeLogReader(state, clock), clock.now)
    tls = certificates.server_context()
    if client_ca is not None:
        require_client_certificates(tls, client_ca, "--client-ca-file")
    async with serve_node_api(server, LOOPBACK, tls=tls) as port:
        settings = msgspec.structs.replace(settings, kubelet_port=port)
        # Pods get no access of the node: they may do only what their service account may.
        with set_up_network(manager, client, pods, state, settings, None) as setup:
            node = LocalKubelet(
                client,
                pods,
                folder=folder,
                logs=state,
                clock=clock,
                settings=settings,
                ports=setup.ports,
                network=setup.network,
            )
            manager.add_runnable(node.run)
            await manager.run()
