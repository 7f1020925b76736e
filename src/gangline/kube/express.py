"""Many small requests at less than half the price: HTTP/1.1 on kept connections, and nothing that a binding does not need.

A general client spends more time on a binding than the decision that led to it. `Express` carries whole requests with
whole answers by itself, and leaves everything else (streams, WebSockets, proxies, a 401 with credentials that can be
renewed, reads) to the transport it stands before. The contract is that of `Transport`: a request is sent once; without an
answer `Unreachable` is raised, and the server may have done it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

from gangline import __version__
from gangline.kube.config import Connection
from gangline.kube.errors import Unreachable
from gangline.kube.http import CONNECT_SECONDS, PATIENCE
from gangline.kube.tls import ClientCertificate, ssl_context
from gangline.kube.transport import Frames, Request, Response, Stream, Transport
from gangline.kube.warning import Once, Warn, logged, warnings

IDLE_SECONDS = 15.0
"""A connection that was not used for so long is not used again: the server may be about to close it."""
LONGEST_HEAD = 64 * 1024
WRITES = ("POST", "PATCH")
"""What comes in large numbers. Reads may be long, and may be repeated on a new connection: the other transport does that."""


class _Lane(asyncio.Protocol):
    """One connection: one request at a time, and the answer to it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.used = 0.0
        self._answer: asyncio.Future[Response] | None = None
        self._received = bytearray()
        self._parts: list[bytes] = []
        # Once the head of an answer is there: its status, headers, and how long its body is (None: in chunks).
        self._head: tuple[int, dict[str, str], int | None] | None = None
        self._keeps = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._fail(str(error) if error is not None else "the server closed the connection")

    @property
    def open(self) -> bool:
        return self.transport is not None and self._keeps and not self.transport.is_closing()

    def ask(self, text: bytes) -> asyncio.Future[Response]:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._head = None
        self.transport.write(text)
        return self._answer

    def close(self) -> None:
        if self.transport is not None:
            # Not `close`: a TLS goodbye may take long and serves nobody.
            self.transport.abort()

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
            answer, self._answer = self._answer, None
            if answer is not None and not answer.done():
                answer.set_result(response)

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(Unreachable(why))

    def _read(self) -> Response | None:
        """The answer, once all of it is there. Raises ValueError."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > LONGEST_HEAD:
                    raise ValueError("its head has no end")
                return None
            self._head = self._begin(bytes(self._received[:end]))
            del self._received[: end + 4]
        status, headers, length = self._head
        body = self._chunks() if length is None else self._counted(length)
        if body is None:
            return None
        self._head = None
        return Response(status, body, headers)

    def _begin(self, head: bytes) -> tuple[int, dict[str, str], int | None]:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"it begins with {first[:50]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._keeps = "close" not in headers.get("connection", "").lower() and version != "HTTP/1.0"
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return int(rest[:3]), headers, None
        if "content-length" not in headers and int(rest[:3]) not in (204, 304):
            raise ValueError("it does not say how long it is")
        return int(rest[:3]), headers, int(headers.get("content-length", "0"))

    def _counted(self, length: int) -> bytes | None:
        if len(self._received) < length:
            return None
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    def _chunks(self) -> bytes | None:
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                return None
            size = int(bytes(self._received[:end]).partition(b";")[0], 16)
            begin = end + 2
            if size < 0:
                raise ValueError("a chunk is less than nothing")
            if len(self._received) < begin + size + 2:
                return None
            self._parts.append(bytes(self._received[begin : begin + size]))
            del self._received[: begin + size + 2]
            if size == 0:
                # No server of ours sends trailers.
                body, self._parts = b"".join(self._parts), []
                return body


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
        self._fixed = {
            "Host": place.netloc,
            "User-Agent": f"{agent}/{__version__}",
            "Accept-Encoding": "identity",
            **(dict(connection.impersonate.headers()) if connection.impersonate is not None else {}),
        }
        # Impersonated groups come as several headers of one name.
        self._general = connection.proxy is not None or (
            connection.impersonate is not None
            and len(self._fixed) < 3 + len(tuple(connection.impersonate.headers()))
        )
        self._free: list[_Lane] = []
        self._certificate: ClientCertificate | None = None
        self._context: ssl.SSLContext | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self._general or request.method not in WRITES:
            return await self._other.send(request, timeout=timeout)
        credentials = self._connection.credentials
        sent = await credentials.headers()
        try:
            async with asyncio.timeout((timeout or PATIENCE).total_seconds()):
                response = await self._exchange(request, self._text(request, sent))
        except TimeoutError as error:
            raise Unreachable(f"{request}: no answer in time") from error
        except (OSError, Unreachable) as error:
            raise Unreachable(f"{request}: {error}") from error
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
        for lane in self._free:
            lane.close()
        self._free.clear()

    async def _exchange(self, request: Request, text: bytes) -> Response:
        lane = await self._lane()
        try:
            response = await lane.ask(text)
        except BaseException:
            # Cancelled or cut off: what still comes would be taken for the answer to another request.
            lane.close()
            raise
        if lane.open:
            lane.used = asyncio.get_running_loop().time()
            self._free.append(lane)
        else:
            lane.close()
        return response

    async def _lane(self) -> _Lane:
        """A connection nobody uses: the one used last, so that those too many grow old."""
        await self._trusted()
        now = asyncio.get_running_loop().time()
        while self._free:
            lane = self._free.pop()
            if lane.open and now - lane.used < IDLE_SECONDS:
                return lane
            lane.close()
        async with asyncio.timeout(CONNECT_SECONDS):
            tls = self._connection.tls
            name = (tls.server_name or self._host) if tls is not None else None
            _, made = await asyncio.get_running_loop().create_connection(
                _Lane, self._host, self._port, ssl=self._context, server_hostname=name
            )
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
        query = f"?{urlencode(request.query, quote_via=quote, safe='')}" if request.query else ""
        head = [f"{request.method} {self._base}{request.path}{query} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in self._fixed.items()]
        head += [f"{name}: {value}" for name, value in credentials.items()]
        head.append(f"Accept: {request.accept}")
        if request.content_type:
            head.append(f"Content-Type: {request.content_type}")
        head.append(f"Content-Length: {len(request.body)}\r\n\r\n")
        return "\r\n".join(head).encode("latin-1") + request.body
