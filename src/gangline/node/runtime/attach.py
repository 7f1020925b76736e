"""A connection to the input and the outputs of a running container, through its shim."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from gangline.kube.podstreams import ContainerNotRunning
from gangline.node.runtime.shim_attach import CLOSE_INPUT, HEADER_BYTES, INPUT, RESIZE, frame

CHUNK_BYTES = 2**15


class AttachedRun:
    """A client of a container's shim. What it writes, other clients do not see; what the program prints, all do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Parts of output 1 (stdout) or 2 (stderr) as the program prints them, until the container ends."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await self._reader.readexactly(HEADER_BYTES)
                yield header[0], await self._reader.readexactly(int.from_bytes(header[1:], "big"))

    async def write(self, data: bytes) -> None:
        # A container that has ended takes nothing any more; its outputs end, too.
        with suppress(ConnectionError):
            for start in range(0, len(data), CHUNK_BYTES):
                self._writer.write(frame(INPUT, data[start : start + CHUNK_BYTES]))
                await self._writer.drain()

    def close_input(self) -> None:
        self._writer.write(frame(CLOSE_INPUT, b""))

    def resize(self, width: int, height: int) -> None:
        self._writer.write(frame(RESIZE, width.to_bytes(2, "big") + height.to_bytes(2, "big")))


@asynccontextmanager
async def attach_run(shim_socket: str) -> AsyncIterator[AttachedRun]:
    """Attach to a run that has an input or a terminal, until the block ends. Raises `ContainerNotRunning`."""
    try:
        reader, writer = await asyncio.open_unix_connection(shim_socket)
    except OSError as error:
        raise ContainerNotRunning(f"the container has ended: {error.strerror}") from error
    try:
        yield AttachedRun(reader, writer)
    finally:
        writer.close()
