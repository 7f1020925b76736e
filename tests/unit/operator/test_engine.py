"""How the engine joins its parts."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gangline.api.core import Event
from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, MPIJOB_V2, JAXJob
from gangline.api.meta import JSON
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.frameworks.jax import Jax
from gangline.kube.client import Client
from gangline.kube.options import WriteOptions
from gangline.kube.transport.api import Request, Response, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import CRDS, FIELD_OWNER, create_crds
from gangline.operator.engine import EVENT_DELAY, OPERATOR_SCHEME
from gangline.operator.settings import OperatorSettings
from gangline.runtime.events import BUSY_POLL_INTERVAL, MAX_BUSY_WAIT
from gangline.schema.crds.job_crds import crd
from gangline.testing.clock import FakeClock
from support.servers.scripted import ForwardingTransport

GIVE_UP = 60.0  # seconds: only a test that fails takes so long
WORKERS = 2


def job(name: str) -> JSON:
    template = {"spec": {"containers": [{"name": "jax", "image": "train:1"}]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"jaxReplicaSpecs": {"Worker": {"replicas": WORKERS, "template": template}}},
    }


class Held(ForwardingTransport):
    """A transport that counts creates and status writes, and holds those of one kind back unless it is open."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._changed = asyncio.Condition()
        self.holds = "pods"
        self.open = asyncio.Event()
        self.asked: Counter[str] = Counter()
        self.made: Counter[str] = Counter()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        what = request.path.rpartition("/")[2] if request.method in ("POST", "PATCH") else ""
        await self._count(self.asked, what)
        if what == self.holds:
            await self.open.wait()
        answer = await self._transport.send(request, timeout=timeout)
        await self._count(self.made, what)
        return answer

    async def _count(self, counts: Counter[str], what: str) -> None:
        async with self._changed:
            counts[what] += 1
            self._changed.notify_all()

    async def until(self, counts: Counter[str], what: str, number: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: counts[what] >= number)


@asynccontextmanager
async def operating(clock: FakeClock) -> AsyncIterator[tuple[Client, Held]]:
    """A server, and an operator with a clock of its own. An error in the block is raised unchanged."""
    wall = SystemClock()
    with unwrap_exception_group():
        async with (
            asyncio.timeout(GIVE_UP),
            Store() as store,
            control_plane(store, PlaneSettings(), wall) as plane,
            HttpTransport(plane.connection) as transport,
        ):
            client, held = Client(transport, scheme=OPERATOR_SCHEME), Held(transport)
            await create_crds(client, wall, [JAXJOB])
            operator = Client(held, scheme=OPERATOR_SCHEME, clock=clock)
            async with background_tasks(run_engine(operator, OperatorSettings(kinds=("JAXJob",)), [Jax()], clock)):
                yield client, held


@pytest.mark.parametrize(("held_back", "count"), [("pods", WORKERS), ("status", 1)])
async def test_an_event_waits_for_the_pods_and_the_status_of_any_job_and_is_written_then(
    held_back: str, count: int
) -> None:
    clock = FakeClock()
    async with operating(clock) as (client, held):
        held.holds = held_back
        held.open.set()
        await client.create(JAXJob, job("made"))
        await held.until(held.made, "pods", WORKERS)
        held.open.clear()
        earlier = held.asked[held_back]
        await client.create(JAXJob, job("under-way"))
        await held.until(held.asked, held_back, earlier + count)
        # Events are due now, but wait up to MAX_BUSY_WAIT while there is other work.
        await clock.advance(EVENT_DELAY)
        await clock.advance(MAX_BUSY_WAIT - EVENT_DELAY - 2 * BUSY_POLL_INTERVAL)
        assert held.asked["events"] == 0
        held.open.set()
        while not held.made["events"]:
            # Once more after what follows from the last write.
            await clock.advance(BUSY_POLL_INTERVAL)
        event = (await client.list(Event)).items[0]
        assert (event.type, event.reason, event.regarding.name) == ("Normal", "SuccessfulCreatePod", "made")


@pytest.mark.parametrize("manager", [FIELD_OWNER, "kubectl"])
async def test_a_definition_of_ours_follows_the_version_and_one_of_others_stays(manager: str) -> None:
    """An earlier gangline knew one API of MPIJob; so does the CRD of the Kubeflow operator."""
    clock = SystemClock()
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(), clock) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        client = Client(transport, scheme=OPERATOR_SCHEME, clock=clock)
        earlier = crd(MPIJOB)
        earlier["spec"]["versions"] = [one for one in earlier["spec"]["versions"] if one["name"] == "v1"]
        await client.with_options(WriteOptions(field_manager=manager)).create(CRDS, earlier)
        served = await create_crds(client, clock, [MPIJOB, MPIJOB_V2])
    assert served == ((MPIJOB, MPIJOB_V2) if manager == FIELD_OWNER else (MPIJOB,))
