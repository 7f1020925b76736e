"""A scheduler process is ready when its caches are listed, and not before."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest

from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.operator.definitions import CRDS
from gangline.operator.scheduler_process import SchedulerProcess, SchedulerProcessSettings
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.scheduler import SCHEME
from gangline.testing.clock import FakeClock, settle

SERVED = ("podgroups", "queues", "csinodes")
"""Resources whose discovery is requested before they are listed."""


class Silent:
    """A watch on which nothing ever happens."""

    response = Response(200)

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


class Hanging:
    """A transport to an empty server that answers a list only when the test says so."""

    def __init__(self) -> None:
        self.listed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method != "GET":
            return Response(200, b"{}")
        *_, root, _, last = request.path.split("/")
        if root == "apis" or request.path == "/api/v1":
            kinds = [{"name": plural, "kind": plural, "verbs": ["list"]} for plural in SERVED]
            return Response(200, json.dumps({"resources": kinds}).encode())
        await self.listed[last].wait()
        return Response(200, json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode())

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        yield Silent()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


def process(wire: Hanging, *, leader_elect: bool) -> SchedulerProcess:
    settings = SchedulerProcessSettings(leader_elect=leader_elect)
    client = Client(wire, scheme=SCHEME.with_resources(CRDS))
    return SchedulerProcess(Connection(server="http://nowhere"), settings, client, PrometheusMetrics(), FakeClock())


@asynccontextmanager
async def running(scheduler: SchedulerProcess) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scheduler.run(stop))
        await settle()
        try:
            yield
        finally:
            stop.set()


async def test_without_an_election_it_is_not_ready_before_every_list_is_there() -> None:
    wire = Hanging()
    scheduler = process(wire, leader_elect=False)
    ready = scheduler.readiness_checks["caches"]
    assert ready() == "nothing listed yet", "it has yet to begin"
    async with running(scheduler):
        assert scheduler.readiness_checks["definitions"]() == ""
        asked = set(wire.listed)
        assert asked > {"nodes", "pods", "podgroups", "queues"}, "all at once"
        assert ready().count(",") == len(asked) - 1, "each of them is named"
        for plural in asked - {"pods"}:
            wire.listed[plural].set()
        await settle()
        assert ready() == "no first list of Pod", "placing on what is half known takes places twice"
        wire.listed["pods"].set()
        await settle()
        assert ready() == ""


@pytest.mark.parametrize(("name", "kind"), [("nodes", "Node"), ("podgroups", "PodGroup")])
async def test_any_one_list_keeps_it_from_being_ready(name: str, kind: str) -> None:
    wire = Hanging()
    scheduler = process(wire, leader_elect=False)
    async with running(scheduler):
        for plural in set(wire.listed) - {name}:
            wire.listed[plural].set()
        await settle()
        assert scheduler.readiness_checks["caches"]() == f"no first list of {kind}"


async def test_one_that_waits_for_its_turn_is_ready() -> None:
    wire = Hanging()
    scheduler = process(wire, leader_elect=True)
    async with running(scheduler):
        assert "pods" not in wire.listed, "the election is not over"
        assert scheduler.readiness_checks["caches"]() == ""
