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
from gangline.node.network.port_squatter import Intruders
from gangline.node.pods.progress import Pace
from gangline.node.resources import Devices
from gangline.node.runtime.api import Runtime
from gangline.node.settings import NodeSettings
from gangline.node.types import RunPod
from gangline.node.volumes.volumes import Volumes

Task = asyncio.Task[None]


class Ports(Protocol):
    """The address book, as a pod's worker needs it."""

    def of(self, pod: RunPod) -> Mapping[str, int]:
        """The real ports of a pod, by name and by written number."""
        ...

    def hand_over(self, pod: RunPod) -> None:
        """The pod's process is about to start and will listen. Raises `PortTaken` if somebody else does."""
        ...

    def take_back(self, pod: RunPod) -> str:
        """The process has ended: keep its ports for the next one. Says so if somebody else has one of them."""
        ...


class NoPorts:
    """Nobody gives out ports: pods have those they write."""

    def of(self, pod: RunPod) -> Mapping[str, int]:
        return {}

    def hand_over(self, pod: RunPod) -> None: ...

    def take_back(self, pod: RunPod) -> str:
        return ""


class Network(Protocol):
    """Where pods are."""

    async def joined(self, pod: RunPod) -> Isolation | None:
        """What the pod's processes must enter; nothing where all are in the machine's own. Raises `NoNetwork`."""
        ...

    async def left(self, uid: str) -> None:
        """Nothing of the pod runs any more. Raises `NoNetwork`."""
        ...

    @property
    def tcp_socket(self) -> Callable[[], socket.socket] | None:
        """Makes a TCP socket from which pods are reached (raises `NoNetwork`); None: any does."""
        ...

    def close(self, *, leave_running: bool) -> None:
        """The node ends, with its pods or without."""
        ...


class SharedNetwork:
    """All pods are in the machine's own."""

    async def joined(self, pod: RunPod) -> Isolation | None:
        return None

    async def left(self, uid: str) -> None: ...

    @property
    def tcp_socket(self) -> None:
        return None

    def close(self, *, leave_running: bool) -> None: ...


def spawn(group: asyncio.TaskGroup, work: Callable[[], Coroutine[Any, Any, object]], what: str) -> Task:
    """A supervised task. Work begins with the task: one cancelled before that leaves nothing unawaited."""

    async def run() -> None:
        await supervise(work(), what)

    return group.create_task(run())


Tell = Callable[[RunPod, str, str, str], None]
"""Records an Event: about a pod, type, reason, note."""


def tell_nobody(pod: RunPod, type: str, reason: str, note: str) -> None:  # noqa: A002 - Kubernetes' word
    """Records nothing."""


class Tools(msgspec.Struct, frozen=True):
    """The node's parts."""

    client: Client
    clock: Clock
    settings: NodeSettings
    # Where processes run, unless they say otherwise.
    folder: Path
    state: StateFolder
    volumes: Volumes
    devices: Devices
    allocatable: Mapping[str, Quantity]
    # Pid to bytes: whoever is in here is watched.
    memory_limits: dict[int, int]
    runtime: Runtime
    pace: Pace
    # For drills: who may take a pod's ports, and what the API is told of a node that is lost for so long.
    intruders: Intruders
    away: Callable[[timedelta], None]
    ports: Ports = NoPorts()
    network: Network = SharedNetwork()
    tell: Tell = tell_nobody
