"""Which network pods get, and who tells services their addresses in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gangline.api.core import Pod, Service
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.node.context import NetworkPlugin, PortAllocator, SharedNetwork
from gangline.node.network.pod_network import PodNetwork
from gangline.node.network.service_ports import ServicePortAllocator
from gangline.node.settings import ISOLATED_NETWORK, NodeSettings
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, own_key

SINGLE_WORKER = ControllerOptions(workers=1)
CONTROLLER_NAME = "addresses"


class NetworkSetup(msgspec.Struct, frozen=True):
    """For the node."""

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
    """Has services addressed by a controller of the manager. Raises `NetworkUnavailable`."""
    services = manager.informer(Service)
    if settings.network != ISOLATED_NETWORK:
        book = ServicePortAllocator(services.cache, client)
        manager.new_controller(CONTROLLER_NAME, book, [InformerSource(services, own_key)], SINGLE_WORKER)
        try:
            yield NetworkSetup(book, SharedNetwork())
        finally:
            book.close()
        return
    network = PodNetwork((state / "network").absolute(), services.cache, pods.cache, client)
    network.open()
    manager.new_controller(
        CONTROLLER_NAME,
        network,
        [InformerSource(services, own_key), InformerSource(pods, own_key)],
        SINGLE_WORKER,
    )
    if access is not None:
        reached = access
        manager.add_runnable(lambda: network.serve_api(reached))
    try:
        yield NetworkSetup(network, network)
    finally:
        # The node ended it, if it was to end.
        network.close(leave_running=True)
