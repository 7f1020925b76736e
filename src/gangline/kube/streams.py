"""Exec and port-forward over a WebSocket: each frame is one byte for the channel, then data.

Version 5 of the protocol can close standard input. Version 4, which servers before 1.30 speak, cannot.
"""

from enum import IntEnum
from typing import Self

import msgspec

from gangline.kube.errors import KubeError, Status, StreamBroken, error_from_status
from gangline.kube.transport.api import WebSocket

CHANNEL_V4, CHANNEL_V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
EXEC_PROTOCOLS = (CHANNEL_V5, CHANNEL_V4)

FRAME_BYTES = 32 * 1024
"""The most bytes of data per frame; larger frames may not fit the buffers of servers."""


class Channel(IntEnum):
    """The channel of a frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255


class ExecResult(msgspec.Struct, frozen=True):
    """The exit code and the output of a command that has ended."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ExecSession:
    """A running command. Iterate to the end for its output and its exit code.

    Read while writing: a command whose output is not read stops reading its input, and then `write` blocks. Leaving the
    block of `exec` closes the connection; whether the command ends then depends on the container.
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
        """Parts of STDOUT and STDERR as they arrive, until the command ends.

        Raises `ApiError` if the command could not be run, and `StreamBroken` if the connection ends before the exit
        status was received.
        """
        return self

    async def __anext__(self) -> tuple[Channel, bytes]:
        while self._status is None:
            frame = await anext(self._incoming, None)
            if frame is None:
                raise StreamBroken("exec: the connection ended before the command did")
            # Empty frames occur: the first one confirms the connection.
            if len(frame) < 2:
                continue
            if frame[0] in (Channel.STDOUT, Channel.STDERR):
                return Channel(frame[0]), frame[1:]
            if frame[0] == Channel.ERROR:
                # Sent after all output, so the rest of the connection does not matter.
                self._status = decoded_status(frame[1:])
        exit_code(self._status)
        raise StopAsyncIteration

    async def write(self, data: bytes) -> None:
        """Write to standard input. Raises `StreamBroken` when the connection is lost."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._frames.send(bytes([Channel.STDIN]) + data[start : start + FRAME_BYTES])

    async def close_stdin(self) -> None:
        """Close standard input. Raises `KubeError` if the server is too old for that."""
        self.require_stdin_close()
        await self._frames.send(bytes([Channel.CLOSE, Channel.STDIN]))

    def require_stdin_close(self) -> None:
        """Raise the `KubeError` of `close_stdin` if the server cannot close standard input."""
        protocol = self._frames.protocol or "no version"
        if protocol != CHANNEL_V5:
            raise KubeError(
                f"exec: standard input cannot be closed: that takes {CHANNEL_V5}, the server speaks {protocol}"
            )

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal of a `tty` session."""
        size = msgspec.json.encode({"Width": width, "Height": height})
        await self._frames.send(bytes([Channel.RESIZE]) + size)


def decoded_status(data: bytes) -> Status:
    """The final Status, from the error channel. Raises `StreamBroken`."""
    try:
        return msgspec.json.decode(data, type=Status)
    except msgspec.DecodeError as error:
        raise StreamBroken(f"exec: the end cannot be read: {error}") from error


def exit_code(status: Status) -> int:
    """The exit code in a Status. Raises the Status as `ApiError` if the command did not run."""
    if status.status == "Success":
        return 0
    for cause in status.details.causes:
        if cause.reason == "ExitCode" and cause.message.lstrip("-").isdecimal():
            return int(cause.message)
    raise error_from_status(status if status.code else msgspec.structs.replace(status, code=500))


PORT_FORWARD_PROTOCOLS = (CHANNEL_V4,)
"""All servers know this protocol; the tunnelling protocol of newer ones carries SPDY."""

DATA_CHANNEL, ERROR_CHANNEL = 0, 1


class PortForward:
    """A byte stream in both directions to one port. One task may read while another writes.

    Errors of the connection to the port are raised by `read`. There is no half-close: `close` ends both directions.
    """

    def __init__(self, frames: WebSocket, port: int) -> None:
        self._frames, self._port = frames, port
        # Each channel begins with its port number: the bytes of it that have not arrived yet, by channel.
        self._preamble = {DATA_CHANNEL: 2, ERROR_CHANNEL: 2}

    async def read(self) -> bytes:
        """The next data; empty when the peer has closed. Raises `StreamBroken` when forwarding failed."""
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
        """Send data. Raises `StreamBroken` when the connection is lost."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._frames.send(bytes([DATA_CHANNEL]) + data[start : start + FRAME_BYTES])

    async def close(self) -> None:
        """Close both directions. Idempotent."""
        await self._frames.close()
