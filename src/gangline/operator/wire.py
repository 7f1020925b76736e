"""The only place that joins operator, scheduler and local plane."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gangline.api.core import Pod, Service
from gangline.api.scheme import CORE, Scheme
from gangline.api.tfjob import TFJOBS
from gangline.base.clock import Clock
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.execute import Executor
from gangline.jobs.framework import Framework
from gangline.jobs.observe import OWNER_UID, Addressing, Observe, local_address, owner_uid
from gangline.jobs.reconciler import JobReconciler
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.runtime.informer import Informer
from gangline.runtime.manager import Manager
from gangline.runtime.sources import Changes, itself, owner

SCHEME: Scheme = CORE.extended(TFJOBS)
FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(),)


@asynccontextmanager
async def embedded(settings: LocalSettings, clock: Clock) -> AsyncIterator[LocalCluster]:
    """A local plane with the operator running on it."""
    async with local_cluster(settings, SCHEME, clock) as plane, asyncio.TaskGroup() as group:
        running = group.create_task(operate(plane.client, FRAMEWORKS, local_address, clock))
        try:
            yield plane
        finally:
            running.cancel()


async def operate(
    client: Client, frameworks: Sequence[Framework[Any]], addressing: Addressing, clock: Clock
) -> None:
    """One controller per framework over shared caches of pods and services, until cancelled."""
    manager = Manager(client, clock)
    pods = manager.informer(Pod, indexes={OWNER_UID: owner_uid})
    services = manager.informer(Service, indexes={OWNER_UID: owner_uid})
    for framework in frameworks:
        kind = framework.kind.KIND
        jobs: Informer[Any] = manager.informer(framework.kind)
        observe = Observe(framework, jobs.cache, pods.cache, services.cache, addressing, clock)
        reconciler = JobReconciler(framework, observe, Executor(client))
        sources = [Changes(jobs, itself), Changes(pods, owner(kind)), Changes(services, owner(kind))]
        manager.controller(kind, reconciler, sources)
    await manager.run(signals=False)
