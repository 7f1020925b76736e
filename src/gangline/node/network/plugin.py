"""What a pod's worker needs of the network: ports and namespaces. And the plugins of a node that offers neither."""

import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from gangline.node.network.loopback_addresses import LoopbackAddresses
from gangline.node.network.namespaces import Isolation
from gangline.node.pod_types import RunPod
from gangline.node.ports import LOOPBACK


class PortAllocator(Protocol):
    """The real ports of pods that share one machine."""

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        """The real ports of a pod, by port name and by the number in its spec."""
        ...

    def hand_over(self, pod: RunPod) -> None:
        """Release the pod's ports for a process that is about to start. Raises `PortTaken` if one is in use."""
        ...

    def take_back(self, pod: RunPod) -> str:
        """Reserve the ports again when the process has ended. Returns a message about ports of another process."""
        ...


class NoPortAllocator:
    """Allocates no ports: pods use the port numbers of their specs."""

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        return {}

    def hand_over(self, pod: RunPod) -> None: ...

    def take_back(self, pod: RunPod) -> str:
        return ""


class NetworkPlugin(Protocol):
    """The network that pods are in."""

    def address(self, pod: RunPod) -> str:
        """The address of a pod, from its start to `leave`."""
        ...

    async def join(self, pod: RunPod) -> Isolation | None:
        """The namespaces that the pod's processes enter; None for the machine's own. Raises `NetworkUnavailable`."""
        ...

    async def leave(self, uid: str) -> None:
        """Remove the namespaces of a pod that has no process any more. Raises `NetworkUnavailable`."""
        ...

    @property
    def tcp_socket(self) -> Callable[[], socket.socket] | None:
        """Creates a TCP socket that reaches pods (raises `NetworkUnavailable`); None where any socket does."""
        ...

    def close(self, *, leave_running: bool) -> None:
        """Release the network when the node ends; `leave_running` keeps it for pods that outlive the node."""
        ...


class SharedNetwork:
    """All pods are in the machine's own network, with addresses of the loopback interface."""

    def __init__(self) -> None:
        self._addresses = LoopbackAddresses()

    def address(self, pod: RunPod) -> str:
        if pod.spec.host_network:
            return LOOPBACK
        return self._addresses.claim(pod.metadata.uid, pod.status.pod_ip)

    async def join(self, pod: RunPod) -> Isolation | None:
        return None

    async def leave(self, uid: str) -> None:
        self._addresses.release(uid)

    @property
    def tcp_socket(self) -> None:
        return None

    def close(self, *, leave_running: bool) -> None: ...
