"""The channels of `kubectl exec` and `kubectl attach`: input, output, errors and terminal size in one connection.

In a WebSocket the first byte of a message is its channel and the rest is data; in the oldest form messages are base64
text. In a SPDY connection every channel is a stream.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing, suppress
from typing import Protocol, Self

import msgspec
from aiohttp import WSMsgType, web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.streaming.byte_streams import CLOSE_TIMEOUT
from gangline.apiserver.streaming.spdy import StreamData, StreamReset, SynStream
from gangline.apiserver.streaming.spdy_connection import SpdyConnection, StreamEvent, accept_spdy, spdy_protocol

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
BASE64_V1, BASE64_V4 = "base64.channel.k8s.io", "v4.base64.channel.k8s.io"
WEBSOCKET_PROTOCOLS = (V5, V4, "channel.k8s.io", BASE64_V1, BASE64_V4)
SPDY_PROTOCOLS = (V5, V4, "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
STATUS_PROTOCOLS = (V5, V4, BASE64_V4)
"""The protocols that end with a Status. Others end with the text of an error, or nothing."""
RESIZE_PROTOCOLS = (V5, V4, "v3.channel.k8s.io")
"""The protocols of SPDY that have a stream for the size of the terminal."""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
STREAM_TYPES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
STREAM_SECONDS = 30.0
"""How long a client has to open its streams, as of kubelet."""

SUCCESS_STATUS: JSON = {"metadata": {}, "status": "Success"}


class Channels(Protocol):
    """The server's side of a connection."""

    @property
    def response(self) -> web.StreamResponse: ...

    async def open(self) -> None:
        """Wait until the client can take output. Raises `ConnectionResetError`."""
        ...

    def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        """The client's messages by channel, until the client disconnects. `CLOSE` names a channel that has ended."""
        ...

    async def send(self, channel: int, data: bytes) -> None:
        """Raises `ConnectionResetError` when the client has disconnected."""
        ...

    async def send_status(self, status: JSON) -> None:
        """Send the final Status; no message follows it."""
        ...

    async def close(self) -> None: ...


class WebSocketChannels:
    """The channels of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, first: int | None = None) -> None:
        """`first` is the channel on which an empty message confirms the connection."""
        self._socket, self._first = socket, first
        self._protocol = socket.ws_protocol or ""
        self._is_text = self._protocol in (BASE64_V1, BASE64_V4)

    @classmethod
    async def accept(cls, http: web.BaseRequest, protocols: Sequence[str], first: int | None = None) -> Self:
        """Upgrade the connection, with the first of our protocols that the client offers, or without one.

        Raises `StatusError`.
        """
        check_upgrade(http, protocols)
        socket = web.WebSocketResponse(protocols=protocols, timeout=CLOSE_TIMEOUT, compress=False)
        await socket.prepare(http)
        return cls(socket, first)

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    async def open(self) -> None:
        if self._first is not None:
            await self.send(self._first, b"")

    async def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        async for message in self._socket:
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY) or not data:
                continue
            if not self._is_text:
                yield data[0], data[1:]
                continue
            with suppress(binascii.Error):
                yield data[0] - ord("0"), base64.b64decode(data[1:])

    async def send(self, channel: int, data: bytes) -> None:
        if self._is_text:
            await self._socket.send_str(f"{channel}{base64.b64encode(data).decode()}")
        else:
            await self._socket.send_bytes(bytes((channel,)) + data)

    async def send_status(self, status: JSON) -> None:
        data = encoded_status(status, self._protocol)
        if data:
            await self.send(ERROR, data)

    async def close(self) -> None:
        await self._socket.close()


class SpdyChannels:
    """The channels of a SPDY connection."""

    def __init__(self, connection: SpdyConnection, protocol: str, expected: Collection[int]) -> None:
        """`expected` are the channels for which the client opens a stream."""
        self._connection, self._protocol, self._expected = connection, protocol, set(expected)
        # Channels by stream, streams by channel, and what arrived before all streams were open.
        self._channels: dict[int, int] = {}
        self._streams: dict[int, int] = {}
        self._early: list[StreamEvent] = []

    @classmethod
    async def accept(cls, http: web.BaseRequest, channels: Collection[int], *, tty: bool) -> Self:
        """Upgrade the connection. Raises `StatusError`."""
        protocol = spdy_protocol(http, SPDY_PROTOCOLS)
        resize = [RESIZE] if tty and protocol in RESIZE_PROTOCOLS else []
        return cls(await accept_spdy(http, protocol), protocol, {*channels, ERROR, *resize})

    @property
    def response(self) -> web.StreamResponse:
        return self._connection.response

    async def open(self) -> None:
        """Wait until the client has opened all streams. Raises `ConnectionResetError` if it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STREAM_SECONDS), aclosing(self._connection.events()) as events:
                async for event in events:
                    if isinstance(event, SynStream):
                        await self._open_stream(event)
                    else:
                        self._early.append(event)
                    if self._expected <= self._streams.keys():
                        return
        raise ConnectionResetError("the client has not opened all streams")

    async def _open_stream(self, event: SynStream) -> None:
        channel = STREAM_TYPES.get(event.headers.get("streamtype", ""))
        if channel not in self._expected or channel in self._streams:
            await self._connection.reset(event.stream)
            return
        self._channels[event.stream], self._streams[channel] = channel, event.stream

    async def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        while self._early:
            for message in self._event_messages(self._early.pop(0)):
                yield message
        async with aclosing(self._connection.events()) as events:
            async for event in events:
                for message in self._event_messages(event):
                    yield message

    def _event_messages(self, event: StreamEvent) -> list[tuple[int, bytes]]:
        channel = self._channels.get(event.stream)
        if channel is None:
            return []
        end = (CLOSE, bytes((channel,)))
        match event:
            case StreamData():
                data = [(channel, event.data)] if event.data else []
                return [*data, end] if event.fin else data
            case StreamReset():
                return [end]
            case SynStream():
                return []

    async def send(self, channel: int, data: bytes) -> None:
        if channel in self._streams:
            await self._connection.send(self._streams[channel], data)

    async def send_status(self, status: JSON) -> None:
        await self.send(ERROR, encoded_status(status, self._protocol))

    async def close(self) -> None:
        with suppress(ConnectionResetError):
            for channel in (STDOUT, STDERR, ERROR):
                if channel in self._streams:
                    await self._connection.finish(self._streams[channel])
        await self._connection.close()


def encoded_status(status: JSON, protocol: str) -> bytes:
    """The end of a command, as a protocol has it on the error channel. Empty: nothing is sent."""
    if protocol in STATUS_PROTOCOLS:
        return msgspec.json.encode(status)
    return b"" if status["status"] == "Success" else str(status.get("message", "")).encode()


def check_upgrade(http: web.BaseRequest, protocols: Sequence[str]) -> None:
    """Check that a request can be upgraded to a WebSocket with one of these protocols, or with none.

    Raises `StatusError` (400).
    """
    upgrade = http.headers.get("Upgrade", "")
    if not upgrade:
        raise apierrors.bad_request("Upgrade request required")
    offered = [word.strip() for line in http.headers.getall("Sec-WebSocket-Protocol", ()) for word in line.split(",")]
    if upgrade.lower() != "websocket" or (offered and not set(offered) & set(protocols)):
        client = f"[{' '.join(offered)}]" if upgrade.lower() == "websocket" else upgrade
        raise apierrors.bad_request(
            f"unable to upgrade: unable to negotiate protocol: client supports {client}, "
            f"server accepts WebSocket with [{' '.join(protocols)}]"
        )


def exit_status(code: int) -> JSON:
    """The Status of a command that has exited."""
    if code == 0:
        return SUCCESS_STATUS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
