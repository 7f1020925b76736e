"""Byte streams in both directions, in place of an HTTP connection: the connection itself after an upgrade, or a WebSocket."""

import asyncio
from collections.abc import Mapping
from typing import Protocol, Self

from aiohttp import WSMsgType, web

BUFFER_BYTES = 2**18
"""After twice as many bytes that nobody has read, no more are taken from the client."""
CLOSE_TIMEOUT = 2.0
"""Seconds that a client has to complete the closing handshake."""


class ByteStream(Protocol):
    """A connection that carries bytes."""

    @property
    def response(self) -> web.StreamResponse:
        """The response that began the stream, for the HTTP server."""
        ...

    async def read(self) -> bytes:
        """The next bytes; empty when the client has disconnected."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes. Raises `ConnectionResetError` when the client has disconnected."""
        ...

    async def close(self) -> None:
        """End the stream; the server closes the connection."""
        ...


class UpgradedStream:
    """The connection of an HTTP request that was upgraded to another protocol."""

    def __init__(self, response: web.StreamResponse, reader: asyncio.StreamReader) -> None:
        self._response, self._reader = response, reader

    @classmethod
    async def accept(cls, http: web.BaseRequest, headers: Mapping[str, str]) -> Self:
        """Send the 101 with these headers, and take the connection over from the HTTP server."""
        response = web.StreamResponse(status=101, headers={"Connection": "Upgrade", **headers})
        response.force_close()
        reader = asyncio.StreamReader(BUFFER_BYTES)
        if http.transport is None:
            raise ConnectionResetError("the client has disconnected")
        reader.set_transport(http.transport)
        # Before the response: what follows it is no HTTP.
        http.protocol.set_parser(_Feeder(reader))  # type: ignore[arg-type]
        await response.prepare(http)
        return cls(response, reader)

    @property
    def response(self) -> web.StreamResponse:
        return self._response

    async def read(self) -> bytes:
        return await self._reader.read(BUFFER_BYTES)

    async def write(self, data: bytes) -> None:
        await self._response.write(data)

    async def close(self) -> None:
        """Do nothing: the server closes the connection after the response."""


class _Feeder:
    """What aiohttp calls a payload parser: it takes all that arrives on a connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()


class WebSocketStream:
    """The binary messages of a WebSocket as one stream of bytes."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @classmethod
    async def accept(cls, http: web.BaseRequest, protocol: str) -> Self:
        socket = web.WebSocketResponse(protocols=(protocol,), timeout=CLOSE_TIMEOUT, compress=False)
        await socket.prepare(http)
        return cls(socket)

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    async def read(self) -> bytes:
        async for message in self._socket:
            if message.type is WSMsgType.BINARY and message.data:
                return bytes(message.data)
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def close(self) -> None:
        await self._socket.close()
