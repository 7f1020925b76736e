"""One kept connection that carries one request at a time, and the answer to it: HTTP/1.1 and nothing else."""

import asyncio
import socket

from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Response
from gangline.kube.transport.raw.http1 import Head, take_chunk, take_head
from gangline.kube.transport.raw.tls_socket import Wire


class Lane:
    """One connection: one request at a time, and the answer to it."""

    def __init__(self, connected: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = Wire(connected, self)
        self.used = self._loop.time()
        # When the answer has to be there.
        self.due = 0.0
        self._answer: asyncio.Future[Response] | None = None
        self._received = bytearray()
        self._parts: list[bytes] = []
        # Once the head of an answer is there.
        self._head: Head | None = None
        self._keeps = True

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error is not None else "the server closed the connection")

    @property
    def open(self) -> bool:
        return self._keeps and not self._wire.is_closing()

    def ask(self, text: bytes) -> asyncio.Future[Response]:
        """Send it. The lane must be open."""
        self._answer = self._loop.create_future()
        self._head = None
        self._wire.write(text)
        return self._answer

    def give_up(self) -> None:
        """The answer is `Unreachable`, and the connection is closed."""
        self._fail("no answer in time")
        self.close()

    def close(self) -> None:
        self._wire.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            response = self._read()
        except ValueError as error:
            self._keeps = False
            self._fail(f"an answer that cannot be read: {error}")
            self.close()
            return
        if response is not None:
            answer = self._over()
            if answer is not None:
                answer.set_result(response)

    def _fail(self, why: str) -> None:
        answer = self._over()
        if answer is not None:
            answer.set_exception(Unreachable(why))

    def _over(self) -> asyncio.Future[Response] | None:
        """Whoever still waits for the answer."""
        answer, self._answer = self._answer, None
        return None if answer is None or answer.done() else answer

    def _read(self) -> Response | None:
        """The answer, once all of it is there. Raises ValueError."""
        head = self._head
        if head is None:
            head = self._head = take_head(self._received)
            if head is None:
                return None
            self._keeps = head.keeps
            if head.length is None and not head.chunked:
                raise ValueError("it does not say how long it is")
        body = self._chunks() if head.length is None else self._counted(head.length)
        if body is None:
            return None
        self._head = None
        return Response(head.status, body, head.headers)

    def _counted(self, length: int) -> bytes | None:
        if len(self._received) < length:
            return None
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    def _chunks(self) -> bytes | None:
        while True:
            chunk = take_chunk(self._received)
            if chunk is None:
                return None
            if not chunk:
                body, self._parts = b"".join(self._parts), []
                return body
            self._parts.append(chunk)
