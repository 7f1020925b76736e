"""`assert_controller_converges` passes controllers whose reconcile is idempotent, and no others."""

from datetime import timedelta

import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.runtime.cache import Cache
from gangline.runtime.manager import Manager
from gangline.runtime.sources import InformerSource, own_key
from gangline.testing import Fault, assert_controller_converges

ASKS = "example.dev/copy"


class Copies:
    """Copies every ConfigMap that asks for it."""

    def __init__(self, maps: Cache[ConfigMap], client: Client) -> None:
        self._maps, self._client = maps, client

    async def reconcile(self, key: Key) -> timedelta | None:
        found, copy = self._maps.get(key), Key(key.namespace, f"{key.name}-copy")
        if found is not None and ASKS in found.metadata.labels and copy not in self._maps:
            body = {"metadata": {"name": copy.name}, "data": {"of": key.name}}
            await self._client.create(ConfigMap, body, namespace=key.namespace)
        return None


class Remembers(Copies):
    """Remembers in memory which copies it has created."""

    def __init__(self, maps: Cache[ConfigMap], client: Client) -> None:
        super().__init__(maps, client)
        self._made: set[Key] = set()

    async def reconcile(self, key: Key) -> timedelta | None:
        found = self._maps.get(key)
        if found is not None and ASKS in found.metadata.labels and key not in self._made:
            body = {"metadata": {"generateName": f"{key.name}-"}, "data": {"of": key.name}}
            await self._client.create(ConfigMap, body, namespace=key.namespace)
            self._made.add(key)
        return None


async def controller(client: Client, kind: type[Copies] = Copies) -> None:
    manager = Manager(client, SystemClock())
    maps = manager.informer(ConfigMap)
    manager.new_controller("copies", kind(maps.cache, client), [InformerSource(maps, own_key)])
    await manager.run(signals=False)


async def story(client: Client) -> None:
    for number in range(4):
        body = {"metadata": {"name": f"map-{number}", "labels": {ASKS: ""}}}
        await client.create(ConfigMap, body, namespace="default")


async def look(client: Client) -> list[str]:
    items = (await client.list(ConfigMap, Selector(namespace="default"))).items
    return sorted(each.data["of"] for each in items if "of" in each.data)


async def test_a_controller_that_can_repeat_itself_ends_the_same() -> None:
    assert await assert_controller_converges(controller, story, look, seed=1, rate=0.4) == [
        "map-0",
        "map-1",
        "map-2",
        "map-3",
    ]


async def test_a_controller_that_trusts_its_memory_is_found_out() -> None:
    async def remembers(client: Client) -> None:
        await controller(client, Remembers)

    plan = [Fault(2, "dies after", method="POST")]
    told = r"(?s)the plan: in the calm world \['map-0', 'map-1', 'map-2', 'map-3'\].*after\n  dies after: POST"
    with pytest.raises(AssertionError, match=told):
        await assert_controller_converges(remembers, story, look, plan=plan, within=timedelta(seconds=3))


async def test_a_controller_that_never_rests_is_told() -> None:
    async def restless(client: Client) -> None:
        clock = SystemClock()
        while True:
            body = {"metadata": {"generateName": "noise-"}}
            await client.create(ConfigMap, body, namespace="default")
            await clock.sleep(timedelta(milliseconds=10))

    with pytest.raises(AssertionError, match="the controller is never done: POST"):
        await assert_controller_converges(restless, story, look, within=timedelta(seconds=0.5))


async def test_a_mistake_of_the_controllers_own_is_raised() -> None:
    async def broken(client: Client) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await assert_controller_converges(broken, story, look)
