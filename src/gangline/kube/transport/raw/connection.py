"""A persistent HTTP/1.1 connection that carries one request and its response at a time."""

import asyncio
import socket

from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Response
from gangline.kube.transport.http1 import ResponseParser
from gangline.kube.transport.raw.tls_socket import TlsSocket


class RawConnection:
    """One connection to the server. `send` must not be called again before its response has arrived."""

    def __init__(self, connected: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = TlsSocket(connected, self)
        self.last_used = self._loop.time()
        # Loop time by which the response must be complete.
        self.deadline = 0.0
        self._pending: asyncio.Future[Response] | None = None
        self._parser = ResponseParser()
        self._keep_alive = True

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error is not None else "the server closed the connection")

    @property
    def is_open(self) -> bool:
        return self._keep_alive and not self._socket.is_closing()

    def send(self, text: bytes) -> asyncio.Future[Response]:
        """Send an encoded request. The connection must be open."""
        self._pending = self._loop.create_future()
        if self._parser.complete:
            self._parser.next()
        self._socket.write(text)
        return self._pending

    def time_out(self) -> None:
        """Fail the pending request with `Unreachable` and close the connection."""
        self._fail("no answer in time")
        self.close()

    def close(self) -> None:
        self._socket.abort()

    def data_received(self, data: bytes) -> None:
        if self._pending is None:
            # No request is pending: the response to the next one would begin with these bytes.
            self.close()
            return
        try:
            self._parser.feed(data)
            response = self._complete_response()
        except ValueError as error:
            self._keep_alive = False
            self._fail(f"an answer that cannot be read: {error}")
            self.close()
            return
        if response is not None:
            pending = self._take_pending()
            if pending is not None:
                pending.set_result(response)

    def _fail(self, reason: str) -> None:
        pending = self._take_pending()
        if pending is not None:
            pending.set_exception(Unreachable(reason))

    def _take_pending(self) -> asyncio.Future[Response] | None:
        """The future of the pending request, unless its caller was cancelled. No request is pending afterwards."""
        pending, self._pending = self._pending, None
        return None if pending is None or pending.done() else pending

    def _complete_response(self) -> Response | None:
        """The response; None while part of it is missing. Raises ValueError."""
        parser = self._parser
        head = parser.head
        if head is None:
            return None
        if head.until_close:
            raise ValueError("it does not say how long it is")
        if not parser.complete:
            return None
        self._keep_alive = head.keep_alive and not parser.has_excess
        return Response(head.status, parser.take_body(), head.headers)
