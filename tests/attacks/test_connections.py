"""Connections that do nothing: they cost little, not for long, and never lock the owner out."""

import asyncio
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import psutil
import pytest

from gangline.apiserver.http import handler
from gangline.apiserver.serving.connections import ConnectionLimits
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.waiting import wait_until

pytestmark = pytest.mark.faults

SHORT = ConnectionLimits(handshake_seconds=0.3, header_seconds=0.3, idle_seconds=0.3)
FEW = ConnectionLimits(unauthenticated=20, unauthenticated_per_address=20)


class AttackedPlane(NamedTuple):
    port: int
    url: str
    tls: ssl.SSLContext
    token: str
    writers: list[asyncio.StreamWriter]

    async def connect(self, data: bytes = b"", *, tls: bool = True) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls if tls else None)
        self.writers.append(writer)
        writer.write(data)
        return reader

    def disconnect_all(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    def session(self) -> aiohttp.ClientSession:
        """The owner's client."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return aiohttp.ClientSession(self.url, headers=headers, connector=aiohttp.TCPConnector(ssl=self.tls))

    def request(self, head: str) -> bytes:
        return f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n".encode()


@asynccontextmanager
async def attacked_plane(folder: Path, limits: ConnectionLimits) -> AsyncIterator[AttackedPlane]:
    settings = PlaneSettings(certificates=folder / "certificates", token="owner", connections=limits)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.certificates is not None
        tls = ssl.create_default_context(cafile=plane.certificates.ca)
        attacked = AttackedPlane(int(plane.url.rpartition(":")[2]), plane.url, tls, plane.token, [])
        yield attacked
        attacked.disconnect_all()


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Returns when the server has closed the connection."""
    async with asyncio.timeout(20):
        while await read_or_end(reader):
            pass


async def read_or_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(2**16)
    except (ConnectionError, ssl.SSLError):
        return b""


@pytest.mark.parametrize(
    ("sent", "tls"),
    [
        pytest.param(b"", False, id="no handshake"),
        pytest.param(b"\x16\x03\x01", False, id="half a handshake"),
        pytest.param(b"", True, id="silent after the handshake"),
        pytest.param(b"GET /version HTTP/1.1\r\nHost: local", True, id="half-sent headers"),
        pytest.param(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n", True, id="idle after a response"),
    ],
)
async def test_a_connection_that_does_nothing_is_closed(tmp_path: Path, sent: bytes, tls: bool) -> None:
    async with attacked_plane(tmp_path, SHORT) as plane:
        reader = await plane.connect(sent, tls=tls)
        await until_closed(reader)


async def test_a_watch_outlives_every_limit_of_idle_connections(tmp_path: Path) -> None:
    async with attacked_plane(tmp_path, SHORT) as plane:
        reader = await plane.connect(plane.request("GET /api/v1/configmaps?watch=1") + b"\r\n")
        idle = await plane.connect()
        await reader.readuntil(b"\r\n\r\n")
        await until_closed(idle)
        await until_closed(await plane.connect())  # twice the time limit
        async with plane.session() as owner:
            body = {"metadata": {"name": "seen"}}
            async with owner.post("/api/v1/namespaces/default/configmaps", json=body) as response:
                assert response.status == 201
        assert b"seen" in await reader.readuntil(b"seen")


async def test_a_body_that_does_not_arrive_ends_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "BODY_SECONDS", 0.2)
    async with attacked_plane(tmp_path, ConnectionLimits()) as plane:
        head = plane.request("POST /api/v1/namespaces/default/configmaps")
        reader = await plane.connect(head + b'Content-Length: 100\r\n\r\n{"metadata"')
        assert b" 504 " in await reader.readuntil(b"\r\n")
        await until_closed(reader)


async def test_a_flood_of_idle_connections_does_not_lock_the_owner_out(tmp_path: Path) -> None:
    async with attacked_plane(tmp_path, FEW) as plane, plane.session() as owner:
        async with owner.get("/api/v1/namespaces") as response:
            assert response.status == 200
        watch = await plane.connect(plane.request("GET /api/v1/configmaps?watch=1") + b"\r\n")
        await watch.readuntil(b"\r\n\r\n")
        flood = [await plane.connect() for _ in range(60)]
        for reader in flood[:40]:
            await until_closed(reader)  # the oldest went first
        assert not any(reader.at_eof() for reader in flood[45:])
        async with owner.get("/api/v1/namespaces") as response, plane.session() as newcomer:
            assert response.status == 200
            async with newcomer.get("/api/v1/namespaces") as fresh:
                assert fresh.status == 200
        assert not watch.at_eof()


async def test_a_flood_of_unfinished_handshakes_does_not_lock_the_owner_out(tmp_path: Path) -> None:
    async with attacked_plane(tmp_path, FEW) as plane:
        flood = [await plane.connect(b"\x16", tls=False) for _ in range(60)]
        for reader in flood[:40]:
            await until_closed(reader)
        async with plane.session() as owner, owner.get("/api/v1/namespaces") as response:
            assert response.status == 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A plane in a process of its own."""
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(tmp_path / "plane")]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path)
    yield server
    server.send_signal(signal.SIGTERM)
    server.communicate()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is returned with glibc's malloc_trim")
async def test_memory_of_idle_connections_is_small_and_comes_back(server: subprocess.Popen[bytes]) -> None:
    count = 400
    assert server.stderr is not None
    ready = re.search(rb"https://127.0.0.1:(\d+)", server.stderr.readline())
    assert ready
    process = psutil.Process(server.pid)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    plane = AttackedPlane(int(ready[1]), "", tls, "", [])
    files, before = process.num_fds(), process.memory_info().rss
    for _ in range(count):
        await plane.connect()
    during = process.memory_info().rss
    assert process.num_fds() >= files + count
    assert (during - before) / count < 100_000, "each took 290 kB when buffers were asyncio's"
    plane.disconnect_all()
    await wait_until(lambda: process.num_fds() < files + 20)
    await wait_until(lambda: process.memory_info().rss - before < (during - before) / 2 + 5e6, seconds=20)
