"""Real ports of services."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION
from gangline.api.meta import JSON, Key
from gangline.node.network.service_ports import PortTaken, ServicePortAllocator, service_ports
from gangline.node.pod_types import RunPod
from gangline.node.ports import bind_port, reserve_port
from gangline.runtime.cache import Cache
from support.servers.node_api import NodeApi

KEY = Key("default", "s")
POD = msgspec.convert(
    {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "x", "more": "y"}}},
    RunPod,
)
BODY: JSON = {
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {"selector": {"app": "x"}, "ports": [{"name": "a", "port": 2222}, {"name": "b", "port": 80}]},
}


class World:
    """A service, its cache and its port allocator."""

    def __init__(self) -> None:
        self.api = NodeApi()
        self.cache: Cache[Service] = Cache()
        self.allocator = ServicePortAllocator(self.cache, self.api.client())

    async def reconcile(self) -> Service:
        """Reconcile the service, and return it."""
        self.cache.put(await self.api.client().get(Service, KEY))
        await self.allocator.reconcile(KEY)
        service = await self.api.client().get(Service, KEY)
        self.cache.put(service)
        return service


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.allocator.close()


async def test_every_port_gets_its_own_once(world: World) -> None:
    await world.api.client().create(Service, BODY)
    first = service_ports(await world.reconcile())
    assert set(first) == {"a", "b"}
    assert first["a"] != first["b"]
    assert service_ports(await world.reconcile()) == first
    assert world.allocator.pod_ports(POD) == {
        "a": first["a"],
        "b": first["b"],
        "2222": first["a"],
        "80": first["b"],
    }


async def test_a_service_without_pods_gets_none(world: World) -> None:
    await world.api.client().create(Service, {**BODY, "spec": {"ports": [{"port": 443}]}})
    assert ADDRESSES_ANNOTATION not in (await world.reconcile()).metadata.annotations


async def test_ports_are_held_until_the_process_starts(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    stranger = socket.socket()
    with stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    world.allocator.hand_over(POD)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


async def test_ports_are_held_again_after_the_process(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    world.allocator.hand_over(POD)
    world.allocator.take_back(POD)
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))


async def test_a_port_that_no_process_listens_on_is_not_given_to_others(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    for change in (lambda: None, lambda: world.allocator.hand_over(POD), lambda: world.allocator.take_back(POD)):
        change()
        with reserve_port(range(port, port + 1)) as another:
            assert another.getsockname()[1] != port
    world.allocator.close()
    with reserve_port(range(port, port + 1)) as another:
        assert another.getsockname()[1] == port


async def test_ports_given_by_an_earlier_life_are_not_given_to_others(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    world.allocator.close()
    world.allocator = ServicePortAllocator(world.cache, world.api.client())
    await world.reconcile()
    with reserve_port(range(port, port + 1)) as another:
        assert another.getsockname()[1] != port
    world.allocator.hand_over(POD)


async def test_a_port_that_somebody_took_is_told(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    world.allocator.close()
    with bind_port(port) as stranger:
        stranger.listen()
        with pytest.raises(PortTaken, match=f'port {port}, given to service "s" as "a", is taken'):
            world.allocator.hand_over(POD)


async def test_a_second_container_does_not_clash_with_the_first(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    world.allocator.hand_over(POD)
    with bind_port(port) as first:
        first.listen()
        world.allocator.hand_over(POD)


async def test_a_team_that_starts_anew_gets_new_ports(world: World) -> None:
    await world.api.client().create(Service, BODY)
    first = await world.reconcile()
    old = service_ports(first)
    world.allocator.hand_over(POD)
    # Another process has one of the ports, so it cannot be reserved again; the other port is, until the service is
    # recreated.
    with bind_port(old["a"]) as stranger:
        stranger.listen()
        assert world.allocator.take_back(POD) == (
            f'port {old["a"]}, given to service "s" as "a", is taken by another process'
        )
        await world.api.client().delete(Service, KEY)
        await world.api.client().create(Service, BODY)
        second = await world.reconcile()
        assert second.metadata.uid != first.metadata.uid
        assert old["a"] not in service_ports(second).values()
        world.allocator.hand_over(POD)


async def test_a_service_that_goes_lets_its_ports_go(world: World) -> None:
    await world.api.client().create(Service, BODY)
    port = service_ports(await world.reconcile())["a"]
    world.cache.drop(KEY)
    await world.allocator.reconcile(KEY)
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", port))
