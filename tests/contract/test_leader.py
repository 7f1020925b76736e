"""Leader election and events against a real kube-apiserver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.api.core import Lease, ObjectReference
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.events import EventRecorder, EventType
from gangline.runtime.leader_election import LeaderElector, LeaseSettings, LostLeadership
from support.servers.real import RealServer

CLOCK = SystemClock()
QUICK = LeaseSettings(
    lease=timedelta(seconds=2), renew_deadline=timedelta(seconds=1), retry=timedelta(milliseconds=200)
)
# Kept also by a machine that is busy.
STEADY = LeaseSettings(
    lease=timedelta(seconds=40), renew_deadline=timedelta(seconds=30), retry=timedelta(milliseconds=200)
)


def connection(server: RealServer) -> Connection:
    return load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=Path("/nonexistent"))


class Mortal(HttpTransport):
    """A transport over which nothing goes any more once its process has died."""

    dead = False

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self.dead:
            raise Unreachable("the process is gone")
        return await super().send(request, timeout=timeout)


@pytest.fixture
async def client(real_server: RealServer) -> AsyncIterator[Client]:
    async with HttpTransport(connection(real_server)) as transport:
        yield Client(transport)


class Term:
    """Work that says when it began and waits to be told to end."""

    def __init__(self) -> None:
        self.began, self.end = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.began.set()
        await self.end.wait()


@asynccontextmanager
async def electing(
    client: Client, key: Key, identity: str, term: Term, settings: LeaseSettings = QUICK
) -> AsyncIterator[asyncio.Task[None]]:
    leader = LeaderElector(client, key, identity, CLOCK, settings)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leader.run_while_leading(term))
        yield task
        task.cancel()


async def test_takeover_after_release_does_not_wait_for_the_lease_to_expire(
    client: Client, real_namespace: str
) -> None:
    key, first, second = Key(real_namespace, "operator"), Term(), Term()
    async with electing(client, key, "a", first, STEADY):
        await first.began.wait()
        begun = await client.get(Lease, key)
        async with electing(client, key, "b", second, STEADY):
            held = begun
            async with asyncio.timeout(30):
                while held.spec.renew_time == begun.spec.renew_time:
                    await CLOCK.sleep(STEADY.retry)
                    held = await client.get(Lease, key)
            assert held.spec.holder_identity == "a", "the first one renews"
            assert not second.began.is_set()
            first.end.set()
            async with asyncio.timeout(30):
                await second.began.wait()
            taken = await client.get(Lease, key)
            assert taken.spec.holder_identity == "b"
            assert taken.spec.lease_transitions == 1
            assert taken.spec.lease_duration_seconds == 40
    released = await client.get(Lease, key)
    assert released.spec.holder_identity == ""
    assert released.spec.lease_duration_seconds == 1


async def test_takeover_after_a_crash_waits_for_the_lease_to_expire(
    client: Client, real_namespace: str, real_server: RealServer
) -> None:
    key, first, second = Key(real_namespace, "operator"), Term(), Term()
    async with (
        Mortal(connection(real_server)) as mortal,
        electing(Client(mortal), key, "a", first),
    ):
        await first.began.wait()
        mortal.dead = True
    held = await client.get(Lease, key)
    assert held.spec.holder_identity == "a"
    began = CLOCK.monotonic()
    async with electing(client, key, "b", second):
        async with asyncio.timeout(60):
            await second.began.wait()
        assert CLOCK.monotonic() - began >= QUICK.lease.total_seconds()


async def test_leader_cut_off_from_the_server_stops_in_real_time(
    client: Client, real_namespace: str, real_server: RealServer
) -> None:
    key, term = Key(real_namespace, "operator"), Term()
    settings = LeaseSettings(lease=timedelta(seconds=10), renew_deadline=QUICK.renew_deadline, retry=QUICK.retry)
    leader = LeaderElector(client, key, "a", CLOCK, settings)
    stopped: list[float] = []

    async def work() -> None:
        try:
            await term()
        finally:
            stopped.append(CLOCK.monotonic())

    async def lead() -> None:
        with pytest.raises(LostLeadership):
            await leader.run_while_leading(work)

    async with asyncio.TaskGroup() as group:
        group.create_task(lead())
        await term.began.wait()
        with real_server.suspended():
            began = CLOCK.monotonic()
            while not stopped:
                await CLOCK.sleep(timedelta(milliseconds=20))
    assert stopped[0] - began < settings.lease.total_seconds(), "before anybody may take over"


async def test_another_holder_ends_the_term(client: Client, real_namespace: str) -> None:
    key, term = Key(real_namespace, "operator"), Term()
    leader = LeaderElector(client, key, "a", CLOCK, STEADY)

    async def lead() -> None:
        with pytest.raises(LostLeadership, match="usurper holds it now"):
            await leader.run_while_leading(term)

    async with asyncio.TaskGroup() as group:
        group.create_task(lead())
        await term.began.wait()
        await client.patch(Lease, key, {"spec": {"holderIdentity": "usurper"}})
    assert (await client.get(Lease, key)).spec.holder_identity == "usurper"


async def test_recorded_events_are_visible_and_repeats_are_counted(
    client: Client, real_namespace: str, real_server: RealServer
) -> None:
    recorder = EventRecorder(client, "gangline.dev/operator", "here", CLOCK)
    job = ObjectReference(api_version="kubeflow.org/v1", kind="TFJob", namespace=real_namespace, name="mnist", uid="u1")
    node = ObjectReference(api_version="v1", kind="Node", name=f"node-{real_namespace}", uid=real_namespace)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.run())
        for _ in range(3):
            recorder.record(job, EventType.WARNING, "BackOff", "worker-0 failed")
        recorder.record(node, EventType.NORMAL, "Registered", "ä" * 2000)
        await CLOCK.sleep(timedelta(milliseconds=100))
        writing.cancel()
    assert recorder.dropped_count == 0
    # As kubectl describe asks: the old API shows the same objects.
    found = real_server.call("GET", f"/api/v1/namespaces/{real_namespace}/events").body["items"]
    (event,) = found
    assert event["involvedObject"]["name"] == "mnist"
    assert event["message"] == "worker-0 failed"
    assert event["series"]["count"] == 3
    selector = f"fieldSelector=involvedObject.name=node-{real_namespace}"
    assert len(real_server.call("GET", f"/api/v1/namespaces/default/events?{selector}").body["items"]) == 1


async def test_event_for_a_namespace_that_is_not_there_is_dropped(client: Client, real_server: RealServer) -> None:
    recorder = EventRecorder(client, "gangline.dev/operator", "here", CLOCK)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.run())
        recorder.record(ObjectReference(kind="TFJob", namespace="nowhere", name="x", uid="u"), "Normal", "Seen", "")
        while not recorder.dropped_count:
            await CLOCK.sleep(timedelta(milliseconds=10))
        writing.cancel()
    assert recorder.dropped_count == 1
