"""Servers that speak bytes to the quick transport, and the transport to them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import Anonymous
from gangline.kube.transport.api import Transport
from gangline.kube.transport.raw.pool import RawPool, raw_pool
from gangline.kube.transport.warnings import WarningHandler, log_warning
from gangline.testing.clock import settle
from support.servers.http import byte_server
from support.servers.scripted import ScriptedTransport, json_response

ByteHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FALLBACK_TRANSPORT = ScriptedTransport(lambda request: json_response())


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """A request: its first line, headers and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return head[0], headers, await reader.readexactly(int(headers["Content-Length"]))


def responder(*texts: bytes, closes: bool = False) -> ByteHandler:
    """Answers every request with these pieces, one after the other."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for text in texts:
                writer.write(text)
                await writer.drain()
                await asyncio.sleep(0)
            if closes:
                return

    return talk


@asynccontextmanager
async def raw_pool_to(
    talk: ByteHandler,
    other: Transport = FALLBACK_TRANSPORT,
    *,
    base: str = "",
    warn: WarningHandler = log_warning,
    **how: Any,
) -> AsyncIterator[RawPool]:
    """A quick transport to a server that talks like this. At the end all its connections are closed, on both sides."""
    talks: set[asyncio.Event] = set()

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = asyncio.Event()
        talks.add(over)
        try:
            await talk(reader, writer)
        finally:
            over.set()

    async with byte_server(noted) as url:
        connection = Connection(server=f"{url}{base}", **how)
        try:
            async with raw_pool(other, connection, agent="test", warn=warn) as quick:
                yield quick
        finally:
            async with asyncio.timeout(60):
                for over in talks:
                    await over.wait()
                await settle()


class RenewableCredentials(Anonymous):
    """Credentials that can be renewed, once."""

    was_renewed = False

    def invalidate(self, sent: object = None) -> bool:
        self.was_renewed = True
        return True
