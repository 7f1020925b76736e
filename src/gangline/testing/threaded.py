"""A cluster in a thread of its own, for tests that have no event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.operator.wiring import embedded_plane
from gangline.testing.cluster import plane_settings

T = TypeVar("T")


class ThreadedCluster:
    """A running plane with an operator for the six kinds; pods run as processes of this machine."""

    def __init__(
        self, url: str, kubeconfig: Path, client: Client, loop: asyncio.AbstractEventLoop, stop: asyncio.Event
    ) -> None:
        self.url = url
        self.kubeconfig = kubeconfig
        """For any client, as `TrainingClient(config_file=str(cluster.kubeconfig))`. Gone when the cluster ends."""
        self._client, self._loop, self._stop = client, loop, stop

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """What something asynchronous gives, with a client of the cluster: `cluster.run(lambda c: c.get(Pod, key))`."""
        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop).result()

    def stop(self) -> None:
        """Ask it to end. Idempotent."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def threaded_cluster(folder: Path | None = None) -> Iterator[ThreadedCluster]:
    """A cluster until the block ends; pods run in `folder`, or in this one. Nothing is left of it."""
    up: Future[ThreadedCluster] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve_cluster(up, folder or Path.cwd())),
        name="gangline-cluster",
        daemon=True,
    )
    thread.start()
    cluster = up.result()
    try:
        yield cluster
    finally:
        cluster.stop()
        thread.join()


async def _serve_cluster(up: "Future[ThreadedCluster]", folder: Path) -> None:
    stop = asyncio.Event()
    try:
        with plane_settings(folder) as settings:
            async with embedded_plane(settings, SystemClock()) as plane:
                kubeconfig = settings.logs.parent / "kubeconfig"
                kubeconfig.write_bytes(msgspec.json.encode(plane.access.kubeconfig()))
                loop = asyncio.get_running_loop()
                up.set_result(ThreadedCluster(plane.url, kubeconfig, plane.client, loop, stop))
                await stop.wait()
    except BaseException as error:
        if up.done():
            raise
        up.set_exception(error)
