"""An HTTP server that limits its connections. Decisions are those of the `ConnectionTable`; here they are carried out."""

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gangline.apiserver.serving.connections import ConnectionLimits, ConnectionTable, TrackedConnection
from gangline.apiserver.serving.memory import release_free_memory, shrink_tls_buffers
from gangline.base.clock import Clock, Timer

HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
SHUTDOWN_SECONDS = 2.0
"""How long a closed TLS connection waits for the peer's last message."""
REAP_SECONDS = 0.05
"""The shortest time between two looks for connections whose time is up."""
RELEASE_COUNT = 100
"""After so many closed connections memory is returned to the system."""
RELEASE_SECONDS = 5.0
"""The shortest time between two such returns, which stop the server for a moment."""
BACKLOG = 1024
MAX_HEAD_BYTES = 3 * 2**19
"""How much a client may send before its request begins: Go's megabyte of headers, and what was read with their end."""
HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class GuardedHandler(web.RequestHandler):
    """aiohttp's protocol of one connection. Connections from inside the process are not limited."""

    __slots__ = ("guard", "head_bytes", "tracked")

    def __init__(self, guard: "ConnectionGuard", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guard, self.head_bytes = guard, 0
        self.tracked: TrackedConnection | None = None

    def data_received(self, data: bytes) -> None:
        if self.tracked is not None and self.tracked.is_idle:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD_BYTES and self.transport is not None:
                self.transport.write(HEAD_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to what is no HTTP: short, as of Go. A client's mistakes are not logged, attackers make many."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        code = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if isinstance(exc, LineTooLong) else HTTPStatus(status)
        response = web.Response(status=code, text=f"{code.value} {code.phrase}")
        response.force_close()
        return response

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.tracked is not None:
            self.guard.forget(self.tracked)
        super().connection_lost(exc)


class ConnectionGuard:
    """Limits connections: refuses, closes the idle, returns their memory."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.table = ConnectionTable(limits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
        self._clock = clock
        self._transports: dict[TrackedConnection, asyncio.Transport] = {}
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._closed = 0
        self._next_release = 0.0
        self._is_stopped = False

    def admit(self, transport: asyncio.Transport) -> TrackedConnection | None:
        """Begin to track a connection. None: it was refused and is closed."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        connection, victims = self.table.admit(address, self._clock.monotonic())
        for victim in victims:
            self._abort(victim)
        if connection is None:
            transport.abort()
            return None
        self._transports[connection] = transport
        if self._timer is not None and connection.deadline < self._timer_at:
            # All that are left are idle between requests, which they may be for longer.
            self._timer.cancel()
            self._timer = None
        self._set_timer()
        return connection

    def finish_handshake(self, connection: TrackedConnection) -> None:
        self.table.finish_handshake(connection, self._clock.monotonic())

    def begin_request(self, connection: TrackedConnection) -> None:
        self.table.begin_request(connection)

    def end_request(self, connection: TrackedConnection) -> None:
        self.table.end_request(connection, self._clock.monotonic())
        self._set_timer()

    def forget(self, connection: TrackedConnection) -> None:
        """The connection is closed."""
        self.table.remove(connection)
        self._transports.pop(connection, None)
        self._closed += 1
        if self._closed >= RELEASE_COUNT:
            self._set_timer()

    def close(self) -> None:
        """Stop looking for connections whose time is up."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _abort(self, connection: TrackedConnection) -> None:
        transport = self._transports.pop(connection, None)
        if transport is not None:
            transport.abort()

    def _set_timer(self) -> None:
        if self._timer is not None or self._is_stopped:
            return
        now = self._clock.monotonic()
        release = max(now + 1.0, self._next_release) if self._closed >= RELEASE_COUNT else float("inf")
        moment = min(self.table.next_deadline(), release)
        if moment < float("inf"):
            self._timer_at = max(now + REAP_SECONDS, moment)
            self._timer = self._clock.call_later(timedelta(seconds=self._timer_at - now), self._reap)

    def _reap(self) -> None:
        """Close the connections whose time is up, and return memory."""
        self._timer, now = None, self._clock.monotonic()
        for connection in self.table.overdue(now):
            self.table.remove(connection)
            self._abort(connection)
        if self._closed >= RELEASE_COUNT and now >= self._next_release:
            self._closed, self._next_release = 0, now + RELEASE_SECONDS
            release_free_memory()
        self._set_timer()


class GuardedServer(web.Server):
    """aiohttp's server, with handlers that tell the guard what their connections do."""

    def __init__(
        self,
        handler: HttpHandler,
        guard: ConnectionGuard,
        *,
        request_factory: Any,
        handler_cancellation: bool = False,
        **options: Any,
    ) -> None:
        """With `handler_cancellation` a handler is cancelled when its client leaves."""
        super().__init__(self._serve, request_factory=request_factory, handler_cancellation=handler_cancellation)
        self._guarded, self._guard, self._options = handler, guard, options
        self._event_loop = asyncio.get_running_loop()

    def __call__(self) -> web.RequestHandler:
        return GuardedHandler(self._guard, self, loop=self._event_loop, **self._options)

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        handler = http.protocol
        if not isinstance(handler, GuardedHandler) or handler.tracked is None:
            return await self._guarded(http)
        tracked = handler.tracked
        handler.head_bytes = 0
        self._guard.begin_request(tracked)
        try:
            return await self._guarded(http)
        finally:
            self._guard.end_request(tracked)


def mark_authenticated(http: web.BaseRequest) -> None:
    """The user of this request is known: its connection counts among those of users."""
    protocol = http.protocol
    if isinstance(protocol, GuardedHandler) and protocol.tracked is not None:
        protocol.guard.table.authenticate(protocol.tracked)


class GuardedSite(web.TCPSite):
    """Listens on an address. A connection is counted as soon as it is accepted, before its TLS handshake."""

    __slots__ = ("_guard", "_handshakes", "_listener", "_tls")

    def __init__(
        self,
        runner: web.ServerRunner,
        guard: ConnectionGuard,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        listener: socket.socket | None = None,
    ) -> None:
        """With a `listener`, it accepts the connections of that socket instead."""
        super().__init__(runner, host, port, backlog=BACKLOG)
        self._guard, self._tls, self._listener = guard, tls, listener
        self._handshakes: set[asyncio.Task[None]] = set()
        shrink_tls_buffers()

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop = asyncio.get_running_loop()
        gate, backlog = partial(_Gate, self), self._backlog
        if self._listener is not None:
            self._server = await loop.create_server(gate, sock=self._listener, backlog=backlog)
        else:
            self._server = await loop.create_server(gate, self._host, self._port, backlog=backlog)

    async def stop(self) -> None:
        for task in self._handshakes:
            task.cancel()
        self._guard.close()
        await super().stop()

    def accept(self, transport: asyncio.Transport) -> None:
        """Serve a connection that was just made, unless there are too many."""
        tracked = self._guard.admit(transport)
        if tracked is None:
            return
        server = self._runner.server
        assert server is not None
        handler = server()
        assert isinstance(handler, GuardedHandler)
        handler.tracked = tracked
        if self._tls is None:
            self._guard.finish_handshake(tracked)
            transport.set_protocol(handler)
            handler.connection_made(transport)
            return
        transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._shake_hands(self._tls, transport, handler, tracked))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(
        self, tls: ssl.SSLContext, transport: asyncio.Transport, handler: GuardedHandler, tracked: TrackedConnection
    ) -> None:
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport,
                handler,
                tls,
                server_side=True,
                ssl_handshake_timeout=self._guard.table.limits.handshake_seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except (OSError, asyncio.CancelledError):  # also ssl.SSLError, and a client that is gone
            secure = None
        if secure is None or transport.is_closing():
            transport.abort()
            self._guard.forget(tracked)
            return
        self._guard.finish_handshake(tracked)
        handler.connection_made(secure)


class _Gate(asyncio.Protocol):
    """The protocol of a connection until it is admitted."""

    def __init__(self, site: GuardedSite) -> None:
        self._site = site

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._site.accept(transport)
