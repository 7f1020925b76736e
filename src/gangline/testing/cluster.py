"""An API server with a node that starts in milliseconds, for tests of controllers and operators."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic

import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import CORE_SCHEME, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.base.files import write_private
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.jobs.framework import Framework, J
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.local import cluster
from gangline.local.cluster import LocalCluster, LocalSettings, temporary_plane
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.runtime.informer import Informer


@asynccontextmanager
async def local_cluster(*, scheme: Scheme = CORE_SCHEME, clock: Clock | None = None) -> AsyncIterator[LocalCluster]:
    """A running embedded plane: `.client` uses it, `.access.kubeconfig()` is for other clients. Nothing of it remains.

    An error in the block, such as a failed assertion, is raised unchanged.
    """
    with unwrap_exception_group(), plane_settings(Path.cwd()) as settings:
        async with cluster.local_cluster(settings, scheme, clock or SystemClock()) as plane:
            yield plane


class OperatorCluster(msgspec.Struct, Generic[J], frozen=True):
    """A running plane on which an operator of one framework runs jobs as processes."""

    url: str
    client: Client
    # For other clients, such as kubectl. Deleted when the plane ends.
    kubeconfig: Path
    framework: Framework[J]
    clock: Clock

    async def run(self, body: JSON, namespace: str = "default") -> J:
        """Create a job, wait until it has finished, and return it. Has no time limit: add one around the call."""
        model: type[Any] = self.framework.facts.model
        created = await self.client.create(model, body, namespace=namespace)
        return await self.until(created.metadata.key, lambda job: job.status.finished)

    async def logs(self, pod: str, namespace: str = "default") -> list[str]:
        """The lines that the training container of a pod has logged so far."""
        stream = PodSubresources(self.client).logs(Key(namespace, pod), container=self.framework.facts.container)
        async with aclosing(stream) as lines:
            return [line.decode() async for line in lines]

    async def until(self, key: Key, holds: Callable[[J], bool]) -> J:
        """Wait until `holds(job)` is true, and return the job."""
        model: type[Any] = self.framework.facts.model
        selector = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[J] = Informer(self.client, model, selector, clock=self.clock)
        async with background_tasks(informer.run()):
            await informer.wait_until(lambda cache: (job := cache.get(key)) is not None and holds(job))
            job = informer.cache.get(key)
            assert job is not None
            return job


@asynccontextmanager
async def operator_cluster(framework: Framework[J], *, folder: Path | None = None) -> AsyncIterator[OperatorCluster[J]]:
    """A plane with an operator of this framework. The replicas of jobs run as processes in `folder`.

    The server has the definition of the kind. Nothing of it remains when the block ends; errors in the block are raised
    unchanged.
    """
    clock = SystemClock()
    with unwrap_exception_group(), plane_settings(folder or Path.cwd()) as settings:
        no_builtin_kinds = msgspec.structs.replace(LOCAL_SETTINGS, kinds=())
        async with embedded_plane(settings, clock, no_builtin_kinds, [framework]) as plane:
            kubeconfig = write_kubeconfig(plane, settings)
            yield OperatorCluster(plane.url, plane.client, kubeconfig, framework, clock)


@contextmanager
def plane_settings(folder: Path) -> Iterator[LocalSettings]:
    """Settings of a plane whose pods run in `folder`. Its state is in memory and in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as state:
        yield LocalSettings(folder=folder, logs=Path(state) / "logs", plane=temporary_plane())


def write_kubeconfig(plane: LocalCluster, settings: LocalSettings) -> Path:
    """Write the kubeconfig of a plane into its temporary directory, and return its path."""
    file = settings.logs.parent / "kubeconfig"
    write_private(file, msgspec.json.encode(plane.access.kubeconfig()))
    return file
