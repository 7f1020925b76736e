"""A watch on a connection of its own: a response whose body is read while it arrives.

Events arrive one by one, each in its own chunk, TLS record and packet, hundreds per second under load, so the code that
runs per event is kept short.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Self

from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Response
from gangline.kube.transport.http1 import ResponseParser
from gangline.kube.transport.raw.tls_socket import TlsSocket

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes buffered for the reader; beyond that nothing is read from the socket, so the server has to wait."""

READ_INTERVAL = 0.003
"""Seconds between two reads of the socket. The first event after a silence is not delayed by it."""


class WatchStream:
    """One request, and a response whose body is still arriving. The caller must close it."""

    def __init__(self, connected: socket.socket, request_text: str, idle: timedelta | None) -> None:
        """`request_text` names the request in errors. Silence longer than `idle` breaks the stream."""
        self._loop = asyncio.get_running_loop()
        self._socket = TlsSocket(connected, self, rest=READ_INTERVAL)
        self._request_text, self._idle_seconds = request_text, idle.total_seconds() if idle is not None else None
        self._parser = ResponseParser()
        # Parts of the body that the reader has not taken yet, and their size.
        self._body_parts: list[bytes] = []
        self._buffered_bytes = 0
        # Whether the body is complete.
        self._ended = False
        self._failure: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._last_received = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    async def send(self, text: bytes) -> Response:
        """Send the encoded request and wait for the head of its response. Raises `Unreachable`.

        The response has a body only if its status is an error; other bodies are read with `chunks`.
        """
        self._socket.write(text)
        while (head := self._parser.head) is None:
            self._raise_failure(Unreachable)
            await self._wait_for_data()
        body = b""
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

    # The reader's side

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
        body, self._body_parts = b"".join(self._body_parts), []
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            # Reading was paused until now: the server was not silent.
            self._last_received = self._loop.time()
            self._socket.resume()
        self._buffered_bytes = 0
        return body

    def _raise_failure(self, error_type: type[Unreachable | StreamBroken]) -> None:
        if self._failure is not None:
            raise error_type(f"{self._request_text}: {self._failure}")

    async def _wait_for_data(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The socket's side

    def data_received(self, data: bytes) -> None:
        self._last_received = self._loop.time()
        try:
            self._parser.feed(data)
        except ValueError as error:
            self._fail(f"an answer that cannot be read: {error}")
            self._socket.abort()
        self._buffer_body()
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._socket.pause()

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended or self._failure is not None:
            return
        if error is None and self._parser.close():
            self._finish()
        else:
            self._fail(f"cut off: {error or 'the server closed the connection'}")

    def _buffer_body(self) -> None:
        """Move what the parser has of the body to the reader's buffer."""
        if part := self._parser.take_body():
            self._body_parts.append(part)
            self._buffered_bytes += len(part)
        if self._parser.complete:
            self._finish()
        elif self._parser.head is not None:
            self._wake()

    def _finish(self) -> None:
        self._ended = True
        self._wake()

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Silence

    def _check_idle(self) -> None:
        """Break the stream if the server has been silent for too long; else look again when it would have been.

        One timer serves all silences, so an event costs no timer.
        """
        if self._idle_seconds is None or self._ended:
            return
        remaining = self._last_received + self._idle_seconds - self._loop.time()
        if remaining > 0:
            self._idle_timer = self._loop.call_later(remaining, self._check_idle)
        elif self._buffered_bytes > MAX_BUFFERED_BYTES:
            # Reading is paused: the server waits for the reader.
            self._idle_timer = self._loop.call_later(self._idle_seconds, self._check_idle)
        else:
            self._fail("nothing arrived for a while, the connection may be dead")
            self._socket.abort()
