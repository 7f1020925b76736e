"""Port forwarding: connections to ports of a pod, in a SPDY connection or in the channels of a WebSocket.

In SPDY the client opens two streams for every connection, one for data and one for errors, with the same id. In a
WebSocket every port has one connection, with a data channel and an error channel; each begins with the port number as
two little-endian bytes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

import msgspec

from gangline.apiserver.streaming.channels import WebSocketChannels
from gangline.apiserver.streaming.spdy import StreamData, StreamReset, SynStream
from gangline.apiserver.streaming.spdy_connection import SpdyConnection
from gangline.base.tasks import run_until_first
from gangline.kube.podstreams import ContainerNotRunning, ContainerRef, PodStreams, PortForwardFailed

SPDY_PROTOCOL = "portforward.k8s.io"
TUNNEL_PROTOCOL = f"SPDY/3.1+{SPDY_PROTOCOL}"
"""The WebSocket that carries a SPDY connection, of kubectl since 1.31."""
READ_CHUNK_BYTES = 32 * 1024


class PortForwardSession:
    """The forwarded connections of one client, in the channels of a WebSocket."""

    def __init__(self, channels: WebSocketChannels, container_ref: ContainerRef, node: PodStreams) -> None:
        self._channels, self._container_ref, self._node = channels, container_ref, node
        # By data channel.
        self._writers: dict[int, asyncio.StreamWriter] = {}

    async def run(self, ports: Sequence[int]) -> None:
        """Forward until the client disconnects or all connections end. Raises `ConnectionResetError`."""
        readers: dict[int, asyncio.StreamReader] = {}
        try:
            for channel, port in zip(range(0, 2 * len(ports), 2), ports, strict=True):
                reader = await self._connect(channel, port)
                if reader is not None:
                    readers[channel] = reader
            await run_until_first(self._copy_from_client(), self._copy_to_client(readers))
        finally:
            for writer in self._writers.values():
                writer.close()

    async def _connect(self, channel: int, port: int) -> asyncio.StreamReader | None:
        for number in (channel, channel + 1):
            await self._channels.send(number, port.to_bytes(2, "little"))
        try:
            reader, writer = await self._node.connect(self._container_ref, port)
        except (ContainerNotRunning, OSError) as error:
            await self._channels.send(channel + 1, _error_text(self._container_ref, port, error))
            return None
        self._writers[channel] = writer
        return reader

    async def _copy_from_client(self) -> None:
        async for channel, data in self._channels.messages():
            writer = self._writers.get(channel)
            if writer is not None:
                # A closed connection is noticed by its reader.
                with suppress(ConnectionError):
                    writer.write(data)
                    await writer.drain()

    async def _copy_to_client(self, readers: dict[int, asyncio.StreamReader]) -> None:
        async with asyncio.TaskGroup() as group:
            for channel, reader in readers.items():
                group.create_task(self._copy_port(channel, reader))

    async def _copy_port(self, channel: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await _read_chunk(reader):
                await self._channels.send(channel, data)
        except PortForwardFailed as error:
            await self._channels.send(channel + 1, str(error).encode())


class _ForwardedConnection(msgspec.Struct):
    """One connection to a port, with the streams that the client has opened for it."""

    port: int
    data: int = 0
    error: int = 0
    writer: asyncio.StreamWriter | None = None


class SpdyPortForward:
    """The forwarded connections of one client, in a SPDY connection. The client may open more at any time."""

    def __init__(self, connection: SpdyConnection, container_ref: ContainerRef, node: PodStreams) -> None:
        self._connection, self._container_ref, self._node = connection, container_ref, node
        # Those whose second stream is not open yet, by request id; all others by data stream.
        self._incomplete: dict[str, _ForwardedConnection] = {}
        self._forwarded: dict[int, _ForwardedConnection] = {}

    async def run(self) -> None:
        """Forward until the client disconnects."""
        async with asyncio.TaskGroup() as group, aclosing(self._connection.events()) as events:
            try:
                async for event in events:
                    match event:
                        case SynStream():
                            await self._open(event, group)
                        case StreamData():
                            await self._write(event)
                        case StreamReset():
                            self._close(event.stream)
            finally:
                # With their connections the tasks end, too.
                for forwarded in self._forwarded.values():
                    if forwarded.writer is not None:
                        forwarded.writer.transport.abort()

    async def _open(self, event: SynStream, group: asyncio.TaskGroup) -> None:
        """Take a new stream, and connect to the port when both streams of a connection are open."""
        kind, port, request = (event.headers.get(name, "") for name in ("streamtype", "port", "requestid"))
        if kind not in ("data", "error") or not is_port(port):
            await self._connection.reset(event.stream)
            return
        # Clients before 1.2 send no id: their streams follow each other, the one for errors first.
        request = request or str(event.stream if kind == "error" else event.stream - 2)
        forwarded = self._incomplete.setdefault(request, _ForwardedConnection(int(port)))
        if kind == "data":
            forwarded.data = event.stream
        else:
            forwarded.error = event.stream
        if forwarded.data and forwarded.error:
            del self._incomplete[request]
            await self._connect(forwarded, group)

    async def _connect(self, forwarded: _ForwardedConnection, group: asyncio.TaskGroup) -> None:
        try:
            reader, forwarded.writer = await self._node.connect(self._container_ref, forwarded.port)
        except (ContainerNotRunning, OSError) as error:
            text = _error_text(self._container_ref, forwarded.port, error)
            await self._connection.send(forwarded.error, text)
            await self._finish(forwarded)
            return
        self._forwarded[forwarded.data] = forwarded
        group.create_task(self._copy_to_client(forwarded, reader))

    async def _copy_to_client(self, forwarded: _ForwardedConnection, reader: asyncio.StreamReader) -> None:
        # A client that has disconnected ends the loop over events.
        with suppress(ConnectionResetError):
            try:
                while data := await _read_chunk(reader):
                    await self._connection.send(forwarded.data, data)
            except PortForwardFailed as error:
                await self._connection.send(forwarded.error, str(error).encode())
            await self._finish(forwarded)

    async def _finish(self, forwarded: _ForwardedConnection) -> None:
        for stream in (forwarded.data, forwarded.error):
            await self._connection.finish(stream)

    async def _write(self, event: StreamData) -> None:
        forwarded = self._forwarded.get(event.stream)
        if forwarded is None or forwarded.writer is None:
            return
        # A closed connection is noticed by its reader.
        with suppress(OSError):
            forwarded.writer.write(event.data)
            if event.fin:
                forwarded.writer.write_eof()
            await forwarded.writer.drain()

    def _close(self, stream: int) -> None:
        forwarded = self._forwarded.pop(stream, None)
        if forwarded is not None and forwarded.writer is not None:
            forwarded.writer.close()


def is_port(text: str) -> bool:
    """Whether a text is the number of a port."""
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**16


def _error_text(ref: ContainerRef, port: int, error: Exception) -> bytes:
    return f"error forwarding port {port} to pod {ref.uid}, uid : {error}".encode()


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    """The next bytes; empty when the connection ended or failed."""
    try:
        return await reader.read(READ_CHUNK_BYTES)
    except ConnectionError:
        return b""
