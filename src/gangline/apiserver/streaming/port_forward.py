"""Connections to ports of a pod, several in one WebSocket.

Every port has two channels, data and errors. Each begins with the number of its port, two bytes, the lower one first.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gangline.apiserver.streaming.channels import Channels
from gangline.base.tasks import first_of
from gangline.kube.podstreams import NotRunning, Place, PodStreams

CHUNK = 32 * 1024


class Forwarding:
    """One client's connections."""

    def __init__(self, channels: Channels, place: Place, node: PodStreams) -> None:
        self._channels, self._place, self._node = channels, place, node
        # By the channel of their data.
        self._writers: dict[int, asyncio.StreamWriter] = {}

    async def run(self, ports: Sequence[int]) -> None:
        """Forward until the client leaves, or every connection has ended. Raises ConnectionResetError."""
        readers: dict[int, asyncio.StreamReader] = {}
        try:
            for channel, port in zip(range(0, 2 * len(ports), 2), ports, strict=True):
                reader = await self._open(channel, port)
                if reader is not None:
                    readers[channel] = reader
            await first_of(self._listen(), self._copy_all(readers))
        finally:
            for writer in self._writers.values():
                writer.close()

    async def _open(self, channel: int, port: int) -> asyncio.StreamReader | None:
        for each in (channel, channel + 1):
            await self._channels.send(each, port.to_bytes(2, "little"))
        try:
            reader, writer = await self._node.connected(self._place, port)
        except (NotRunning, OSError) as error:
            text = f"error forwarding port {port} to pod {self._place.uid}, uid : {error}"
            await self._channels.send(channel + 1, text.encode())
            return None
        self._writers[channel] = writer
        return reader

    async def _listen(self) -> None:
        async for channel, data in self._channels:
            writer = self._writers.get(channel)
            if writer is not None:
                # Whether the other side still reads is seen when it is read from.
                with suppress(ConnectionError):
                    writer.write(data)
                    await writer.drain()

    async def _copy_all(self, readers: dict[int, asyncio.StreamReader]) -> None:
        async with asyncio.TaskGroup() as group:
            for channel, reader in readers.items():
                group.create_task(self._copy(channel, reader))

    async def _copy(self, channel: int, reader: asyncio.StreamReader) -> None:
        while data := await _read(reader):
            await self._channels.send(channel, data)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next piece; empty at the end, whichever way it ends."""
    try:
        return await reader.read(CHUNK)
    except ConnectionError:
        return b""
