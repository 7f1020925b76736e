"""A proxy with the faults of networks.

It speaks plain HTTP to the client and TLS to the server, so that it can meddle with what the server says. Left
alone it passes bytes on as they are.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

HOST = "127.0.0.1"


class ProxiedConnection:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.is_watch = False
        self.flow_gate = asyncio.Event()
        self.flow_gate.set()

    async def to_server(self, source: asyncio.StreamReader) -> None:
        while data := await source.read(65536):
            await self.flow_gate.wait()
            # One request per connection at a time, and ours are short: the first line is in the first piece.
            if data.startswith(b"GET "):
                self.is_watch = b"watch=true" in data.split(b"\r\n", 1)[0]
            self.server.write(data)
            await self.server.drain()

    async def to_client(self, source: asyncio.StreamReader) -> None:
        while data := await source.read(65536):
            await self.flow_gate.wait()
            self.client.write(data)
            await self.client.drain()

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class FaultyProxy:
    """An async context manager; afterwards nothing of it is left."""

    def __init__(self, server: str, ca: Path) -> None:
        to = urlsplit(server)
        assert to.hostname is not None
        self._host, self._port = to.hostname, to.port
        self._context = ssl.create_default_context(cafile=ca)
        self._connections: set[ProxiedConnection] = set()
        self._serve_tasks: set[asyncio.Task[object]] = set()
        self.is_open = True
        """Whether new connections are accepted; others are reset."""

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, HOST, 0)
        self.url = f"http://{HOST}:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in self._serve_tasks:
            task.cancel()
        if self._serve_tasks:
            await asyncio.wait(self._serve_tasks)

    def stall_connections(self) -> None:
        """Stop forwarding on the current connections without closing any: both ends see them half-open."""
        for connection in self._connections:
            connection.flow_gate.clear()

    def reset_connections(self) -> None:
        """Reset the current connections."""
        for connection in self._connections:
            connection.abort()

    def inject_into_watches(self, text: bytes) -> None:
        """Insert a body into every idle watch, as if the server had sent it."""
        for connection in self._watch_connections():
            connection.client.write(b"%x\r\n%b\r\n" % (len(text), text))

    def inject_and_close_watches(self, text: bytes) -> None:
        """Insert a body into every idle watch, and cut the connection within it."""
        for connection in self._watch_connections():
            connection.client.write(b"%x\r\n%b" % (2 * len(text), text))
            connection.client.close()

    def _watch_connections(self) -> list[ProxiedConnection]:
        found = [connection for connection in self._connections if connection.is_watch]
        assert found, "no watch goes through the proxy"
        return found

    async def _serve(self, client_reads: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serve_tasks.add(task)
        try:
            if self.is_open:
                await self._relay(client_reads, client)
        except asyncio.CancelledError:
            pass  # by __aexit__, which waits for us; asyncio would report it as an error of the callback
        finally:
            client.transport.abort()
            self._serve_tasks.discard(task)

    async def _relay(self, client_reads: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            server_reads, server = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        except OSError:
            return
        connection = ProxiedConnection(client, server)
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as group:
                pumps = [
                    group.create_task(_until_disconnected(connection.to_server(client_reads))),
                    group.create_task(_until_disconnected(connection.to_client(server_reads))),
                ]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
        finally:
            self._connections.discard(connection)
            connection.abort()


async def _until_disconnected(pump: Coroutine[Any, Any, None]) -> None:
    with suppress(OSError):  # a connection that is lost is what this module is about
        await pump
