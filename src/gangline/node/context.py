"""What a pod's worker needs of its node, in one value."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gangline.api.quantity import Quantity
from gangline.base.clock import Clock
from gangline.base.tasks import supervise
from gangline.kube.client import Client
from gangline.node.checkpoint import StateFolder
from gangline.node.network.namespaces import Isolation
from gangline.node.network.port_squatter import PortSquatters
from gangline.node.pods.progress import ReportLimiter
from gangline.node.resources import DeviceManager
from gangline.node.runtime.api import ContainerRuntime
from gangline.node.settings import NodeSettings
from gangline.node.types import RunPod
from gangline.node.volumes.volumes import VolumeManager

WorkerTask = asyncio.Task[None]


class PortAllocator(Protocol):
    """The address book, as a pod's worker needs it."""

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        """The real ports of a pod, by name and by written number."""
        ...

    def hand_over(self, pod: RunPod) -> None:
        """The pod's process is about to start and will listen. Raises `PortTaken` if somebody else does."""
        ...

    def take_back(self, pod: RunPod) -> str:
        """The process has ended: keep its ports for the next one. Says so if somebody else has one of them."""
        ...


class NoPortAllocator:
    """Nobody gives out ports: pods have those they write."""

    def pod_ports(self, pod: RunPod) -> Mapping[str, int]:
        return {}

    def hand_over(self, pod: RunPod) -> None: ...

    def take_back(self, pod: RunPod) -> str:
        return ""


class NetworkPlugin(Protocol):
    """Where pods are."""

    async def join(self, pod: RunPod) -> Isolation | None:
        """What the pod's processes must enter; nothing where all are in the machine's own. Raises `NetworkUnavailable`."""
        ...

    async def leave(self, uid: str) -> None:
        """Nothing of the pod runs any more. Raises `NetworkUnavailable`."""
        ...

    @property
    def tcp_socket(self) -> Callable[[], socket.socket] | None:
        """Makes a TCP socket from which pods are reached (raises `NetworkUnavailable`); None: any does."""
        ...

    def close(self, *, leave_running: bool) -> None:
        """The node ends, with its pods or without."""
        ...


class SharedNetwork:
    """All pods are in the machine's own."""

    async def join(self, pod: RunPod) -> Isolation | None:
        return None

    async def leave(self, uid: str) -> None: ...

    @property
    def tcp_socket(self) -> None:
        return None

    def close(self, *, leave_running: bool) -> None: ...


def spawn_supervised(
    group: asyncio.TaskGroup, work: Callable[[], Coroutine[Any, Any, object]], what: str
) -> WorkerTask:
    """A supervised task. Work begins with the task: one cancelled before that leaves nothing unawaited."""

    async def run() -> None:
        await supervise(work(), what)

    return group.create_task(run())


RecordEvent = Callable[[RunPod, str, str, str], None]
"""Records an Event: about a pod, type, reason, note."""


def discard_event(pod: RunPod, type: str, reason: str, note: str) -> None:  # noqa: A002 - Kubernetes' word
    """Records nothing."""


class NodeContext(msgspec.Struct, frozen=True):
    """The node's parts."""

    client: Client
    clock: Clock
    settings: NodeSettings
    # Where processes run, unless they say otherwise.
    folder: Path
    state: StateFolder
    volumes: VolumeManager
    devices: DeviceManager
    allocatable: Mapping[str, Quantity]
    # Pid to bytes: whoever is in here is watched.
    memory_limits: dict[int, int]
    runtime: ContainerRuntime
    report_limiter: ReportLimiter
    # For drills: who may take a pod's ports, and what the API is told of a node that is lost for so long.
    port_squatters: PortSquatters
    mark_lost: Callable[[timedelta], None]
    ports: PortAllocator = NoPortAllocator()
    network: NetworkPlugin = SharedNetwork()
    record_event: RecordEvent = discard_event
