"""Which network pods get, and who tells services their addresses in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gangline.api.core import Pod, Service
from gangline.kube.client import Client
from gangline.kube.config.access import Access
from gangline.node.context import Network, Ports, SharedNetwork
from gangline.node.network.pod_network import PodNetwork
from gangline.node.network.service_ports import AddressBook
from gangline.node.settings import ISOLATED, NodeSettings
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import Changes, itself

ONE = ControllerOptions(workers=1)
CONTROLLER = "addresses"


class Addressing(msgspec.Struct, frozen=True):
    """For the node."""

    ports: Ports
    network: Network


@contextmanager
def addressing(
    manager: Manager,
    client: Client,
    pods: Informer[Pod],
    state: Path,
    settings: NodeSettings,
    access: Access | None,
) -> Iterator[Addressing]:
    """Has services addressed by a controller of the manager. Raises `NoNetwork`."""
    services = manager.informer(Service)
    if settings.network != ISOLATED:
        book = AddressBook(services.cache, client)
        manager.controller(CONTROLLER, book, [Changes(services, itself)], ONE)
        try:
            yield Addressing(book, SharedNetwork())
        finally:
            book.close()
        return
    network = PodNetwork((state / "network").absolute(), services.cache, pods.cache, client)
    network.open()
    manager.controller(CONTROLLER, network, [Changes(services, itself), Changes(pods, itself)], ONE)
    if access is not None:
        reached = access
        manager.add_runnable(lambda: network.serve(reached))
    try:
        yield Addressing(network, network)
    finally:
        # The node ended it, if it was to end.
        network.close(leave_running=True)
