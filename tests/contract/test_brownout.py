"""Operators and schedulers that start while the server fails: all of them come up."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.api.core import Node
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound
from gangline.kube.transport.http import HttpTransport
from gangline.node.settings import NodeSettings
from gangline.node.standalone import run_node
from gangline.operator.definitions import CRDS, create_crds
from gangline.operator.engine import enabled_frameworks, scheme_of
from gangline.operator.operator_process import OperatorProcess, settings_for_server
from gangline.operator.process import ControllerProcess
from gangline.operator.scheduler_process import SchedulerProcess, SchedulerProcessSettings
from gangline.operator.settings import OperatorProcessSettings, OperatorSettings
from gangline.runtime.metrics import PrometheusMetrics
from gangline.runtime.startup import StartupTransport
from gangline.scheduler.scheduler import SCHEME
from gangline.testing.faults import Faults, FaultyTransport
from support.waiting import wait_until

# Waits grow with every failure, so that some starts take minutes on a busy machine.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

CLOCK = SystemClock()
STARTS = int(os.environ.get("GANGLINE_STARTS", "6"))
BROWN_OUT = ("unreachable", "lost", 429, 500, 503, 504)
PATIENCE = 300.0
RATES = (*[0.3] * STARTS, *[0.6] * (STARTS // 3))
"""The share of requests that fail, for each process that starts."""


StartProcess = Callable[[Connection, FaultyTransport, int], Awaitable[ControllerProcess]]


async def start_operator(server: Connection, transport: FaultyTransport, number: int) -> ControllerProcess:
    operator = OperatorSettings(kinds=("TFJob", "PyTorchJob"))
    settings = OperatorProcessSettings(operator=operator, leader_elect=True, lease=f"brownout-{number}", take_over=True)
    frameworks = enabled_frameworks(operator)
    scheme = scheme_of(frameworks)
    settings = await settings_for_server(settings, Client(StartupTransport(transport, CLOCK), scheme=scheme))
    return OperatorProcess(server, settings, frameworks, Client(transport, scheme=scheme), PrometheusMetrics(), CLOCK)


async def start_scheduler(server: Connection, transport: FaultyTransport, number: int) -> ControllerProcess:
    settings = SchedulerProcessSettings(lease=f"brownout-{number}")
    client = Client(transport, scheme=SCHEME.with_resources(CRDS))
    return SchedulerProcess(server, settings, client, PrometheusMetrics(), CLOCK)


@asynccontextmanager
async def faulty_transport(server: Connection, seed: int, rate: float) -> AsyncIterator[FaultyTransport]:
    async with HttpTransport(server) as transport:
        yield FaultyTransport(transport, Faults.seeded(seed, rate, BROWN_OUT))


@pytest.mark.parametrize("start", [start_operator, start_scheduler])
async def test_every_start_comes_up(server: Connection, client: Client, start: StartProcess) -> None:
    await create_crds(client, CLOCK)
    ready = []

    async def run(seed: int, rate: float) -> None:
        stop = asyncio.Event()
        async with faulty_transport(server, seed, rate) as transport, asyncio.TaskGroup() as group:
            process = await start(server, transport, seed)
            group.create_task(process.run(stop))
            problems = ["not asked"]
            async with asyncio.timeout(PATIENCE):
                while any(problems):
                    await asyncio.sleep(0.05)
                    problems = [check() for check in process.readiness_checks.values()]
            ready.append(seed)
            assert transport.requests
            stop.set()

    # All at once, because most of the time they wait.
    async with asyncio.TaskGroup() as group:
        for seed, rate in enumerate(RATES):
            group.create_task(run(seed, rate))
    assert len(ready) == len(RATES)


async def test_every_node_comes_up(server: Connection, client: Client, tmp_path: Path) -> None:
    name = f"brownout-{uuid.uuid4().hex[:8]}"

    async def is_ready(number: int) -> bool:
        try:
            node = await client.get(Node, Key("", f"{name}-{number}"))
        except NotFound:
            return False
        return any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)

    async def run(number: int) -> None:
        settings = NodeSettings(name=f"{name}-{number}", lease_period=timedelta(seconds=1))
        state = tmp_path / str(number)
        state.mkdir()
        async with faulty_transport(server, number, 0.3) as transport:
            node = asyncio.create_task(run_node(Client(transport), tmp_path, state, settings, CLOCK))
            try:
                await wait_until(lambda: is_ready(number), seconds=PATIENCE)
            finally:
                node.cancel()
                await asyncio.wait([node])

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(run(number))
