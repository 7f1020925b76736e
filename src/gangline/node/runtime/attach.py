"""A connection to the input and the outputs of a running container, through its shim."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from gangline.kube.podstreams import ContainerNotRunning
from gangline.node.runtime.shim_attach import CLOSE_INPUT, INPUT, RESIZE, frame, split_frames

CHUNK_BYTES = 2**15


class AttachedRun:
    """A client of a container's shim. What it writes, other clients do not see; what the program prints, all do.

    A plain socket, without a transport: a transport drops what it has not read when a write is refused, and a program
    that ends before all of its input has arrived refuses it after its last output.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._loop = connection, asyncio.get_running_loop()

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Parts of output 1 (stdout) or 2 (stderr) as the program prints them, until the container ends."""
        received = b""
        with suppress(ConnectionError):
            while data := await self._loop.sock_recv(self._socket, CHUNK_BYTES):
                frames, received = split_frames(received + data)
                for each in frames:
                    yield each

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            await self._send(INPUT, data[start : start + CHUNK_BYTES])

    async def close_input(self) -> None:
        await self._send(CLOSE_INPUT, b"")

    async def resize(self, width: int, height: int) -> None:
        await self._send(RESIZE, width.to_bytes(2, "big") + height.to_bytes(2, "big"))

    async def _send(self, kind: int, data: bytes) -> None:
        # A container that has ended takes nothing any more; its outputs end, too.
        with suppress(ConnectionError):
            await self._loop.sock_sendall(self._socket, frame(kind, data))


@asynccontextmanager
async def attach_run(shim_socket: str) -> AsyncIterator[AttachedRun]:
    """Attach to a run that has an input or a terminal, until the block ends. Raises `ContainerNotRunning`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(0)
        try:
            await asyncio.get_running_loop().sock_connect(connection, shim_socket)
        except OSError as error:
            raise ContainerNotRunning(f"the container has ended: {error.strerror}") from error
        yield AttachedRun(connection)
