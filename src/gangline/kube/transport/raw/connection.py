"""One kept connection that carries one request at a time, and the answer to it: HTTP/1.1 and nothing else."""

import asyncio
import socket

from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Response
from gangline.kube.transport.raw.http1 import ResponseHead, take_chunk, take_head
from gangline.kube.transport.raw.tls_socket import TlsSocket


class RawConnection:
    """One connection: one request at a time, and the answer to it."""

    def __init__(self, connected: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = TlsSocket(connected, self)
        self.last_used = self._loop.time()
        # When the answer has to be there.
        self.deadline = 0.0
        self._pending: asyncio.Future[Response] | None = None
        self._buffer = bytearray()
        self._body_parts: list[bytes] = []
        # Once the head of an answer is there.
        self._head: ResponseHead | None = None
        self._keep_alive = True

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error is not None else "the server closed the connection")

    @property
    def is_open(self) -> bool:
        return self._keep_alive and not self._socket.is_closing()

    def send(self, text: bytes) -> asyncio.Future[Response]:
        """Send it. The lane must be open."""
        self._pending = self._loop.create_future()
        self._head = None
        self._socket.write(text)
        return self._pending

    def time_out(self) -> None:
        """The answer is `Unreachable`, and the connection is closed."""
        self._fail("no answer in time")
        self.close()

    def close(self) -> None:
        self._socket.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            response = self._parse()
        except ValueError as error:
            self._keep_alive = False
            self._fail(f"an answer that cannot be read: {error}")
            self.close()
            return
        if response is not None:
            answer = self._take_pending()
            if answer is not None:
                answer.set_result(response)

    def _fail(self, why: str) -> None:
        answer = self._take_pending()
        if answer is not None:
            answer.set_exception(Unreachable(why))

    def _take_pending(self) -> asyncio.Future[Response] | None:
        """Whoever still waits for the answer."""
        answer, self._pending = self._pending, None
        return None if answer is None or answer.done() else answer

    def _parse(self) -> Response | None:
        """The answer, once all of it is there. Raises ValueError."""
        head = self._head
        if head is None:
            head = self._head = take_head(self._buffer)
            if head is None:
                return None
            self._keep_alive = head.keep_alive
            if head.content_length is None and not head.chunked:
                raise ValueError("it does not say how long it is")
        body = self._take_chunks() if head.content_length is None else self._take_counted(head.content_length)
        if body is None:
            return None
        self._head = None
        return Response(head.status, body, head.headers)

    def _take_counted(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _take_chunks(self) -> bytes | None:
        while True:
            chunk = take_chunk(self._buffer)
            if chunk is None:
                return None
            if not chunk:
                body, self._body_parts = b"".join(self._body_parts), []
                return body
            self._body_parts.append(chunk)
