"""What the worker of a pod needs of its node, in one value."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec

from gangline.base.clock import Clock
from gangline.base.tasks import supervise
from gangline.kube.client import Client
from gangline.node.checkpoint import StateFolder
from gangline.node.network.plugin import NetworkPlugin, NoPortAllocator, PortAllocator, SharedNetwork
from gangline.node.network.port_squatter import PortSquatters
from gangline.node.pod_types import RunPod
from gangline.node.pods.progress import ReportLimiter
from gangline.node.resources import DeviceManager
from gangline.node.runtime.runtime import ContainerRuntime
from gangline.node.settings import NodeSettings
from gangline.node.volumes.manager import VolumeManager

WorkerTask = asyncio.Task[None]
RecordEvent = Callable[[RunPod, str, str, str], None]
"""Records an Event about a pod: type, reason, note."""


def spawn_supervised(
    group: asyncio.TaskGroup, work: Callable[[], Coroutine[Any, Any, object]], what: str
) -> WorkerTask:
    """A task whose error is logged and does not end its siblings.

    `work` is called inside the task: a task that is cancelled before it starts leaves no coroutine unawaited.
    """

    async def run() -> None:
        await supervise(work(), what)

    return group.create_task(run())


def discard_event(pod: RunPod, type: str, reason: str, note: str) -> None:  # noqa: A002 - Kubernetes' word
    """Record nothing."""


class BadNode:
    """A node that fails every pod which starts on it, for a while. For drills."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until = clock, float("-inf")

    def mark(self, duration: timedelta) -> None:
        self._until = max(self._until, self._clock.monotonic() + duration.total_seconds())

    @property
    def is_bad(self) -> bool:
        return self._clock.monotonic() < self._until


class FaultHooks(msgspec.Struct, frozen=True):
    """What injected faults need of the node."""

    port_squatters: PortSquatters
    # Report the node as lost for so long.
    mark_lost: Callable[[timedelta], None]
    bad_node: BadNode


class NodeContext(msgspec.Struct, frozen=True):
    """The parts of a node that its pods use."""

    client: Client
    clock: Clock
    settings: NodeSettings
    state: StateFolder
    volumes: VolumeManager
    devices: DeviceManager
    # Bytes by pid: the memory watchdog enforces these limits.
    memory_limits: dict[int, int]
    # Pids of processes with a memory limit, by the pid of their shim.
    shims: dict[int, int]
    runtime: ContainerRuntime
    report_limiter: ReportLimiter
    faults: FaultHooks
    ports: PortAllocator = NoPortAllocator()
    network: NetworkPlugin = SharedNetwork()
    record_event: RecordEvent = discard_event
