"""What goes wrong between an informer and a real API server, and that nothing is lost by it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import ConfigMap, ServiceAccount
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.config.credentials import StaticToken, TokenFile
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.informer import Informer
from support.servers.proxy import FaultyProxy
from support.servers.real import RealServer

PATIENCE = 90.0  # seconds; a busy machine, a server that starts and a back-off


class Clock(SystemClock):
    """Real time that tells when somebody backs off."""

    def __init__(self) -> None:
        self._paused = asyncio.Event()

    async def sleep(self, duration: timedelta) -> None:
        self._paused.set()
        await super().sleep(duration)

    async def next_pause(self) -> None:
        self._paused.clear()
        await self._paused.wait()


class Follower:
    """An informer of config maps on a connection under test, and a writer on another."""

    def __init__(self, client: Client, writer: Client, namespace: str, **options: Any) -> None:
        self.clock = Clock()
        self.where = Selector(namespace=namespace)
        self.informer = Informer(client, ConfigMap, self.where, clock=self.clock, **options)
        self.writer = writer

    async def put(self, name: str, value: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.where.namespace},
            "data": {"value": value},
        }
        await self.writer.apply(ConfigMap, body, owner="test", force=True)

    async def delete(self, name: str) -> None:
        await self.writer.delete(ConfigMap, Key(self.where.namespace, name))

    async def caught_up(self) -> None:
        """Wait until the cache is what a fresh list gives."""
        fresh = {found.metadata.key: found async for found in self.writer.iterate(ConfigMap, self.where)}
        await self.informer.wait_until(lambda cache: {found.metadata.key: found for found in cache} == fresh)


@asynccontextmanager
async def following(
    server: RealServer, namespace: str, connection: Connection | None = None, **options: Any
) -> AsyncIterator[Follower]:
    """A follower that is synced and has seen one change by watching."""
    direct = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=Path("/nonexistent"))
    async with (
        asyncio.timeout(PATIENCE),
        HttpTransport(direct) as writes,
        HttpTransport(connection or direct) as reads,
        asyncio.TaskGroup() as group,
    ):
        follower = Follower(Client(reads), Client(writes), namespace, **options)
        await follower.put("first", "0")
        task = group.create_task(follower.informer.run())
        await follower.informer.wait_for_sync()
        await follower.put("first", "1")
        await follower.caught_up()
        yield follower
        task.cancel()


@pytest.fixture
async def proxy(real_server: RealServer, real_namespace: str) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(real_server.url, real_server.ca) as proxy:
        yield proxy


def through(proxy: FaultyProxy, server: RealServer) -> Connection:
    return Connection(server=proxy.url, credentials=StaticToken(server.token, "test"))


async def test_server_that_was_killed_and_restarted_loses_no_event(
    real_server: RealServer, real_namespace: str
) -> None:
    async with following(real_server, real_namespace) as follower:
        real_server.kill_apiserver()
        await follower.clock.next_pause()
        await follower.clock.next_pause()
        assert follower.informer.problem is not None
        # Not in another thread: the server would end with it.
        real_server.restart_apiserver()
        for number in range(20):
            await follower.put(f"after-{number % 5}", str(number))
        await follower.delete("first")
        await follower.caught_up()
        assert Key(real_namespace, "first") not in follower.informer.cache


async def test_version_that_was_compacted_away_leads_to_a_new_list(
    real_server: RealServer, real_namespace: str
) -> None:
    async with following(real_server, real_namespace) as follower:
        await follower.put("doomed", "0")
        await follower.caught_up()
        # Something the informer does not watch, so that its version is certainly from before the compaction.
        account = {"metadata": {"name": "other", "namespace": real_namespace}}
        await follower.writer.create(ServiceAccount, account)
        real_server.expire_watches()
        await follower.delete("doomed")
        await follower.put("first", "2")
        await follower.caught_up()
        assert follower.informer.relists == 1
        await follower.put("second", "3")
        await follower.caught_up()


async def test_server_that_hangs_is_noticed_and_followed_again(real_server: RealServer, real_namespace: str) -> None:
    async with following(real_server, real_namespace, idle=timedelta(seconds=1)) as follower:
        with real_server.suspended():
            await follower.clock.next_pause()
            assert follower.informer.problem is not None
        await follower.put("first", "2")
        await follower.caught_up()


async def test_half_open_connection_is_noticed_by_its_silence(
    real_server: RealServer, real_namespace: str, proxy: FaultyProxy
) -> None:
    connection = through(proxy, real_server)
    async with following(real_server, real_namespace, connection, idle=timedelta(seconds=4)) as follower:
        proxy.stall_connections()
        await follower.put("first", "2")
        await follower.put("missed", "3")
        await follower.clock.next_pause()
        assert Key(real_namespace, "missed") not in follower.informer.cache
        await follower.caught_up()
        assert follower.informer.restarts >= 1


async def test_garbage_in_the_stream_is_survived_without_a_new_list(
    real_server: RealServer, real_namespace: str, proxy: FaultyProxy
) -> None:
    async with following(real_server, real_namespace, through(proxy, real_server)) as follower:
        proxy.inject_into_watches(b'{"type": "MODIFIED", "object": {"metadata": secret-in-garbage\n')
        await follower.clock.next_pause()
        assert follower.informer.problem is not None
        assert "secret" not in follower.informer.problem
        await follower.put("first", "2")
        await follower.caught_up()
        assert follower.informer.relists == 0


async def test_connection_cut_within_a_line_is_resumed(
    real_server: RealServer, real_namespace: str, proxy: FaultyProxy
) -> None:
    async with following(real_server, real_namespace, through(proxy, real_server)) as follower:
        proxy.inject_and_close_watches(b'{"type": "MODIFIED", "object": {"metadata": {"name": "fir')
        await follower.clock.next_pause()
        await follower.put("first", "2")
        await follower.delete("first")
        await follower.put("first", "3")
        await follower.caught_up()
        assert follower.informer.relists == 0


async def test_token_that_expired_is_read_again_when_its_file_changes(
    real_server: RealServer, real_namespace: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(real_server.token)
    connection = Connection(server=proxy.url, credentials=TokenFile(file, "test", SystemClock()))
    async with following(real_server, real_namespace, connection) as follower:
        file.write_text("expired")
        proxy.reset_connections()
        # The first pause is for the cut, the second for the 401.
        await follower.clock.next_pause()
        await follower.clock.next_pause()
        assert follower.informer.problem == "Unauthorized"
        await follower.put("first", "2")
        file.write_text(real_server.token)
        await follower.caught_up()
        assert follower.informer.relists == 0
