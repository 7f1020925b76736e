"""A command in a container, over a WebSocket: one byte of channel, then data.

v5 of the protocol can close standard input; v4 cannot, and is what servers before 1.30 speak.
"""

from enum import IntEnum
from typing import Self

import msgspec

from gangline.kube.errors import KubeError, Status, StreamBroken, error_from_status
from gangline.kube.transport.api import WebSocket

CHANNEL_V4, CHANNEL_V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
EXEC_PROTOCOLS = (CHANNEL_V5, CHANNEL_V4)

FRAME_BYTES = 32 * 1024
"""Servers read frames into a buffer; small ones make them all happy."""


class Channel(IntEnum):
    """Where a frame belongs."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255


class ExecResult(msgspec.Struct, frozen=True):
    """A command that has ended, and what it said."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ExecSession:
    """A running command. Iterate to the end for its output and its exit code.

    Read while you write: a command whose output nobody takes stops reading, and then writing stops too. Leaving
    the block that gave the session closes the connection; what becomes of the command is up to the container.
    """

    def __init__(self, frames: WebSocket) -> None:
        self._frames = frames
        self._incoming = aiter(frames)
        self._status: Status | None = None

    @property
    def exit_code(self) -> int | None:
        """None until the output has been read to its end."""
        return None if self._status is None else exit_code(self._status)

    def __aiter__(self) -> Self:
        """Pieces of STDOUT and STDERR as they come, until the command ends.

        Raises `ApiError` when the command could not be run, and `StreamBroken` when the connection ends before
        the command is known to have ended.
        """
        return self

    async def __anext__(self) -> tuple[Channel, bytes]:
        while self._status is None:
            frame = await anext(self._incoming, None)
            if frame is None:
                raise StreamBroken("exec: the connection ended before the command did")
            # Empty ones are sent too: the first says that the connection stands.
            if len(frame) < 2:
                continue
            if frame[0] in (Channel.STDOUT, Channel.STDERR):
                return Channel(frame[0]), frame[1:]
            if frame[0] == Channel.ERROR:
                # Sent after all output. What the server does with the connection then is of no interest.
                self._status = decoded_status(frame[1:])
        exit_code(self._status)
        raise StopAsyncIteration

    async def write(self, data: bytes) -> None:
        """To standard input. Raises `StreamBroken` when the connection is gone."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._frames.send(bytes([Channel.STDIN]) + data[start : start + FRAME_BYTES])

    async def close_stdin(self) -> None:
        """No more input. Raises `KubeError` if the server is too old to pass that on."""
        self.require_stdin_close()
        await self._frames.send(bytes([Channel.CLOSE, Channel.STDIN]))

    def require_stdin_close(self) -> None:
        """Raise the `KubeError` that `close_stdin` would."""
        spoken = self._frames.protocol or "no version"
        if spoken != CHANNEL_V5:
            raise KubeError(
                f"exec: standard input cannot be closed: that takes {CHANNEL_V5}, the server speaks {spoken}"
            )

    async def resize(self, width: int, height: int) -> None:
        """Tell the terminal of a `tty` session how large it is."""
        size = msgspec.json.encode({"Width": width, "Height": height})
        await self._frames.send(bytes([Channel.RESIZE]) + size)


def decoded_status(data: bytes) -> Status:
    """What the error channel says at the end. Raises `StreamBroken`."""
    try:
        return msgspec.json.decode(data, type=Status)
    except msgspec.DecodeError as error:
        raise StreamBroken(f"exec: the end cannot be read: {error}") from error


def exit_code(status: Status) -> int:
    """The exit code in a Status; raises the `ApiError` it is when the command did not even run."""
    if status.status == "Success":
        return 0
    for cause in status.details.causes:
        if cause.reason == "ExitCode" and cause.message.lstrip("-").isdecimal():
            return int(cause.message)
    raise error_from_status(status if status.code else msgspec.structs.replace(status, code=500))


PORT_FORWARD_PROTOCOLS = (CHANNEL_V4,)
"""The tunnelling protocol of newer servers carries SPDY; this one they all know."""

DATA_CHANNEL, ERROR_CHANNEL = 0, 1


class PortForward:
    """One byte stream to one port, both ways. Reading and writing may be two tasks.

    The connection to the port is made when this is, and errors of it are seen when reading. There is no half
    close: `close` ends both directions.
    """

    def __init__(self, frames: WebSocket, port: int) -> None:
        self._frames, self._port = frames, port
        # Each channel begins with its port number: how much of that is still to come.
        self._preamble = {DATA_CHANNEL: 2, ERROR_CHANNEL: 2}

    async def read(self) -> bytes:
        """The next piece; empty when the other side has closed. Raises `StreamBroken` when forwarding failed."""
        async for frame in self._frames:
            if not frame or frame[0] not in self._preamble:
                continue
            channel, data = frame[0], frame[1:]
            skipped = min(self._preamble[channel], len(data))
            self._preamble[channel] -= skipped
            payload = data[skipped:]
            if payload and channel == ERROR_CHANNEL:
                raise StreamBroken(f"port {self._port}: {payload.decode(errors='replace').strip()}")
            if payload:
                return payload
        return b""

    async def write(self, data: bytes) -> None:
        """Raises `StreamBroken` when the connection is gone."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._frames.send(bytes([DATA_CHANNEL]) + data[start : start + FRAME_BYTES])

    async def close(self) -> None:
        """End both directions. Idempotent."""
        await self._frames.close()
