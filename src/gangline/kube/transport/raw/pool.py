"""Many small requests at less than half the price: HTTP/1.1 on kept connections, and nothing that a binding does not need.

A general client spends more time on a binding than the decision that led to it. `Express` carries writes with whole
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
from gangline.kube.transport.api import Frames, Query, Request, Response, Stream, Transport
from gangline.kube.transport.http import CONNECT_SECONDS, KEEPALIVE, PATIENCE
from gangline.kube.transport.raw.connection import Lane
from gangline.kube.transport.raw.crowd import Crowd
from gangline.kube.transport.raw.tls_socket import connect
from gangline.kube.transport.raw.watch_stream import Flow
from gangline.kube.transport.warnings import Once, Warn, logged, warnings

log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""A connection that was not used for so long is not used again: the server, which keeps it for 90, may be about to close
it. Meanwhile the kernel asks whether it is still there, so nobody between us and the server forgets it."""
LONGEST_TURN = 0.5
"""So long a request waits at most for a connection to be free. The others may be held up by something that is not the
server: a webhook that hangs, say, for one namespace."""
SWEEP_SECONDS = 0.1
"""How often it is looked whether somebody waits too long. A timer for each would cost more than their requests."""
WATCH = ("watch", "true")
AHEAD = 4
"""So many connections are made at a time before they are needed: what is needed already shall not wait for them."""
WRITES = ("POST", "PATCH")
"""What comes in large numbers. Reads may be long, and may be repeated on a new connection: the other transport does that."""


@asynccontextmanager
async def express(
    other: Transport, connection: Connection, *, agent: str, warn: Warn = logged
) -> AsyncIterator["Express"]:
    """One before another transport to the same server; its connections are closed when the block ends."""
    made = Express(other, connection, agent=agent, warn=warn)
    try:
        yield made
    finally:
        made.close()


class Express:
    """A transport before another one. Inert until its first request."""

    def __init__(self, other: Transport, connection: Connection, *, agent: str, warn: Warn = logged) -> None:
        self._other, self._connection, self._warn = other, connection, Once(warn)
        place = urlsplit(connection.server)
        self._host, self._base = place.hostname or "", place.path
        self._port = place.port or (443 if place.scheme == "https" else 80)
        fixed = {
            "Host": place.netloc,
            "User-Agent": f"{agent}/{__version__}",
            "Accept-Encoding": "identity",
            **(dict(connection.impersonate.headers()) if connection.impersonate is not None else {}),
        }
        # Impersonated groups come as several headers of one name.
        self._general = connection.proxy is not None or (
            connection.impersonate is not None
            and len(fixed) < 3 + len(tuple(connection.impersonate.headers()))
        )
        self._free: list[Lane] = []
        # Lanes that carry something, how many these are with those that are being made, and who waits for one since
        # when (given None, it is to make its own).
        self._used: set[Lane] = set()
        self._busy = 0
        self._waiting: deque[tuple[asyncio.Future[Lane | None], float]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._crowd = Crowd()
        # What is the same in all requests, between their path and what they accept.
        self._middle = "".join((" HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fixed.items())))
        # Credentials as they were last sent, and as lines.
        self._sent: Mapping[str, str] = {}
        self._shown = ""
        self._certificate: ClientCertificate | None = None
        self._context: ssl.SSLContext | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self._general or request.method not in WRITES:
            return await self._other.send(request, timeout=timeout)
        credentials = self._connection.credentials
        sent = await credentials.headers()
        seconds = (timeout or PATIENCE).total_seconds()
        try:
            response = await self._exchange(self._text(request, sent), seconds)
        except (OSError, Unreachable) as error:
            raise _unanswered(request, error) from error
        if response.status == 401 and credentials.rejected(sent):
            return await self._other.send(request, timeout=timeout)
        self._note_warnings(response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[Stream]:
        flow = None
        if WATCH in request.query and not self._general:
            flow = await self._flow(request, idle)
        if flow is None:
            async with self._other.stream(request, idle=idle) as stream:
                yield stream
            return
        try:
            yield flow
        finally:
            flow.close()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[Frames]:
        return self._other.frames(request, protocols)

    @property
    def kept(self) -> int:
        """Connections that nobody uses and that can be used again."""
        now = asyncio.get_running_loop().time()
        return sum(lane.open and now - lane.used < IDLE_SECONDS for lane in self._free)

    async def prepare(self, count: int) -> None:
        """Have connections for so many requests at once, which are about to come. Never fails: then those will tell.

        Not to be called again before it has returned.
        """
        missing = count - self._busy - self.kept
        if missing <= 0 or self._general:
            return
        try:
            await self._trusted()
            await for_each(range(missing), self._make, at_once=AHEAD)
        except* (KubeError, ConfigError, OSError) as errors:
            # The first one ends it: the others would fare no better.
            log.debug("no connection made ahead", extra={"error": str(errors.exceptions[0])})

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._sweep is not None and not self._used and not self._waiting:
            self._sweep.cancel()
            self._sweep = None
        self._drop()

    def _drop(self) -> None:
        for lane in self._free:
            lane.close()
        self._free.clear()

    async def _make(self, _: int) -> None:
        """One more connection, for whoever waits for one or comes next."""
        context = self._context
        lane = Lane(await self._connect())
        self._busy += 1
        self._leave(lane, keep=lane.open and context is self._context)

    async def _flow(self, request: Request, idle: timedelta | None) -> Flow | None:
        """A watch; None if the credentials have to be renewed, which the other transport does."""
        credentials = self._connection.credentials
        sent = await credentials.headers()
        flow = None
        try:
            await self._trusted()
            flow = Flow(await self._connect(), str(request), idle)
            async with asyncio.timeout((idle or PATIENCE).total_seconds()):
                response = await flow.ask(self._text(request, sent))
        except BaseException as error:
            if flow is not None:
                flow.close()
            if isinstance(error, OSError):
                raise _unanswered(request, error) from error
            raise
        if response.status == 401 and credentials.rejected(sent):
            flow.close()
            return None
        self._note_warnings(response)
        return flow

    def _note_warnings(self, response: Response) -> None:
        if "warning" in response.headers:
            for text in warnings((response.headers["warning"],)):
                self._warn(text)

    async def _exchange(self, text: bytes, seconds: float) -> Response:
        lane = await self._lane()
        loop = asyncio.get_running_loop()
        began = loop.time()
        lane.due = began + seconds
        self._used.add(lane)
        self._watch_over()
        try:
            response = await lane.ask(text)
        except BaseException:
            # Cancelled or cut off: what still comes would be taken for the answer to another request.
            self._leave(lane, keep=False)
            raise
        finally:
            self._used.discard(lane)
        lane.used = loop.time()
        self._crowd.answered(lane.used - began, lane.used)
        self._leave(lane, keep=lane.open)
        return response

    async def _lane(self) -> Lane:
        """A connection that nobody else uses."""
        await self._trusted()
        lane = self._kept_one()
        if lane is None and self._crowd.is_enough(self._busy):
            lane = await self._turn()
        if lane is not None and lane.open:
            return lane
        if lane is None:
            self._busy += 1
        try:
            return Lane(await self._connect())
        except BaseException:
            self._gone()
            raise

    def _kept_one(self) -> Lane | None:
        """The one used last, so that those too many grow old."""
        now = asyncio.get_running_loop().time()
        while self._free:
            lane = self._free.pop()
            if lane.open and now - lane.used < IDLE_SECONDS:
                self._busy += 1
                return lane
            lane.close()
        return None

    async def _turn(self) -> Lane | None:
        """Wait for a lane, or (None) for leave to make one."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[Lane | None] = loop.create_future()
        self._waiting.append((turn, loop.time()))
        self._watch_over()
        try:
            return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came too late for this one.
                lane = turn.result()
                if lane is not None:
                    self._leave(lane, keep=lane.open)
                else:
                    self._let_one_more()
            raise

    def _leave(self, lane: Lane, *, keep: bool) -> None:
        """A lane is free again: it goes to whoever has waited longest."""
        if not keep:
            lane.close()
            self._gone()
        elif (turn := self._next()) is not None:
            turn.set_result(lane)
        else:
            self._busy -= 1
            self._free.append(lane)
        if self._waiting and not self._crowd.is_enough(self._busy):
            self._let_one_more()

    def _gone(self) -> None:
        """One less is busy: another may be made in its place."""
        self._busy -= 1
        self._let_one_more()

    def _let_one_more(self) -> None:
        turn = self._next()
        if turn is not None:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[Lane | None] | None:
        while self._waiting:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                return turn
        return None

    def _watch_over(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._look)

    def _look(self) -> None:
        """End what takes too long, and let those make a lane who have waited for one long enough."""
        self._sweep = None
        now = asyncio.get_running_loop().time()
        for lane in [lane for lane in self._used if lane.due <= now]:
            lane.give_up()
        while self._waiting and self._waiting[0][1] + LONGEST_TURN <= now:
            self._let_one_more()
        if self._used or self._waiting:
            self._watch_over()

    async def _connect(self) -> socket.socket:
        tls = self._connection.tls
        name = (tls.server_name or self._host) if tls is not None else None
        return await connect(
            self._host,
            self._port,
            context=self._context,
            name=name,
            options=KEEPALIVE,
            seconds=CONNECT_SECONDS,
        )

    async def _trusted(self) -> None:
        """A certificate is shown when a connection is made, so a renewed one needs new connections."""
        tls = self._connection.tls
        if tls is None:
            return
        certificate = await self._connection.credentials.client_certificate()
        if self._context is None or certificate is not self._certificate:
            self._certificate, self._context = certificate, ssl_context(tls, certificate)
            self._drop()

    def _text(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        query = _encoded(request.query) if request.query else ""
        if credentials is not self._sent:
            self._sent = credentials
            self._shown = "".join(f"{name}: {value}\r\n" for name, value in credentials.items())
        media = f"Content-Type: {request.content_type}\r\n" if request.content_type else ""
        head = (
            f"{request.method} {self._base}{request.path}{query}{self._middle}Accept: {request.accept}\r\n"
            f"{self._shown}{media}Content-Length: {len(request.body)}\r\n\r\n"
        )
        return head.encode("latin-1") + request.body


def _unanswered(request: Request, error: Exception) -> Unreachable:
    told = "no answer in time" if isinstance(error, TimeoutError) else str(error)
    return Unreachable(f"{request}: {told}")


@lru_cache(maxsize=64)
def _encoded(query: Query) -> str:
    """Of many requests it is the same."""
    return f"?{urlencode(query, quote_via=quote, safe='')}"
