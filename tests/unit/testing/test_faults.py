"""Requests fail as planned; the server has what was carried out, whatever answer the program got."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, ServerError, StreamBroken, Unreachable
from gangline.local.cluster import LocalCluster
from gangline.runtime.informer import Informer
from gangline.testing import FakeClock, Fault, Faults, FaultyTransport, SimulatedCrash, local_cluster
from gangline.testing.faults import FAULT_KINDS

# Every namespace has the bundle of the server's CA.
WHERE = Selector(namespace="default", fields="metadata.name!=kube-root-ca.crt")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with local_cluster() as plane:
        yield plane


def faulty(cluster: LocalCluster, *plan: Fault) -> Client:
    return Client(FaultyTransport(cluster.client.transport, Faults(plan)))


async def create(client: Client, name: str) -> None:
    await client.create(ConfigMap, {"metadata": {"name": name}}, namespace="default")


async def names(cluster: LocalCluster) -> list[str]:
    return [item.metadata.name for item in (await cluster.client.list(ConfigMap, WHERE)).items]


@pytest.mark.parametrize(
    ("what", "error", "done"),
    [
        (500, ServerError, []),
        (409, Conflict, []),
        ("unreachable", Unreachable, []),
        ("lost", Unreachable, ["a"]),
        ("dies", SimulatedCrash, []),
        ("dies after", SimulatedCrash, ["a"]),
    ],
)
async def test_a_request_goes_wrong_before_or_after_it_is_carried_out(
    cluster: LocalCluster, what: int | str, error: type[BaseException], done: list[str]
) -> None:
    with pytest.raises(error):
        await create(faulty(cluster, Fault(0, what)), "a")
    assert await names(cluster) == done


async def test_a_fault_waits_for_its_turn_among_the_requests_it_is_about(cluster: LocalCluster) -> None:
    client = faulty(cluster, Fault(1, 500, method="POST", path="configmaps"))
    await create(client, "a")
    await client.list(ConfigMap, WHERE)
    with pytest.raises(ServerError):
        await create(client, "b")
    await create(client, "c")
    assert await names(cluster) == ["a", "c"]


async def test_a_dead_program_sends_nothing_more(cluster: LocalCluster) -> None:
    client = faulty(cluster, Fault(0, "dies"))
    for name in ("a", "b"):
        with pytest.raises(SimulatedCrash):
            await create(client, name)
    assert await names(cluster) == []


async def test_what_is_left_of_a_plan_is_for_the_next_life(cluster: LocalCluster) -> None:
    faults = Faults([Fault(0, "dies"), Fault(1, 500)])
    with pytest.raises(SimulatedCrash):
        await create(Client(FaultyTransport(cluster.client.transport, faults)), "a")
    with pytest.raises(ServerError):
        await create(Client(FaultyTransport(cluster.client.transport, faults)), "a")
    assert faults.left == ()
    assert [each.split(":")[0] for each in faults.met] == ["dies", "500"]


async def test_a_slow_request_is_carried_out_when_its_time_has_come(cluster: LocalCluster) -> None:
    clock = FakeClock()
    plan = Faults([Fault(0, "slow", seconds=5)])
    client = Client(FaultyTransport(cluster.client.transport, plan, clock=clock))
    async with background_tasks(create(client, "a")):
        await clock.advance(timedelta(seconds=4))
        assert await names(cluster) == []
        await clock.advance(timedelta(seconds=1))
    assert plan.met == ["slow: POST /api/v1/namespaces/default/configmaps"]


async def test_a_watch_is_cut_off_after_its_first_piece(cluster: LocalCluster) -> None:
    version = (await cluster.client.list(ConfigMap, WHERE)).metadata.resource_version
    for name in ("a", "b"):
        await create(cluster.client, name)
    client = faulty(cluster, Fault(0, "lost"))
    with pytest.raises(StreamBroken, match="planned"):
        async for _ in client.watch(ConfigMap, WHERE, since=version):
            pass


@pytest.mark.parametrize("what", [410, 500, "unreachable", "lost"])
async def test_an_informer_gets_over_a_watch_that_fails(cluster: LocalCluster, what: int | str) -> None:
    transport = FaultyTransport(cluster.client.transport, Faults([Fault(0, what, path="configmaps")]))
    informer = Informer(Client(transport), ConfigMap, WHERE, clock=SystemClock())
    async with background_tasks(informer.run()):
        await informer.wait_for_sync()
        await create(cluster.client, "a")
        await informer.wait_until(lambda cache: Key("default", "a") in cache)


async def test_watches_that_are_open_can_be_cut_at_any_moment(cluster: LocalCluster) -> None:
    transport = FaultyTransport(cluster.client.transport, Faults())
    informer = Informer(Client(transport), ConfigMap, WHERE, clock=SystemClock())
    async with background_tasks(informer.run()):
        await informer.wait_for_sync()
        await create(cluster.client, "a")
        await informer.wait_until(lambda cache: Key("default", "a") in cache)
        before = len(transport.requests)
        transport.cut()
        await create(cluster.client, "b")
        await informer.wait_until(lambda cache: Key("default", "b") in cache)
    assert len(transport.requests) > before


def test_a_seed_gives_the_same_faults_every_time() -> None:
    def met(seed: int) -> list[str]:
        faults = Faults.seeded(seed, rate=0.3)
        for number in range(50):
            faults.due("GET", f"/{number}")
        return faults.met

    assert met(1) == met(1) != met(2)
    assert 5 < len(met(1)) < 30
    assert {each.split(":")[0] for each in met(1)} <= {str(each) for each in FAULT_KINDS}


async def test_a_word_that_is_no_fault_is_told(cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match="'explodes' is no fault"):
        await create(faulty(cluster, Fault(0, "explodes")), "a")
