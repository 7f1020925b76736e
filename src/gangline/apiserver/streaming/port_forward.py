"""Port forwarding: connections to several ports of a pod in one WebSocket.

Every port has a data channel and an error channel. Each begins with the port number as two little-endian bytes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gangline.apiserver.streaming.channels import Channels
from gangline.base.tasks import run_until_first
from gangline.kube.podstreams import ContainerNotRunning, ContainerRef, PodStreams

READ_CHUNK_BYTES = 32 * 1024


class PortForwardSession:
    """The forwarded connections of one client."""

    def __init__(self, channels: Channels, container_ref: ContainerRef, node: PodStreams) -> None:
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
            text = f"error forwarding port {port} to pod {self._container_ref.uid}, uid : {error}"
            await self._channels.send(channel + 1, text.encode())
            return None
        self._writers[channel] = writer
        return reader

    async def _copy_from_client(self) -> None:
        async for channel, data in self._channels:
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
        while data := await _read_chunk(reader):
            await self._channels.send(channel, data)


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    """The next bytes; empty when the connection ended or failed."""
    try:
        return await reader.read(READ_CHUNK_BYTES)
    except ConnectionError:
        return b""
