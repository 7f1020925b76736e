"""A node on an API server in memory, and what tests read of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil

from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.base.clock import Clock, SystemClock
from gangline.kube.podstreams import LogOptions
from gangline.node.kubelet import LocalKubelet
from gangline.node.logs import NodeLogReader
from gangline.node.network.plugin import PortAllocator
from gangline.node.settings import Backoff, NodeSettings
from gangline.runtime.informer import Informer
from support.servers.node_api import NodeApi, default_key

FAST_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=1.5), timedelta(seconds=3))
FAST_SETTINGS = NodeSettings(
    backoff=FAST_BACKOFF,
    retry_interval=timedelta(milliseconds=50),
    memory_period=timedelta(milliseconds=50),
    size_period=timedelta(milliseconds=50),
)


@asynccontextmanager
async def running_node(
    api: NodeApi,
    state: Path,
    settings: NodeSettings = FAST_SETTINGS,
    clock: Clock | None = None,
    ports: PortAllocator | None = None,
) -> AsyncIterator[LocalKubelet]:
    clock = clock or SystemClock()
    client = api.client(clock)
    pods = Informer(client, Pod, clock=clock)
    running = LocalKubelet(client, pods, folder=state, logs=state, clock=clock, settings=settings, ports=ports)
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pods.run()), group.create_task(running.run())]
            yield running
            for task in reversed(tasks):
                task.cancel()


def file_text(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def single_file(state: Path, pattern: str) -> Path:
    (found,) = state.glob(pattern)
    return found


def path_exists(path: Path) -> bool:
    return path.exists()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main_container_status(status: JSON) -> JSON:
    found: JSON = status["containerStatuses"][0]
    return found


async def container_logs(state: Path, name: str, container: str = "main", *, previous: bool = False) -> str:
    reader = NodeLogReader(state, SystemClock())
    parts = [part async for part in reader.read(default_key(name), container, LogOptions(previous=previous))]
    return b"".join(parts).decode()
