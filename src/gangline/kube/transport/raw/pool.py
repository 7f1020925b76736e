"""A transport for many small requests at less than half the CPU time: HTTP/1.1 on persistent raw connections.

A general HTTP client spends more time on a binding than the scheduling decision took. `RawPool` carries writes and watches
itself and passes everything else (reads, other streams, WebSockets, proxies, a 401 with renewable credentials) to a
fallback transport. Its contract is that of `Transport`: a request is sent once; without a response `Unreachable` is raised,
and the server may have carried the request out. New connections are opened only while more concurrency helps; beyond that
a request waits for a free connection, first come, first served.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit

from gangline import __version__
from gangline.base.tasks import for_each
from gangline.kube.config.connection import Connection
from gangline.kube.config.tls import ClientCertificate, ssl_context
from gangline.kube.errors import ConfigError, KubeError, Unreachable
from gangline.kube.transport.api import (
    CONNECT_SECONDS,
    REQUEST_TIMEOUT,
    QueryParams,
    Request,
    Response,
    ResponseStream,
    Transport,
    WebSocket,
)
from gangline.kube.transport.http import KEEPALIVE_OPTIONS
from gangline.kube.transport.raw.connection import RawConnection
from gangline.kube.transport.raw.tls_socket import connect_socket
from gangline.kube.transport.raw.watch_stream import WatchStream
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""A connection idle for longer is not used again: the server, which keeps it for 90 s, may be about to close it. TCP
keepalive probes keep it alive meanwhile in the tables of middleboxes."""
MAX_CONNECTION_WAIT = 0.5
"""Seconds a request waits for a free connection before it opens one. The busy ones may be delayed by something other than
load, such as a webhook that hangs for one namespace."""
SWEEP_INTERVAL = 0.1
"""Seconds between checks for timeouts. One timer per request would cost more than the request."""
WATCH_PARAMETER = ("watch", "true")
PREWARM_CONCURRENCY = 4
"""Connections that are opened ahead at a time; few, so that requests under way are not delayed."""
WRITE_METHODS = ("POST", "PATCH")
"""Methods that come in large numbers. Reads may be long, and are repeated on a new connection by the fallback."""
MIN_CONCURRENCY = 4
"""Requests that are always sent at once; more only when a response time is known."""
MAX_SERVER_QUEUE = 16
"""How many requests may queue at the server, so that it is never idle because of us."""
BASELINE_RESET_SECONDS = 30.0
"""Seconds after which the minimal response time is measured again, because the server may have changed."""
_AVERAGE_WEIGHT = 0.1


class ConcurrencyEstimate:
    """Estimates from response times whether more concurrent requests would help. Has no clock of its own."""

    def __init__(self) -> None:
        # Response times in seconds: the moving average, and the recent minimum, which is the time without queueing.
        self._average = self._minimum = 0.0
        self._minimum_since = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """Record a response time."""
        if not self._average or now - self._minimum_since > BASELINE_RESET_SECONDS:
            self._average = self._average or seconds
            self._minimum, self._minimum_since = seconds, now
        self._minimum = min(self._minimum, seconds)
        self._average += _AVERAGE_WEIGHT * (seconds - self._average)

    def is_saturated(self, under_way: int) -> bool:
        """Whether one more concurrent request would only queue at the server."""
        if under_way < MIN_CONCURRENCY:
            return False
        if not self._average:
            return True
        return under_way * (1 - self._minimum / self._average) >= MAX_SERVER_QUEUE


@asynccontextmanager
async def raw_pool(
    other: Transport, connection: Connection, *, agent: str, warn: WarningHandler = log_warning
) -> AsyncIterator["RawPool"]:
    """A `RawPool` whose fallback is `other`, to the same server. Its connections are closed at the end of the block."""
    pool = RawPool(other, connection, agent=agent, warn=warn)
    try:
        yield pool
    finally:
        pool.close()


class RawPool:
    """A transport with a fallback transport. Does nothing before its first request."""

    def __init__(
        self, other: Transport, connection: Connection, *, agent: str, warn: WarningHandler = log_warning
    ) -> None:
        self._fallback, self._connection, self._warn = other, connection, DeduplicatedWarnings(warn)
        server = urlsplit(connection.server)
        self._host, self._base_path = server.hostname or "", server.path
        self._port = server.port or (443 if server.scheme == "https" else 80)
        headers = {
            "Host": server.netloc,
            "User-Agent": f"{agent}/{__version__}",
            "Accept-Encoding": "identity",
            **(dict(connection.impersonate.headers()) if connection.impersonate is not None else {}),
        }
        # Several impersonated groups need several headers of one name, which a dict cannot hold.
        self._fallback_only = connection.proxy is not None or (
            connection.impersonate is not None and len(headers) < 3 + len(tuple(connection.impersonate.headers()))
        )
        self._idle: list[RawConnection] = []
        # Connections with a pending request.
        self._in_use: set[RawConnection] = set()
        # Connections that are in use, reserved for a request, or being opened.
        self._busy_count = 0
        # Requests that wait for a connection, since when. None as result: the request opens its own.
        self._waiters: deque[tuple[asyncio.Future[RawConnection | None], float]] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._concurrency = ConcurrencyEstimate()
        # The part that all requests share, between the path and the Accept header.
        self._fixed_headers = "".join((" HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in headers.items())))
        # The credentials of the last request, and their encoded headers.
        self._last_credentials: Mapping[str, str] = {}
        self._credential_headers = ""
        self._certificate: ClientCertificate | None = None
        self._ssl_context: ssl.SSLContext | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self._fallback_only or request.method not in WRITE_METHODS:
            return await self._fallback.send(request, timeout=timeout)
        credentials = self._connection.credentials
        auth_headers = await credentials.headers()
        seconds = (timeout or REQUEST_TIMEOUT).total_seconds()
        try:
            response = await self._exchange(self._encoded_request(request, auth_headers), seconds, request.precheck)
        except (OSError, Unreachable) as error:
            raise _unreachable(request, error) from error
        if response.status == 401 and credentials.invalidate(auth_headers):
            return await self._fallback.send(request, timeout=timeout)
        self._report_warnings(response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        watch = None
        if WATCH_PARAMETER in request.query and not self._fallback_only:
            watch = await self._open_watch(request, idle)
        if watch is None:
            async with self._fallback.stream(request, idle=idle) as stream:
                yield stream
            return
        try:
            yield watch
        finally:
            watch.close()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._fallback.frames(request, protocols)

    @property
    def idle_count(self) -> int:
        """The number of idle connections that can be used again."""
        now = asyncio.get_running_loop().time()
        return sum(connection.is_open and now - connection.last_used < IDLE_SECONDS for connection in self._idle)

    async def prewarm(self, count: int) -> None:
        """Open connections ahead for this many concurrent requests. Errors are left to those requests.

        Must not be called again before it has returned.
        """
        missing = count - self._busy_count - self.idle_count
        if missing <= 0 or self._fallback_only:
            return
        try:
            await self._refresh_tls()
            await for_each(range(missing), self._add_connection, at_once=PREWARM_CONCURRENCY)
        except* (KubeError, ConfigError, OSError) as errors:
            # The first error ends it: the other connections would fail, too.
            log.debug("no connection made ahead", extra={"error": str(errors.exceptions[0])})

    def close(self) -> None:
        """Close the idle connections."""
        if self._sweep_timer is not None and not self._in_use and not self._waiters:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._close_idle()

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _add_connection(self, _: int) -> None:
        """Open a connection, for the first waiting request or the next one."""
        context = self._ssl_context
        connection = RawConnection(await self._connect())
        self._busy_count += 1
        self._release(connection, keep=connection.is_open and context is self._ssl_context)

    async def _open_watch(self, request: Request, idle: timedelta | None) -> WatchStream | None:
        """A watch; None if the credentials must be renewed, which the fallback does."""
        credentials = self._connection.credentials
        auth_headers = await credentials.headers()
        watch = None
        try:
            await self._refresh_tls()
            watch = WatchStream(await self._connect(), str(request), idle)
            async with asyncio.timeout((idle or REQUEST_TIMEOUT).total_seconds()):
                response = await watch.send(self._encoded_request(request, auth_headers))
        except BaseException as error:
            if watch is not None:
                watch.close()
            if isinstance(error, OSError):
                raise _unreachable(request, error) from error
            raise
        if response.status == 401 and credentials.invalidate(auth_headers):
            watch.close()
            return None
        self._report_warnings(response)
        return watch

    def _report_warnings(self, response: Response) -> None:
        if "warning" in response.headers:
            for text in warning_texts((response.headers["warning"],)):
                self._warn(text)

    async def _exchange(self, text: bytes, seconds: float, precheck: Callable[[], object] | None = None) -> Response:
        connection = await self._acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection.deadline = began + seconds
        self._in_use.add(connection)
        self._schedule_sweep()
        try:
            if precheck is not None:
                precheck()
            response = await connection.send(text)
        except BaseException:
            # Cancelled or cut off: a late response would be taken for that of the next request.
            self._release(connection, keep=False)
            raise
        finally:
            self._in_use.discard(connection)
        connection.last_used = loop.time()
        self._concurrency.observe(connection.last_used - began, connection.last_used)
        self._release(connection, keep=connection.is_open)
        return response

    async def _acquire(self) -> RawConnection:
        """A connection for one request: an idle one, one that becomes free, or a new one."""
        await self._refresh_tls()
        connection = self._pop_idle()
        if connection is None and self._concurrency.is_saturated(self._busy_count):
            connection = await self._wait_for_connection()
        if connection is not None and connection.is_open:
            return connection
        if connection is None:
            self._busy_count += 1
        try:
            return RawConnection(await self._connect())
        except BaseException:
            self._release_slot()
            raise

    def _pop_idle(self) -> RawConnection | None:
        """The connection used last, so that surplus ones become old and are closed."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.last_used < IDLE_SECONDS:
                self._busy_count += 1
                return connection
            connection.close()
        return None

    async def _wait_for_connection(self) -> RawConnection | None:
        """Wait for a free connection; None if the request may open one."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[RawConnection | None] = loop.create_future()
        self._waiters.append((waiter, loop.time()))
        self._schedule_sweep()
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                # Cancelled after the connection was assigned: pass it on.
                connection = waiter.result()
                if connection is not None:
                    self._release(connection, keep=connection.is_open)
                else:
                    self._grant_slot()
            raise

    def _release(self, connection: RawConnection, *, keep: bool) -> None:
        """Hand a connection to the request that has waited longest, or keep it idle; close it unless `keep`."""
        if not keep:
            connection.close()
            self._release_slot()
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._busy_count -= 1
            self._idle.append(connection)
        if self._waiters and not self._concurrency.is_saturated(self._busy_count):
            self._grant_slot()

    def _release_slot(self) -> None:
        """Count one connection less; a waiting request may open another."""
        self._busy_count -= 1
        self._grant_slot()

    def _grant_slot(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)

    def _next_waiter(self) -> asyncio.Future[RawConnection | None] | None:
        while self._waiters:
            waiter, _ = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _schedule_sweep(self) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._sweep_timeouts)

    def _sweep_timeouts(self) -> None:
        """Time out overdue requests, and let those open a connection that have waited for one long enough."""
        self._sweep_timer = None
        now = asyncio.get_running_loop().time()
        for connection in [connection for connection in self._in_use if connection.deadline <= now]:
            connection.time_out()
        while self._waiters and self._waiters[0][1] + MAX_CONNECTION_WAIT <= now:
            self._grant_slot()
        if self._in_use or self._waiters:
            self._schedule_sweep()

    async def _connect(self) -> socket.socket:
        tls = self._connection.tls
        name = (tls.server_name or self._host) if tls is not None else None
        return await connect_socket(
            self._host,
            self._port,
            context=self._ssl_context,
            name=name,
            options=KEEPALIVE_OPTIONS,
            seconds=CONNECT_SECONDS,
        )

    async def _refresh_tls(self) -> None:
        """Drop the idle connections when the client certificate was renewed: it is presented when connecting."""
        tls = self._connection.tls
        if tls is None:
            return
        certificate = await self._connection.credentials.client_certificate()
        if self._ssl_context is None or certificate is not self._certificate:
            self._certificate, self._ssl_context = certificate, ssl_context(tls, certificate)
            self._close_idle()

    def _encoded_request(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        query = _encoded_query(request.query) if request.query else ""
        if credentials is not self._last_credentials:
            self._last_credentials = credentials
            self._credential_headers = "".join(f"{name}: {value}\r\n" for name, value in credentials.items())
        media = f"Content-Type: {request.content_type}\r\n" if request.content_type else ""
        if request.trace_parent:
            media += f"traceparent: {request.trace_parent}\r\n"
        head = (
            f"{request.method} {self._base_path}{request.path}{query}{self._fixed_headers}Accept: {request.accept}\r\n"
            f"{self._credential_headers}{media}Content-Length: {len(request.body)}\r\n\r\n"
        )
        return head.encode("latin-1") + request.body


def _unreachable(request: Request, error: Exception) -> Unreachable:
    reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
    return Unreachable(f"{request}: {reason}")


@lru_cache(maxsize=64)
def _encoded_query(query: QueryParams) -> str:
    """The encoded query. Cached, because many requests have the same."""
    return f"?{urlencode(query, quote_via=quote, safe='')}"
