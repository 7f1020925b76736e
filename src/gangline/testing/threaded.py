"""A cluster in a thread of its own, for tests without an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.operator.assembly import embedded_plane
from gangline.testing.cluster import plane_settings, write_kubeconfig

T = TypeVar("T")


class ThreadedCluster:
    """A running plane with an operator for the six kinds; pods run as processes of this machine."""

    def __init__(
        self, url: str, kubeconfig: Path, client: Client, loop: asyncio.AbstractEventLoop, stop: asyncio.Event
    ) -> None:
        self.url = url
        self.kubeconfig = kubeconfig
        """For any client, such as `TrainingClient(config_file=str(cluster.kubeconfig))`. Deleted when the cluster ends."""
        self._client, self._loop, self._stop = client, loop, stop

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with a client of the cluster, and return its result: `cluster.run(lambda c: c.get(Pod, key))`."""
        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop).result()

    def stop(self) -> None:
        """Ask the cluster to stop, without waiting for it. Idempotent."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def threaded_cluster(folder: Path | None = None) -> Iterator[ThreadedCluster]:
    """A cluster until the block ends. Pods run in `folder`, by default the current one. Nothing of it remains."""
    started: Future[ThreadedCluster] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve_cluster(started, folder or Path.cwd())), name="gangline-cluster", daemon=True
    )
    thread.start()
    cluster = started.result()
    try:
        yield cluster
    finally:
        cluster.stop()
        thread.join()


async def _serve_cluster(started: "Future[ThreadedCluster]", folder: Path) -> None:
    stop = asyncio.Event()
    try:
        with plane_settings(folder) as settings:
            async with embedded_plane(settings, SystemClock()) as plane:
                kubeconfig = write_kubeconfig(plane, settings)
                loop = asyncio.get_running_loop()
                started.set_result(ThreadedCluster(plane.url, kubeconfig, plane.client, loop, stop))
                await stop.wait()
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
