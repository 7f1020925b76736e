"""A connection to a port of a pod, over a WebSocket: one byte of channel, then data."""

from gangline.kube.errors import StreamBroken
from gangline.kube.streams import CHANNEL_V4, FRAME_BYTES
from gangline.kube.transport.api import WebSocket

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
