"""Sets up the network that the settings select, with the controller that gives services their addresses."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from gangline.api.core import Pod, Service
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.node.network.plugin import NetworkPlugin, NoPortAllocator, PortAllocator, SharedNetwork
from gangline.node.network.pod_network import PodNetwork
from gangline.node.network.service_ports import ServicePortAllocator
from gangline.node.ports import LOOPBACK
from gangline.node.settings import ISOLATED_NETWORK, NodeSettings
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, own_key

SINGLE_WORKER = ControllerOptions(workers=1)
CONTROLLER_NAME = "addresses"


class NetworkSetup(msgspec.Struct, frozen=True):
    """The network of a node."""

    ports: PortAllocator
    network: NetworkPlugin


@contextmanager
def set_up_network(
    manager: Manager,
    client: Client,
    pods: Informer[Pod],
    state: Path,
    settings: NodeSettings,
    access: PlaneAccess | None,
) -> Iterator[NetworkSetup]:
    """Set up the network, and add its controller to the manager, until the block ends. Raises `NetworkUnavailable`."""
    services = manager.informer(Service)
    if settings.network != ISOLATED_NETWORK:
        allocator = ServicePortAllocator(services.cache, client)
        manager.new_controller(CONTROLLER_NAME, allocator, [InformerSource(services, own_key)], SINGLE_WORKER)
        try:
            yield NetworkSetup(allocator, SharedNetwork())
        finally:
            allocator.close()
        return
    network = PodNetwork((state / "network").absolute(), services.cache, pods.cache, client)
    network.open()
    manager.new_controller(
        CONTROLLER_NAME, network, [InformerSource(services, own_key), InformerSource(pods, own_key)], SINGLE_WORKER
    )
    if access is not None:
        manager.add_runnable(partial(network.serve_api, access))
    for port in settings.shared_ports:
        manager.add_runnable(partial(network.serve_port, LOOPBACK, port))
    try:
        # Ports are the numbers of the spec: no other pod has the same address.
        yield NetworkSetup(NoPortAllocator(), network)
    finally:
        # The kubelet has ended the network already if its pods have ended.
        network.close(leave_running=True)
