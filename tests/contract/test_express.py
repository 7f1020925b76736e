"""The quick transport against both servers: writes, refusals, many at once, watches."""

import asyncio
from datetime import timedelta

import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import Key, Selector
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound, ServerError
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import raw_pool
from gangline.kube.watch import ObjectChange


async def test_what_is_written_is_there_and_what_is_refused_says_why(
    server: Connection, nobody: Connection, namespace: str
) -> None:
    async with HttpTransport(server) as other, raw_pool(other, server, agent="test") as quick:
        client = Client(quick)
        made = await client.create(ConfigMap, {"metadata": {"name": "a"}}, namespace=namespace)
        assert made.metadata.uid
        with pytest.raises(AlreadyExists):
            await client.create(ConfigMap, {"metadata": {"name": "a"}}, namespace=namespace)
        with pytest.raises(Invalid, match=r"metadata\.name"):
            await client.create(ConfigMap, {"metadata": {"name": "A b"}}, namespace=namespace)
        # Longer than what comes in one piece.
        text = "x" * 200_000
        changed = await client.patch(ConfigMap, Key(namespace, "a"), {"data": {"text": text}})
        assert changed.data == {"text": text}
        with pytest.raises(NotFound):
            await client.patch(ConfigMap, Key(namespace, "b"), {"data": {}})
        assert quick.idle_count == 1
    async with HttpTransport(nobody) as other, raw_pool(other, nobody, agent="test") as quick:
        with pytest.raises(Forbidden):
            await Client(quick).create(ConfigMap, {"metadata": {"name": "c"}}, namespace=namespace)


async def test_many_at_once_do_not_meet(server: Connection, namespace: str) -> None:
    async with HttpTransport(server) as other, raw_pool(other, server, agent="test") as quick:
        client = Client(quick)

        async def make(number: int) -> ConfigMap:
            body = {"metadata": {"name": f"m-{number}"}, "data": {"number": str(number)}}
            return await client.create(ConfigMap, body, namespace=namespace)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(make(number)) for number in range(40)]
        found = [task.result() for task in tasks]
        assert [(each.metadata.name, each.data) for each in found] == [
            (f"m-{number}", {"number": str(number)}) for number in range(40)
        ]


async def test_a_watch_tells_all_in_order_and_ends_when_the_server_ends_it(server: Connection, namespace: str) -> None:
    where = Selector(namespace=namespace)
    async with HttpTransport(server) as other, raw_pool(other, server, agent="test") as quick:
        client = Client(quick)
        since = (await client.list(ConfigMap, where)).metadata.resource_version
        names = [f"w-{number}" for number in range(60)]
        for name in names:
            # The last one is longer than what comes in one piece.
            text = "x" * (500_000 if name == names[-1] else 10)
            await client.create(ConfigMap, {"metadata": {"name": name}, "data": {"t": text}}, namespace=namespace)
        seen = [
            (event.type, event.object.metadata.name, len(event.object.data["t"]))
            async for event in client.watch(ConfigMap, where, since=since, timeout=timedelta(seconds=2))
            if isinstance(event, ObjectChange) and event.object.metadata.name in names
        ]
        assert seen == [("ADDED", name, 10) for name in names[:-1]] + [("ADDED", names[-1], 500_000)]


async def test_a_watch_that_is_refused_says_why(server: Connection, nobody: Connection, namespace: str) -> None:
    where = Selector(namespace=namespace)
    async with HttpTransport(nobody) as other, raw_pool(other, nobody, agent="test") as quick:
        with pytest.raises(Forbidden):
            async for _ in Client(quick).watch(ConfigMap, where, since="1"):
                pass
    async with HttpTransport(server) as other, raw_pool(other, server, agent="test") as quick:
        with pytest.raises(ServerError, match="nonsense"):
            async for _ in Client(quick).watch(ConfigMap, where, since="nonsense"):
                pass
