"""The informer against a real API server, when nothing goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import JSON, Key, Object, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange
from gangline.runtime.informer import Delta, Informer
from support.servers.real import RealServer

PATIENCE = 60.0


class Numbers(Object, frozen=True):
    """A config map of which we ask more than the server does."""

    data: dict[str, Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]] = {}


NUMBERS = Resource("", "v1", "ConfigMap", "configmaps", Numbers)


@pytest.fixture
async def client(real_server: RealServer, real_namespace: str) -> AsyncIterator[Client]:
    connection = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=Path("/nonexistent"))
    async with asyncio.timeout(PATIENCE), HttpTransport(connection) as transport:
        yield Client(transport)


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.wait_for_sync()
        yield
        task.cancel()


def config_map(namespace: str, name: str, value: str = "1", **labels: str) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {"value": value},
    }


async def test_cache_follows_creations_updates_deletions_and_successors(client: Client, real_namespace: str) -> None:
    key = Key(real_namespace, "a")
    informer = Informer(client, ConfigMap, Selector(namespace=real_namespace), clock=SystemClock())
    told: list[Delta[ConfigMap]] = []
    async with running(informer):
        with informer.subscribe(told.append):
            await client.create(ConfigMap, config_map(real_namespace, "a"))
            await client.patch(ConfigMap, key, {"data": {"value": "2"}})
            await client.delete(ConfigMap, key)
            await client.create(ConfigMap, config_map(real_namespace, "a", "3"))
            await informer.wait_until(lambda cache: any(found.data["value"] == "3" for found in cache))
    assert [(bool(delta.before), bool(delta.after)) for delta in told] == [
        (False, True),
        (True, True),
        (True, False),
        (False, True),
    ]


async def test_object_that_leaves_the_selector_is_gone(client: Client, real_namespace: str) -> None:
    where = Selector(namespace=real_namespace, labels="team=red")
    informer = Informer(client, ConfigMap, where, clock=SystemClock())
    async with running(informer):
        await client.create(ConfigMap, config_map(real_namespace, "a", team="red"))
        await client.create(ConfigMap, config_map(real_namespace, "b", team="blue"))
        await informer.wait_until(lambda cache: Key(real_namespace, "a") in cache)
        await client.patch(ConfigMap, Key(real_namespace, "a"), {"metadata": {"labels": {"team": "blue"}}})
        await informer.wait_until(lambda cache: len(cache) == 0)


async def test_object_that_does_not_fit_is_left_out_and_comes_back(client: Client, real_namespace: str) -> None:
    good, bad = Key(real_namespace, "good"), Key(real_namespace, "bad")
    await client.create(ConfigMap, config_map(real_namespace, "good"))
    await client.create(ConfigMap, config_map(real_namespace, "bad", "text"))
    informer = Informer(client, NUMBERS, Selector(namespace=real_namespace), clock=SystemClock())
    async with running(informer):
        assert informer.cache.keys() == (good,)
        assert informer.unreadable.keys() == {bad}
        await client.patch(ConfigMap, good, {"data": {"value": "text"}})
        await informer.wait_until(lambda cache: len(cache) == 0)
        await client.patch(ConfigMap, bad, {"data": {"value": "7"}})
        await informer.wait_until(lambda cache: cache.keys() == (bad,))
        assert informer.unreadable.keys() == {good}
        assert informer.restarts == 0


async def test_watch_ends_in_order_after_the_time_asked_for(client: Client, real_namespace: str) -> None:
    where = Selector(namespace=real_namespace)
    page = await client.list(ConfigMap, where)
    await client.create(ConfigMap, config_map(real_namespace, "a"))
    # Long enough for a busy server to tell what it has.
    watch = client.watch(ConfigMap, where, since=page.metadata.resource_version, timeout=timedelta(seconds=3))
    events = [event async for event in watch if not isinstance(event, Bookmark)]
    (change,) = events
    assert isinstance(change, ObjectChange)
    assert change.type is ChangeType.ADDED


async def test_kind_that_is_not_there_yet_is_a_problem_and_not_the_end(client: Client, real_namespace: str) -> None:
    missing: Resource[Object] = Resource("nowhere.example", "v1", "Thing", "things", Object)
    paused = asyncio.Event()

    class Clock(SystemClock):
        async def sleep(self, duration: timedelta) -> None:
            paused.set()
            await super().sleep(duration)

    informer = Informer(client, missing, clock=Clock())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await paused.wait()
        assert informer.problem is not None
        assert "could not find the requested resource" in informer.problem or "not found" in informer.problem
        assert not informer.is_synced
        task.cancel()
