"""An answer that goes on: a watch, read from a connection of its own as it comes.

Events come one by one, each in a chunk, a record and a packet of its own, hundreds a second when much happens; what is
done about one of them here is done for each of them.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Self

from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Response
from gangline.kube.transport.raw.http1 import Head, take_chunk, take_head
from gangline.kube.transport.raw.tls_socket import Wire

ENOUGH = 1024 * 1024
"""So many bytes wait here at most for somebody to take them; then the server has to wait."""

REST = 0.003
"""Seconds between two looks at what has come. The first event after a silence is not held up by it."""


class Flow:
    """One request, and an answer whose body is still arriving. Close it."""

    def __init__(self, connected: socket.socket, what: str, idle: timedelta | None) -> None:
        """`what` is asked, in words for errors. Silence longer than `idle` ends it."""
        self._loop = asyncio.get_running_loop()
        self._wire = Wire(connected, self, rest=REST)
        self._what, self._idle = what, idle.total_seconds() if idle is not None else None
        self._received = bytearray()
        self._head: Head | None = None
        # Of the body: what nobody has taken yet, how much that is, and whether no more will come.
        self._ready: list[bytes] = []
        self._size, self._left = 0, 0
        self._ended = False
        self._broken: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, text: bytes) -> Response:
        """Send it, and wait for the head of the answer; if that is an error, for all of it. Raises `Unreachable`."""
        self._wire.write(text)
        while self._head is None:
            self._told(Unreachable)
            await self._more()
        head, body = self._head, b""
        if head.status >= 300:
            while not self._ended:
                self._told(Unreachable)
                await self._more()
            body = self._taken()
        self._heard = self._loop.time()
        self._watch_over()
        self.response = Response(head.status, body, head.headers)
        return self.response

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wire.abort()

    # The body

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            self._told(StreamBroken)
            await self._more()
        return self._taken()

    def _taken(self) -> bytes:
        taken, self._ready = b"".join(self._ready), []
        if self._size > ENOUGH:
            # Until now it was not the server that was silent.
            self._heard = self._loop.time()
            self._wire.resume()
        self._size = 0
        return taken

    def _told(self, kind: type[Unreachable | StreamBroken]) -> None:
        if self._broken is not None:
            raise kind(f"{self._what}: {self._broken}")

    async def _more(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The connection

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._received += data
        try:
            self._read()
        except ValueError as error:
            self._break(f"an answer that cannot be read: {error}")
            self._wire.abort()
        if self._size > ENOUGH:
            self._wire.pause()

    def connection_lost(self, error: Exception | None) -> None:
        head = self._head
        if head is not None and head.length is None and not head.chunked and error is None:
            self._end()
        elif not self._ended:
            self._break(f"cut off: {error or 'the server closed the connection'}")

    def _read(self) -> None:
        head = self._head
        if head is None:
            head = self._head = take_head(self._received)
            if head is None:
                return
            self._left = head.length or 0
            if head.length == 0:
                self._end()
            self._wake()
        if head.chunked:
            self._read_chunks()
        elif self._received:
            self._read_plain(head.length)

    def _read_chunks(self) -> None:
        while not self._ended and (chunk := take_chunk(self._received)) is not None:
            if chunk:
                self._give(chunk)
            else:
                self._end()

    def _read_plain(self, length: int | None) -> None:
        """A body that is not in chunks: of a known length, or what comes until the connection is closed."""
        found = bytes(self._received) if length is None else bytes(self._received[: self._left])
        self._received.clear()
        self._left -= len(found)
        self._give(found)
        if length is not None and self._left <= 0:
            self._end()

    def _give(self, found: bytes) -> None:
        self._ready.append(found)
        self._size += len(found)
        self._wake()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _break(self, why: str) -> None:
        self._broken = why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Silence

    def _watch_over(self) -> None:
        """One timer for all silences: it looks when the last one would have been too long."""
        if self._idle is None or self._ended:
            return
        left = self._heard + self._idle - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch_over)
        elif self._size > ENOUGH:
            # It has to wait for whoever reads here.
            self._timer = self._loop.call_later(self._idle, self._watch_over)
        else:
            self._break("nothing arrived for a while, the connection may be dead")
            self._wire.abort()
