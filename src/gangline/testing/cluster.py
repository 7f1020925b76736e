"""An API server with a node, in milliseconds, for tests of controllers and operators."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic

import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import CORE_SCHEME, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.jobs.framework import Framework, J
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.local import cluster
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.operator.wiring import embedded_plane
from gangline.runtime.informer import Informer


@asynccontextmanager
async def local_cluster(*, scheme: Scheme = CORE_SCHEME, clock: Clock | None = None) -> AsyncIterator[LocalCluster]:
    """A running embedded plane: `.client` speaks to it over HTTP, `.url` is for other clients. Leaves nothing.

    An error of the block, as a failed assertion, is raised as it is.
    """
    with unwrap_exception_group(), plane_settings(Path.cwd()) as settings:
        async with cluster.local_cluster(settings, scheme, clock or SystemClock()) as plane:
            yield plane


class OperatorCluster(msgspec.Struct, Generic[J], frozen=True):
    """A running plane on which an operator of one framework runs jobs as processes."""

    url: str
    client: Client
    # For other clients, as kubectl. Gone when the plane ends.
    kubeconfig: Path
    framework: Framework[J]
    clock: Clock

    async def run(self, body: JSON, namespace: str = "default") -> J:
        """Create a job and wait for its end; gives it as it is then. Put a time limit around it."""
        model: type[Any] = self.framework.facts.model
        created = await self.client.create(model, body, namespace=namespace)
        return await self.until(created.metadata.key, lambda job: job.status.finished)

    async def logs(self, pod: str, namespace: str = "default") -> list[str]:
        """What the training container of a pod has said so far, line by line."""
        found = PodSubresources(self.client).logs(Key(namespace, pod), container=self.framework.facts.container)
        async with aclosing(found) as lines:
            return [line.decode() async for line in lines]

    async def until(self, key: Key, holds: Callable[[J], bool]) -> J:
        """The job, as soon as something is true of it."""
        model: type[Any] = self.framework.facts.model
        where = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[J] = Informer(self.client, model, where, clock=self.clock)
        async with background_tasks(informer.run()):
            await informer.wait_until(lambda cache: (job := cache.get(key)) is not None and holds(job))
            found = informer.cache.get(key)
            assert found is not None
            return found


@asynccontextmanager
async def operator_cluster(framework: Framework[J], *, folder: Path | None = None) -> AsyncIterator[OperatorCluster[J]]:
    """A plane with an operator of this framework: what a job's replicas do, they do as processes in `folder`.

    The server knows the kind. Nothing is left when the block ends, whose errors are raised as they are.
    """
    clock = SystemClock()
    with unwrap_exception_group(), plane_settings(folder or Path.cwd()) as settings:
        only = msgspec.structs.replace(LOCAL_SETTINGS, kinds=())
        async with embedded_plane(settings, clock, only, [framework]) as plane:
            kubeconfig = settings.logs.parent / "kubeconfig"
            kubeconfig.write_bytes(msgspec.json.encode(plane.access.kubeconfig()))
            yield OperatorCluster(plane.url, plane.client, kubeconfig, framework, clock)


@contextmanager
def plane_settings(folder: Path) -> Iterator[LocalSettings]:
    """A plane that keeps everything in memory or in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as state:
        yield LocalSettings(folder=folder, logs=Path(state) / "logs")
