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
from gangline.kube.transport.raw.http1 import ResponseHead, take_chunk, take_head
from gangline.kube.transport.raw.tls_socket import TlsSocket

MAX_BUFFERED_BYTES = 1024 * 1024
"""So many bytes wait here at most for somebody to take them; then the server has to wait."""

READ_INTERVAL = 0.003
"""Seconds between two looks at what has come. The first event after a silence is not held up by it."""


class WatchStream:
    """One request, and an answer whose body is still arriving. Close it."""

    def __init__(self, connected: socket.socket, what: str, idle: timedelta | None) -> None:
        """`what` is asked, in words for errors. Silence longer than `idle` ends it."""
        self._loop = asyncio.get_running_loop()
        self._socket = TlsSocket(connected, self, rest=READ_INTERVAL)
        self._request_text, self._idle_seconds = what, idle.total_seconds() if idle is not None else None
        self._buffer = bytearray()
        self._head: ResponseHead | None = None
        # Of the body: what nobody has taken yet, how much that is, and whether no more will come.
        self._body_parts: list[bytes] = []
        self._buffered_bytes, self._remaining_bytes = 0, 0
        self._ended = False
        self._failure: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._last_received = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    async def send(self, text: bytes) -> Response:
        """Send it, and wait for the head of the answer; if that is an error, for all of it. Raises `Unreachable`."""
        self._socket.write(text)
        while self._head is None:
            self._raise_failure(Unreachable)
            await self._wait_for_data()
        head, body = self._head, b""
        if head.status >= 300:
            while not self._ended:
                self._raise_failure(Unreachable)
                await self._wait_for_data()
            body = self._take_body()
        self._last_received = self._loop.time()
        self._check_idle()
        self.response = Response(head.status, body, head.headers)
        return self.response

    def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._socket.abort()

    # The body

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._body_parts:
            if self._ended:
                raise StopAsyncIteration
            self._raise_failure(StreamBroken)
            await self._wait_for_data()
        return self._take_body()

    def _take_body(self) -> bytes:
        taken, self._body_parts = b"".join(self._body_parts), []
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            # Until now it was not the server that was silent.
            self._last_received = self._loop.time()
            self._socket.resume()
        self._buffered_bytes = 0
        return taken

    def _raise_failure(self, kind: type[Unreachable | StreamBroken]) -> None:
        if self._failure is not None:
            raise kind(f"{self._request_text}: {self._failure}")

    async def _wait_for_data(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The connection

    def data_received(self, data: bytes) -> None:
        self._last_received = self._loop.time()
        self._buffer += data
        try:
            self._parse()
        except ValueError as error:
            self._fail(f"an answer that cannot be read: {error}")
            self._socket.abort()
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._socket.pause()

    def connection_lost(self, error: Exception | None) -> None:
        head = self._head
        if head is not None and head.content_length is None and not head.chunked and error is None:
            self._finish()
        elif not self._ended:
            self._fail(f"cut off: {error or 'the server closed the connection'}")

    def _parse(self) -> None:
        head = self._head
        if head is None:
            head = self._head = take_head(self._buffer)
            if head is None:
                return
            self._remaining_bytes = head.content_length or 0
            if head.content_length == 0:
                self._finish()
            self._wake()
        if head.chunked:
            self._parse_chunks()
        elif self._buffer:
            self._parse_plain(head.content_length)

    def _parse_chunks(self) -> None:
        while not self._ended and (chunk := take_chunk(self._buffer)) is not None:
            if chunk:
                self._append(chunk)
            else:
                self._finish()

    def _parse_plain(self, length: int | None) -> None:
        """A body that is not in chunks: of a known length, or what comes until the connection is closed."""
        found = bytes(self._buffer) if length is None else bytes(self._buffer[: self._remaining_bytes])
        self._buffer.clear()
        self._remaining_bytes -= len(found)
        self._append(found)
        if length is not None and self._remaining_bytes <= 0:
            self._finish()

    def _append(self, found: bytes) -> None:
        self._body_parts.append(found)
        self._buffered_bytes += len(found)
        self._wake()

    def _finish(self) -> None:
        self._ended = True
        self._wake()

    def _fail(self, why: str) -> None:
        self._failure = why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Silence

    def _check_idle(self) -> None:
        """One timer for all silences: it looks when the last one would have been too long."""
        if self._idle_seconds is None or self._ended:
            return
        left = self._last_received + self._idle_seconds - self._loop.time()
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._check_idle)
        elif self._buffered_bytes > MAX_BUFFERED_BYTES:
            # It has to wait for whoever reads here.
            self._idle_timer = self._loop.call_later(self._idle_seconds, self._check_idle)
        else:
            self._fail("nothing arrived for a while, the connection may be dead")
            self._socket.abort()
