"""Many small requests at less than half the price: HTTP/1.1 on kept connections, and nothing that a binding does not need.

A general client spends more time on a binding than the decision that led to it. `Express` carries whole requests with
whole answers by itself, and leaves everything else (streams, WebSockets, proxies, a 401 with credentials that can be
renewed, reads) to the transport it stands before. The contract is that of `Transport`: a request is sent once; without an
answer `Unreachable` is raised, and the server may have done it. Connections are made while more of them help: a request
beyond that waits here for one to be free, the oldest first.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit

from gangline import __version__
from gangline.kube.config import Connection
from gangline.kube.crowd import Crowd
from gangline.kube.errors import Unreachable
from gangline.kube.http import CONNECT_SECONDS, KEEPALIVE, PATIENCE
from gangline.kube.lane import Lane
from gangline.kube.tls import ClientCertificate, ssl_context
from gangline.kube.transport import Frames, Query, Request, Response, Stream, Transport
from gangline.kube.warning import Once, Warn, logged, warnings

IDLE_SECONDS = 60.0
"""A connection that was not used for so long is not used again: the server, which keeps it for 90, may be about to close
it. Meanwhile the kernel asks whether it is still there, so nobody between us and the server forgets it."""
LONGEST_TURN = 0.5
"""So long a request waits at most for a connection to be free. The others may be held up by something that is not the
server: a webhook that hangs, say, for one namespace."""
SWEEP_SECONDS = 0.1
"""How often it is looked whether somebody waits too long. A timer for each would cost more than their requests."""
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
            told = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise Unreachable(f"{request}: {told}") from error
        if response.status == 401 and credentials.rejected(sent):
            return await self._other.send(request, timeout=timeout)
        if "warning" in response.headers:
            for text in warnings((response.headers["warning"],)):
                self._warn(text)
        return response

    def stream(
        self, request: Request, *, idle: timedelta | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        return self._other.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[Frames]:
        return self._other.frames(request, protocols)

    @property
    def kept(self) -> int:
        """Connections that nobody uses and that can be used again."""
        return sum(lane.open for lane in self._free)

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._sweep is not None and not self._used and not self._waiting:
            self._sweep.cancel()
            self._sweep = None
        for lane in self._free:
            lane.close()
        self._free.clear()

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
            return await self._connect()
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

    async def _connect(self) -> Lane:
        tls = self._connection.tls
        name = (tls.server_name or self._host) if tls is not None else None
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, made = await asyncio.get_running_loop().create_connection(
                Lane, self._host, self._port, ssl=self._context, server_hostname=name
            )
        for option in KEEPALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
        return made

    async def _trusted(self) -> None:
        """A certificate is shown when a connection is made, so a renewed one needs new connections."""
        tls = self._connection.tls
        if tls is None:
            return
        certificate = await self._connection.credentials.client_certificate()
        if self._context is None or certificate is not self._certificate:
            self._certificate, self._context = certificate, ssl_context(tls, certificate)
            self.close()

    def _text(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        query = _encoded(request.query) if request.query else ""
        head = [f"{request.method} {self._base}{request.path}{query}{self._middle}Accept: {request.accept}"]
        head += [f"{name}: {value}" for name, value in credentials.items()]
        if request.content_type:
            head.append(f"Content-Type: {request.content_type}")
        head.append(f"Content-Length: {len(request.body)}\r\n\r\n")
        return "\r\n".join(head).encode("latin-1") + request.body


@lru_cache(maxsize=64)
def _encoded(query: Query) -> str:
    """Of many requests it is the same."""
    return f"?{urlencode(query, quote_via=quote, safe='')}"
