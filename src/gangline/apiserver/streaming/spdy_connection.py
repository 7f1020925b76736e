"""The server's side of a SPDY connection: the events of all its streams, in the order in which they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from aiohttp import web

from gangline.apiserver.errors import StatusError
from gangline.apiserver.streaming.byte_streams import CLOSE_TIMEOUT, ByteStream, UpgradedStream
from gangline.apiserver.streaming.spdy import (
    FrameDecoder,
    FrameEncoder,
    GoAway,
    Ping,
    SpdyError,
    StreamData,
    StreamReset,
    SynStream,
)

SPDY_UPGRADE = "SPDY/3.1"
PROTOCOL_HEADER = "X-Stream-Protocol-Version"
CHUNK_BYTES = 2**15
"""The most bytes in a frame that is sent: other streams wait meanwhile."""

StreamEvent = SynStream | StreamData | StreamReset


class SpdyConnection:
    """A connection on which the client opens streams. One task iterates; any may send.

    Nothing is buffered: while the events are not read, the client waits.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._decoder, self._encoder = FrameDecoder(), FrameEncoder()

    @property
    def response(self) -> web.StreamResponse:
        return self._stream.response

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """What happens to streams, until the client disconnects or sends what is no SPDY. New streams are accepted."""
        with suppress(SpdyError, ConnectionResetError):
            while data := await self._stream.read():
                for frame in self._decoder.feed(data):
                    match frame:
                        case SynStream():
                            await self._stream.write(self._encoder.syn_reply(frame.stream))
                            yield frame
                        case StreamData() | StreamReset():
                            yield frame
                        case Ping():
                            await self._stream.write(self._encoder.ping(frame.id))
                        case GoAway():
                            return
                        case _:
                            pass

    async def send(self, stream: int, data: bytes) -> None:
        """Send data on a stream. Raises `ConnectionResetError`."""
        for start in range(0, len(data), CHUNK_BYTES):
            await self._stream.write(self._encoder.data(stream, data[start : start + CHUNK_BYTES]))

    async def finish(self, stream: int) -> None:
        """Send no more on a stream. Raises `ConnectionResetError`."""
        await self._stream.write(self._encoder.data(stream, b"", fin=True))

    async def reset(self, stream: int) -> None:
        """Give a stream up. Raises `ConnectionResetError`."""
        await self._stream.write(self._encoder.reset(stream))

    async def close(self) -> None:
        """Wait a moment for the client to disconnect, which it does when it has read all, and end the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                async for _ in self.events():
                    pass
        await self._stream.close()


def is_spdy_request(http: web.BaseRequest) -> bool:
    """Whether the client asks for an upgrade to SPDY."""
    return http.headers.get("Upgrade", "").lower() == SPDY_UPGRADE.lower()


def spdy_protocol(http: web.BaseRequest, protocols: Sequence[str]) -> str:
    """The first of the client's protocols that we know. Raises `StatusError` (403), as kubelet does."""
    lines = http.headers.getall(PROTOCOL_HEADER, [])
    offered = [word.strip() for line in lines for word in line.split(",")]
    if not offered:
        return ""
    for protocol in offered:
        if protocol in protocols:
            return protocol
    client, server = " ".join(offered), " ".join(protocols)
    why = f"unable to upgrade: unable to negotiate protocol: client supports [{client}], server accepts [{server}]"
    raise StatusError(403, why, reason="Forbidden")


async def accept_spdy(http: web.BaseRequest, protocol: str) -> SpdyConnection:
    """Upgrade a connection to SPDY with one of the protocols that streams follow."""
    headers = {"Upgrade": SPDY_UPGRADE, **({PROTOCOL_HEADER: protocol} if protocol else {})}
    return SpdyConnection(await UpgradedStream.accept(http, headers))
