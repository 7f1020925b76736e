"""The only place that joins operator, scheduler and local plane."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gangline.base.clock import Clock
from gangline.jobs.framework import Framework
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.operator.definitions import create_crds
from gangline.operator.engine import JobEngine, enabled_frameworks, scheme_of
from gangline.operator.lazy_scheduler import run_scheduler_when_needed
from gangline.operator.settings import LOCAL_SETTINGS, OperatorSettings
from gangline.runtime.manager import Manager


@asynccontextmanager
async def embedded_plane(
    settings: LocalSettings,
    clock: Clock,
    operator: OperatorSettings = LOCAL_SETTINGS,
    custom: Sequence[Framework[Any]] = (),
) -> AsyncIterator[LocalCluster]:
    """A local plane with operator and scheduler on it; the server knows the kinds that the operator is to run.

    `custom`: frameworks beside our own.
    """
    wanted = (*enabled_frameworks(operator), *custom)
    scheme = scheme_of(wanted, operator.site.gang_schedulers)
    async with local_cluster(settings, scheme, clock) as plane, asyncio.TaskGroup() as group:
        await create_crds(plane.client, clock, [framework.facts for framework in wanted])
        running = [
            group.create_task(run_engine(plane.client, operator, wanted, clock)),
            group.create_task(run_scheduler_when_needed(plane.client, clock)),
        ]
        try:
            yield plane
        finally:
            for task in running:
                task.cancel()


async def run_engine(
    client: Client, settings: OperatorSettings, wanted: Sequence[Framework[Any]], clock: Clock
) -> None:
    """The job engine, until cancelled."""
    manager = Manager(client, clock)
    engine = JobEngine(manager, client, settings, socket.gethostname(), clock)
    engine.add_frameworks(wanted)
    await manager.run(signals=False)
