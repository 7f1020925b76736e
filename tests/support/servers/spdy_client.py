"""A SPDY client, as kubectl has one: over an upgraded connection, or in a WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlencode

from gangline.apiserver.streaming.spdy import FrameDecoder, FrameEncoder, Ping, StreamData, SynReply
from gangline.local.cluster import LocalCluster

Query = Sequence[tuple[str, str]]


class RawResponse(Exception):
    """The server has not upgraded the connection."""

    def __init__(self, head: str, body: str) -> None:
        super().__init__(head.partition("\r\n")[0])
        self.head, self.body = head, body


@asynccontextmanager
async def raw_request(
    cluster: LocalCluster, method: str, path: str, query: Query = (), headers: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A request on a connection of its own, whose response is still to be read."""
    assert cluster.inner_connection.open_socket is not None
    connection = await cluster.inner_connection.open_socket()
    reader, writer = await asyncio.open_connection(sock=connection)
    credentials = await cluster.inner_connection.credentials.headers()
    lines = [f"{method} {path}?{urlencode(query)} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (*credentials.items(), *headers)]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_head(reader: asyncio.StreamReader, expected: int = 101) -> str:
    """The head of the response. Raises `RawResponse` if it has another code."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if int(head.split()[1]) != expected:
        body = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                body = await reader.read(10_000)
        raise RawResponse(head, body.decode(errors="replace"))
    return head


class SpdyClient:
    """Streams of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._next = 1
        self.received: dict[int, bytes] = {}
        self.finished: set[int] = set()
        self.replies: set[int] = set()
        self.pings: list[int] = []

    async def open(self, **headers: str) -> int:
        """Open a stream; returns its id."""
        stream, self._next = self._next, self._next + 2
        self.write(self.encoder.syn_stream(stream, headers))
        while stream not in self.replies:
            await self.receive()
        return stream

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        self.write(self.encoder.data(stream, data, fin=fin))

    async def receive(self) -> None:
        """Take what arrives next."""
        data = await self._reader.read(2**16)
        if not data:
            raise ConnectionResetError("the server has closed the connection")
        for frame in self._decoder.feed(data):
            match frame:
                case SynReply():
                    self.replies.add(frame.stream)
                case StreamData():
                    self.received[frame.stream] = self.received.get(frame.stream, b"") + frame.data
                    if frame.fin:
                        self.finished.add(frame.stream)
                case Ping():
                    self.pings.append(frame.id)
                case _:
                    pass

    async def read(self, stream: int) -> bytes:
        """All data of a stream."""
        while stream not in self.finished:
            await self.receive()
        return self.received.get(stream, b"")


@asynccontextmanager
async def spdy_client(
    cluster: LocalCluster, path: str, query: Query = (), protocols: Sequence[str] = ()
) -> AsyncIterator[tuple[SpdyClient, str]]:
    """A client, and the protocol that the server has chosen. Raises `RawResponse`."""
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("Content-Length", "0")]
    versions = [("X-Stream-Protocol-Version", protocol) for protocol in protocols]
    async with raw_request(cluster, "POST", path, query, (*upgrade, *versions)) as (reader, writer):
        head = await read_head(reader)
        chosen = [line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("X-Stream-Protocol")]
        yield SpdyClient(reader, writer), chosen[0] if chosen else ""
