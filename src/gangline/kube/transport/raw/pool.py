"""Many small requests at less than half the price: HTTP/1.1 on kept connections, and nothing that a binding does not need.

A general client spends more time on a binding than the decision that led to it. `RawPool` carries writes with whole
answers, and watches, by itself, and leaves everything else (other streams, WebSockets, proxies, a 401 with credentials
that can be renewed, reads) to the transport it stands before. The contract is that of `Transport`: a request is sent
once; without an answer `Unreachable` is raised, and the server may have done it. Connections are made while more of them
help: a request beyond that waits here for one to be free, the oldest first.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit

from gangline import __version__
from gangline.base.tasks import for_each
from gangline.kube.config.connection import Connection
from gangline.kube.config.tls import ClientCertificate, ssl_context
from gangline.kube.errors import ConfigError, KubeError, Unreachable
from gangline.kube.transport.api import QueryParams, Request, Response, ResponseStream, Transport, WebSocket
from gangline.kube.transport.http import CONNECT_SECONDS, KEEPALIVE_OPTIONS, REQUEST_TIMEOUT
from gangline.kube.transport.raw.connection import RawConnection
from gangline.kube.transport.raw.tls_socket import connect_socket
from gangline.kube.transport.raw.watch_stream import WatchStream
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

MIN_CONCURRENCY = 4
"""So many at once are always sent, and no more while nothing is known of the server: its first answers shall be quick."""
MAX_SERVER_QUEUE = 16
"""So many may wait at the server: it shall never have to wait for us."""
BASELINE_RESET_SECONDS = 30.0
"""Seconds after which the quickest answer is looked for anew: the server may have moved."""
_AVERAGE_WEIGHT = 0.1


class ConcurrencyEstimate:
    """Watches how long answers take. No clock of its own."""

    def __init__(self) -> None:
        # Seconds. The usual answer, and the quickest of late: what it takes when nothing waits.
        self._average = self._minimum = 0.0
        self._minimum_since = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """An answer took so long."""
        if not self._average or now - self._minimum_since > BASELINE_RESET_SECONDS:
            self._average = self._average or seconds
            self._minimum, self._minimum_since = seconds, now
        self._minimum = min(self._minimum, seconds)
        self._average += _AVERAGE_WEIGHT * (seconds - self._average)

    def is_saturated(self, under_way: int) -> bool:
        """Whether one more would only wait."""
        if under_way < MIN_CONCURRENCY:
            return False
        if not self._average:
            return True
        return under_way * (1 - self._minimum / self._average) >= MAX_SERVER_QUEUE


log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""A connection that was not used for so long is not used again: the server, which keeps it for 90, may be about to close
it. Meanwhile the kernel asks whether it is still there, so nobody between us and the server forgets it."""
MAX_CONNECTION_WAIT = 0.5
"""So long a request waits at most for a connection to be free. The others may be held up by something that is not the
server: a webhook that hangs, say, for one namespace."""
SWEEP_INTERVAL = 0.1
"""How often it is looked whether somebody waits too long. A timer for each would cost more than their requests."""
WATCH_PARAMETER = ("watch", "true")
PREWARM_CONCURRENCY = 4
"""So many connections are made at a time before they are needed: what is needed already shall not wait for them."""
WRITE_METHODS = ("POST", "PATCH")
"""What comes in large numbers. Reads may be long, and may be repeated on a new connection: the other transport does that."""


@asynccontextmanager
async def raw_pool(
    other: Transport, connection: Connection, *, agent: str, warn: WarningHandler = log_warning
) -> AsyncIterator["RawPool"]:
    """One before another transport to the same server; its connections are closed when the block ends."""
    made = RawPool(other, connection, agent=agent, warn=warn)
    try:
        yield made
    finally:
        made.close()


class RawPool:
    """A transport before another one. Inert until its first request."""

    def __init__(
        self, other: Transport, connection: Connection, *, agent: str, warn: WarningHandler = log_warning
    ) -> None:
        self._fallback, self._connection, self._warn = other, connection, DeduplicatedWarnings(warn)
        place = urlsplit(connection.server)
        self._host, self._base_path = place.hostname or "", place.path
        self._port = place.port or (443 if place.scheme == "https" else 80)
        fixed = {
            "Host": place.netloc,
            "User-Agent": f"{agent}/{__version__}",
            "Accept-Encoding": "identity",
            **(dict(connection.impersonate.headers()) if connection.impersonate is not None else {}),
        }
        # Impersonated groups come as several headers of one name.
        self._fallback_only = connection.proxy is not None or (
            connection.impersonate is not None and len(fixed) < 3 + len(tuple(connection.impersonate.headers()))
        )
        self._idle: list[RawConnection] = []
        # Lanes that carry something, how many these are with those that are being made, and who waits for one since
        # when (given None, it is to make its own).
        self._in_use: set[RawConnection] = set()
        self._busy_count = 0
        self._waiters: deque[tuple[asyncio.Future[RawConnection | None], float]] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._concurrency = ConcurrencyEstimate()
        # What is the same in all requests, between their path and what they accept.
        self._fixed_headers = "".join((" HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fixed.items())))
        # Credentials as they were last sent, and as lines.
        self._last_credentials: Mapping[str, str] = {}
        self._credential_headers = ""
        self._certificate: ClientCertificate | None = None
        self._ssl_context: ssl.SSLContext | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self._fallback_only or request.method not in WRITE_METHODS:
            return await self._fallback.send(request, timeout=timeout)
        credentials = self._connection.credentials
        sent = await credentials.headers()
        seconds = (timeout or REQUEST_TIMEOUT).total_seconds()
        try:
            response = await self._exchange(self._encoded_request(request, sent), seconds)
        except (OSError, Unreachable) as error:
            raise _unreachable(request, error) from error
        if response.status == 401 and credentials.invalidate(sent):
            return await self._fallback.send(request, timeout=timeout)
        self._report_warnings(response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        flow = None
        if WATCH_PARAMETER in request.query and not self._fallback_only:
            flow = await self._open_watch(request, idle)
        if flow is None:
            async with self._fallback.stream(request, idle=idle) as stream:
                yield stream
            return
        try:
            yield flow
        finally:
            flow.close()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._fallback.frames(request, protocols)

    @property
    def idle_count(self) -> int:
        """Connections that nobody uses and that can be used again."""
        now = asyncio.get_running_loop().time()
        return sum(lane.is_open and now - lane.last_used < IDLE_SECONDS for lane in self._idle)

    async def prewarm(self, count: int) -> None:
        """Have connections for so many requests at once, which are about to come. Never fails: then those will tell.

        Not to be called again before it has returned.
        """
        missing = count - self._busy_count - self.idle_count
        if missing <= 0 or self._fallback_only:
            return
        try:
            await self._refresh_tls()
            await for_each(range(missing), self._add_connection, at_once=PREWARM_CONCURRENCY)
        except* (KubeError, ConfigError, OSError) as errors:
            # The first one ends it: the others would fare no better.
            log.debug("no connection made ahead", extra={"error": str(errors.exceptions[0])})

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._sweep_timer is not None and not self._in_use and not self._waiters:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._close_idle()

    def _close_idle(self) -> None:
        for lane in self._idle:
            lane.close()
        self._idle.clear()

    async def _add_connection(self, _: int) -> None:
        """One more connection, for whoever waits for one or comes next."""
        context = self._ssl_context
        lane = RawConnection(await self._connect())
        self._busy_count += 1
        self._release(lane, keep=lane.is_open and context is self._ssl_context)

    async def _open_watch(self, request: Request, idle: timedelta | None) -> WatchStream | None:
        """A watch; None if the credentials have to be renewed, which the other transport does."""
        credentials = self._connection.credentials
        sent = await credentials.headers()
        flow = None
        try:
            await self._refresh_tls()
            flow = WatchStream(await self._connect(), str(request), idle)
            async with asyncio.timeout((idle or REQUEST_TIMEOUT).total_seconds()):
                response = await flow.send(self._encoded_request(request, sent))
        except BaseException as error:
            if flow is not None:
                flow.close()
            if isinstance(error, OSError):
                raise _unreachable(request, error) from error
            raise
        if response.status == 401 and credentials.invalidate(sent):
            flow.close()
            return None
        self._report_warnings(response)
        return flow

    def _report_warnings(self, response: Response) -> None:
        if "warning" in response.headers:
            for text in warning_texts((response.headers["warning"],)):
                self._warn(text)

    async def _exchange(self, text: bytes, seconds: float) -> Response:
        lane = await self._acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        lane.deadline = began + seconds
        self._in_use.add(lane)
        self._schedule_sweep()
        try:
            response = await lane.send(text)
        except BaseException:
            # Cancelled or cut off: what still comes would be taken for the answer to another request.
            self._release(lane, keep=False)
            raise
        finally:
            self._in_use.discard(lane)
        lane.last_used = loop.time()
        self._concurrency.observe(lane.last_used - began, lane.last_used)
        self._release(lane, keep=lane.is_open)
        return response

    async def _acquire(self) -> RawConnection:
        """A connection that nobody else uses."""
        await self._refresh_tls()
        lane = self._pop_idle()
        if lane is None and self._concurrency.is_saturated(self._busy_count):
            lane = await self._wait_for_connection()
        if lane is not None and lane.is_open:
            return lane
        if lane is None:
            self._busy_count += 1
        try:
            return RawConnection(await self._connect())
        except BaseException:
            self._release_slot()
            raise

    def _pop_idle(self) -> RawConnection | None:
        """The one used last, so that those too many grow old."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            lane = self._idle.pop()
            if lane.is_open and now - lane.last_used < IDLE_SECONDS:
                self._busy_count += 1
                return lane
            lane.close()
        return None

    async def _wait_for_connection(self) -> RawConnection | None:
        """Wait for a lane, or (None) for leave to make one."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[RawConnection | None] = loop.create_future()
        self._waiters.append((turn, loop.time()))
        self._schedule_sweep()
        try:
            return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came too late for this one.
                lane = turn.result()
                if lane is not None:
                    self._release(lane, keep=lane.is_open)
                else:
                    self._grant_slot()
            raise

    def _release(self, lane: RawConnection, *, keep: bool) -> None:
        """A lane is free again: it goes to whoever has waited longest."""
        if not keep:
            lane.close()
            self._release_slot()
        elif (turn := self._next_waiter()) is not None:
            turn.set_result(lane)
        else:
            self._busy_count -= 1
            self._idle.append(lane)
        if self._waiters and not self._concurrency.is_saturated(self._busy_count):
            self._grant_slot()

    def _release_slot(self) -> None:
        """One less is busy: another may be made in its place."""
        self._busy_count -= 1
        self._grant_slot()

    def _grant_slot(self) -> None:
        turn = self._next_waiter()
        if turn is not None:
            turn.set_result(None)

    def _next_waiter(self) -> asyncio.Future[RawConnection | None] | None:
        while self._waiters:
            turn, _ = self._waiters.popleft()
            if not turn.done():
                return turn
        return None

    def _schedule_sweep(self) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._sweep_timeouts)

    def _sweep_timeouts(self) -> None:
        """End what takes too long, and let those make a lane who have waited for one long enough."""
        self._sweep_timer = None
        now = asyncio.get_running_loop().time()
        for lane in [lane for lane in self._in_use if lane.deadline <= now]:
            lane.time_out()
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
        """A certificate is shown when a connection is made, so a renewed one needs new connections."""
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
        head = (
            f"{request.method} {self._base_path}{request.path}{query}{self._fixed_headers}Accept: {request.accept}\r\n"
            f"{self._credential_headers}{media}Content-Length: {len(request.body)}\r\n\r\n"
        )
        return head.encode("latin-1") + request.body


def _unreachable(request: Request, error: Exception) -> Unreachable:
    told = "no answer in time" if isinstance(error, TimeoutError) else str(error)
    return Unreachable(f"{request}: {told}")


@lru_cache(maxsize=64)
def _encoded_query(query: QueryParams) -> str:
    """Of many requests it is the same."""
    return f"?{urlencode(query, quote_via=quote, safe='')}"
