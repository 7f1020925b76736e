"""The only place that joins operator, scheduler and local plane."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gangline.api.kinds import KINDS
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.operator.definitions import define
from gangline.operator.engine import SCHEME, Engine, frameworks
from gangline.operator.settings import LOCAL, OperatorSettings
from gangline.runtime.manager import Manager


@asynccontextmanager
async def embedded(
    settings: LocalSettings, clock: Clock, operator: OperatorSettings = LOCAL
) -> AsyncIterator[LocalCluster]:
    """A local plane with the operator running on it; the server knows the kinds that the operator is to run."""
    async with local_cluster(settings, SCHEME, clock) as plane, asyncio.TaskGroup() as group:
        await define(plane.client, clock, [kind for kind in KINDS if kind.kind in operator.kinds])
        running = group.create_task(operate(plane.client, operator, clock))
        try:
            yield plane
        finally:
            running.cancel()


async def operate(client: Client, settings: OperatorSettings, clock: Clock) -> None:
    """The job engine, until cancelled."""
    manager = Manager(client, clock)
    engine = Engine(manager, client, settings, socket.gethostname(), clock)
    engine.add(frameworks(settings))
    await manager.run(signals=False)
