"""A node on an API in memory, and what tests ask of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil

from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.base.clock import Clock, SystemClock
from gangline.kube.podstreams import LogOptions
from gangline.node.context import Ports
from gangline.node.kubelet import Node
from gangline.node.logs import LogReader
from gangline.node.pods.plan import Backoff
from gangline.node.settings import NodeSettings
from gangline.runtime.informer import Informer
from support.servers.node_api import NodeApi, key

QUICK = NodeSettings(
    backoff=Backoff().scaled(0.005),
    retry=timedelta(milliseconds=50),
    memory_period=timedelta(milliseconds=50),
    size_period=timedelta(milliseconds=50),
)


@asynccontextmanager
async def node(
    api: NodeApi,
    state: Path,
    settings: NodeSettings = QUICK,
    clock: Clock | None = None,
    ports: Ports | None = None,
) -> AsyncIterator[Node]:
    clock = clock or SystemClock()
    client = api.client(clock)
    pods = Informer(client, Pod, clock=clock)
    running = Node(client, pods, folder=state, logs=state, clock=clock, settings=settings, ports=ports)
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pods.run()), group.create_task(running.run())]
            yield running
            for task in reversed(tasks):
                task.cancel()


async def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for files and processes, which tell nobody when they change."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def written(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def the_file(state: Path, pattern: str) -> Path:
    (found,) = state.glob(pattern)
    return found


def there(path: Path) -> bool:
    return path.exists()


def living(pid: int) -> bool:
    """Not gone, and not dead and waiting for its parent's attention."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main(status: JSON) -> JSON:
    found: JSON = status["containerStatuses"][0]
    return found


async def logs(state: Path, name: str, container: str = "main", *, previous: bool = False) -> str:
    reader = LogReader(state, SystemClock())
    parts = [part async for part in reader.read(key(name), container, LogOptions(previous=previous))]
    return b"".join(parts).decode()
