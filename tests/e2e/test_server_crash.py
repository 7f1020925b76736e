"""The API server is killed under write load, again and again. What it acknowledged is there; no watcher goes back."""

import asyncio
import os
import random
import subprocess
import sys
from contextlib import aclosing, suppress
from pathlib import Path

from gangline.api.core import ConfigMap
from gangline.api.meta import Key, Selector
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.config.tls import TLS, Pem
from gangline.kube.discovery import server_version
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import ObjectChange
from support.servers.real import free_ports
from support.waiting import wait_until

PLANE = Path(__file__).parents[2] / "bench" / "plane.py"
KILLS = int(os.environ.get("GANGLINE_KILLS", "3"))
WRITERS = 8


class Server:
    """Our API server as a process, with its state on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, (self.port,) = folder, free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connection(self) -> Connection:
        ca = Pem("the CA", file=self.folder / "certificates" / "ca.crt")
        return Connection(
            server=f"https://127.0.0.1:{self.port}", tls=TLS(ca=ca), credentials=StaticToken("secret", "test")
        )

    async def start(self) -> None:
        self._process = self._spawned()
        await wait_until(self._answers)

    def _spawned(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, str(PLANE), str(self.folder), str(self.port), "secret"])

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server did not start"
        if not (self.folder / "certificates" / "server.crt").exists():
            return False
        async with HttpTransport(self.connection) as transport:
            try:
                return bool(await server_version(Client(transport)))
            except KubeError:
                return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Load:
    """Writers that remember what was acknowledged, and a watcher that remembers every version it saw."""

    def __init__(self) -> None:
        self.promised: dict[str, str] = {}
        self.seen: list[int] = []
        self._since = ""
        self._numbers = iter(range(10**9))

    async def write(self, client: Client) -> None:
        """Create until the server is gone."""
        with suppress(KubeError):
            while True:
                name = f"n-{next(self._numbers)}"
                with suppress(AlreadyExists):
                    made = await client.create(
                        ConfigMap, {"metadata": {"name": name}, "data": {"is": name}}, namespace="default"
                    )
                    self.promised[name] = made.metadata.resource_version

    async def watch(self, client: Client) -> None:
        """Follow from where the last watch was, until the server is gone."""
        where = Selector(namespace="default")
        with suppress(KubeError):
            if not self._since:
                self._since = (await client.list(ConfigMap, where, limit=1)).metadata.resource_version
            while True:
                async with aclosing(client.watch(ConfigMap, where, since=self._since)) as events:
                    async for event in events:
                        self._since = event.resource_version
                        if isinstance(event, ObjectChange):
                            self.seen.append(int(event.resource_version))

    async def until_killed(self, server: Server, acknowledged: int) -> None:
        async with HttpTransport(server.connection) as transport, asyncio.TaskGroup() as group:
            client = Client(transport)
            enough = len(self.promised) + acknowledged

            async def written() -> bool:
                return len(self.promised) >= enough

            group.create_task(self.watch(client))
            for _ in range(WRITERS):
                group.create_task(self.write(client))
            await wait_until(written)
            server.kill()

    async def check(self, server: Server) -> None:
        """Everything promised is there, as promised, and the watch goes on to the newest without going back."""
        async with HttpTransport(server.connection) as transport, asyncio.TaskGroup() as group:
            client = Client(transport)
            there = {found.metadata.name: found async for found in client.iterate(ConfigMap, Selector("default"))}
            for name, promised in self.promised.items():
                assert there[name].metadata.resource_version == promised
                assert there[name].data == {"is": name}
            last = await client.create(ConfigMap, {"metadata": {"generateName": "last-"}}, namespace="default")
            watching = group.create_task(self.watch(client))

            async def caught_up() -> bool:
                return bool(self.seen) and self.seen[-1] >= int(last.metadata.resource_version)

            await wait_until(caught_up)
            watching.cancel()
            await client.delete(ConfigMap, Key("default", last.metadata.name))
        assert self.seen == sorted(set(self.seen)), "a watcher saw a version twice, or an older one"


async def test_every_acknowledged_write_survives_and_no_watcher_goes_back(tmp_path: Path) -> None:
    chance, load, server = random.Random(7), Load(), Server(tmp_path)
    try:
        for _ in range(KILLS):
            await server.start()
            await load.until_killed(server, chance.randrange(1, 150))
            await server.start()
            await load.check(server)
            server.kill()
    finally:
        server.kill()
    assert len(load.promised) >= KILLS
