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
from gangline.operator.definitions import define
from gangline.operator.engine import Engine, frameworks, scheme_of
from gangline.operator.lazy_scheduler import schedule_when_asked
from gangline.operator.settings import LOCAL, OperatorSettings
from gangline.runtime.manager import Manager


@asynccontextmanager
async def embedded(
    settings: LocalSettings,
    clock: Clock,
    operator: OperatorSettings = LOCAL,
    custom: Sequence[Framework[Any]] = (),
) -> AsyncIterator[LocalCluster]:
    """A local plane with operator and scheduler on it; the server knows the kinds that the operator is to run.

    `custom`: frameworks beside our own.
    """
    wanted = (*frameworks(operator), *custom)
    scheme = scheme_of(wanted, operator.site.offered)
    async with local_cluster(settings, scheme, clock) as plane, asyncio.TaskGroup() as group:
        await define(plane.client, clock, [framework.facts for framework in wanted])
        running = [
            group.create_task(operate(plane.client, operator, wanted, clock)),
            group.create_task(schedule_when_asked(plane.client, clock)),
        ]
        try:
            yield plane
        finally:
            for task in running:
                task.cancel()


async def operate(
    client: Client, settings: OperatorSettings, wanted: Sequence[Framework[Any]], clock: Clock
) -> None:
    """The job engine, until cancelled."""
    manager = Manager(client, clock)
    engine = Engine(manager, client, settings, socket.gethostname(), clock)
    engine.add(wanted)
    await manager.run(signals=False)
