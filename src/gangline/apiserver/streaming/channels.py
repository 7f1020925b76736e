"""The channel protocol of `kubectl exec`: several streams in one WebSocket.

The first byte of a message is its channel, the rest is data.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Self

import msgspec
from aiohttp import WSMsgType, web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CLOSE_TIMEOUT = 2.0
"""Seconds that a client has to complete the closing handshake."""

SUCCESS_STATUS: JSON = {"metadata": {}, "status": "Success"}


class Channels:
    """The server's side of a connection. Iterating gives the client's messages and ends when the client disconnects."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @classmethod
    async def accept(cls, http: web.BaseRequest, protocols: Sequence[str]) -> Self:
        """Upgrade the connection, with the first of our protocols that the client offers. Raises `StatusError`."""
        check_upgrade(http, protocols)
        socket = web.WebSocketResponse(protocols=protocols, timeout=CLOSE_TIMEOUT, compress=False)
        await socket.prepare(http)
        return cls(socket)

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        return self._frames()

    async def _frames(self) -> AsyncIterator[tuple[int, bytes]]:
        async for message in self._socket:
            if message.type is WSMsgType.BINARY and message.data:
                yield message.data[0], message.data[1:]
            elif message.type is WSMsgType.TEXT and message.data:
                data = message.data.encode()
                yield data[0], data[1:]

    async def send(self, channel: int, data: bytes) -> None:
        """Raises `ConnectionResetError` when the client has disconnected."""
        await self._socket.send_bytes(bytes((channel,)) + data)

    async def send_status(self, status: JSON) -> None:
        """Send the final Status; no message follows it."""
        await self.send(ERROR, msgspec.json.encode(status))

    async def close(self) -> None:
        await self._socket.close()


def check_upgrade(http: web.BaseRequest, protocols: Sequence[str]) -> None:
    """Check that a request can be upgraded to a WebSocket with one of these protocols. Raises `StatusError` (400)."""
    upgrade = http.headers.get("Upgrade", "")
    if not upgrade:
        raise apierrors.bad_request("Upgrade request required")
    offered = [word.strip() for line in http.headers.getall("Sec-WebSocket-Protocol", ()) for word in line.split(",")]
    if upgrade.lower() != "websocket" or not set(offered) & set(protocols):
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
