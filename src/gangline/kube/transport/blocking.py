"""Requests without an event loop: for a command that asks a few questions, one after the other, and ends.

Importing asyncio and aiohttp takes longer than most answers. A coroutine that uses this transport alone never waits
for anything but the server, so `answered` can drive it by itself. What streams both ways, goes through a proxy or
needs a program to log in is not for here: `carries` says whether a connection is.
"""

import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Never, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from gangline import __version__
from gangline.base.clock import SystemClock, Timer
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import Anonymous, TokenFile
from gangline.kube.config.tls import ssl_context
from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Request, Response, Stream
from gangline.kube.transport.warnings import Once, Warn, logged, warnings

T = TypeVar("T")

PATIENCE = timedelta(seconds=60)
CONNECT_SECONDS = 10.0
CHUNK = 256 * 1024


def carries(connection: Connection) -> bool:
    """Whether this transport can speak to that server: no proxy, no login by a program."""
    return connection.proxy is None and isinstance(connection.credentials, Anonymous | TokenFile)


def answered(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for a blocking transport only. Raises what it raises."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise RuntimeError("the coroutine waits for something else than a blocking transport")


class BlockingClock(SystemClock):
    """Waits by holding everything up, as everything else here does."""

    async def sleep(self, duration: timedelta) -> None:
        time.sleep(max(0.0, duration.total_seconds()))  # noqa: ASYNC251 - there is no event loop to hold up

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        raise RuntimeError("there is no event loop to call back from")


class BlockingTransport:
    """One connection to one server, kept between requests. A context manager. Warnings go to `warn`, each text once."""

    def __init__(
        self,
        connection: Connection,
        *,
        warn: Warn = logged,
        agent: str = "gangline",
        patience: timedelta = PATIENCE,
    ) -> None:
        self._connection, self._warn, self._patience = connection, Once(warn), patience
        self._agent = f"{agent}/{__version__}"
        self._wire: _Wire | None = None
        # Answers that were asked for ahead.
        self._early: list[tuple[Request, Response]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._hang_up()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        for at, (asked, answer) in enumerate(self._early):
            if asked == request:
                del self._early[at]
                return answer
        sent = await self._connection.credentials.headers()
        answer = self._ask(request, sent, timeout or self._patience)
        if answer.status == 401 and self._connection.credentials.rejected(sent):
            again = await self._connection.credentials.headers()
            answer = self._ask(request, again, timeout or self._patience)
        return answer

    async def ahead(self, requests: Sequence[Request]) -> None:
        """Ask several small GETs at once, one after the other on the connection; `send` then has their answers.

        So they take as long as one. Whatever goes wrong is left to `send`, which asks again.
        """
        sent = await self._connection.credentials.headers()
        try:
            wire = self._connect(self._patience)
            wire.socket.sendall(b"".join(self._written(request, sent) for request in requests))
            for request in requests:
                answer = self._heard(wire)
                if answer.status not in (401, 429) and answer.status < 500:
                    self._early.append((request, answer))
                if self._wire is None:
                    return
        except (_Closed, OSError, ValueError, Unreachable):
            self._hang_up()

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[Stream]:
        """The answer in one piece: good for a log that is not followed."""
        yield _Whole(await self.send(request, timeout=idle))

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise RuntimeError(f"{request}: a WebSocket needs an event loop")

    def _ask(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        kept = self._wire is not None
        with _translated(request, self._connection):
            try:
                return self._exchange(request, credentials, patience)
            except (_Closed, ConnectionError):
                self._hang_up()
                # A kept connection that the server closed just now: it has not seen the request.
                if not kept or request.method not in ("GET", "DELETE"):
                    raise
                return self._exchange(request, credentials, patience)
            except BaseException:
                self._hang_up()
                raise

    def _exchange(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        wire = self._connect(patience)
        wire.socket.sendall(self._written(request, credentials))
        return self._heard(wire)

    def _connect(self, patience: timedelta) -> "_Wire":
        wire = self._wire = self._wire or _Wire(_connected(self._connection))
        wire.socket.settimeout(patience.total_seconds())
        return wire

    def _heard(self, wire: "_Wire") -> Response:
        """The next answer. A connection that the server will close is given up."""
        status, headers = wire.head()
        body = wire.body(headers)
        if headers.get("connection", [""])[-1].lower() == "close":
            self._hang_up()
        for text in warnings(headers.get("warning", ())):
            self._warn(text)
        return Response(status, body, {name: values[-1] for name, values in headers.items()})

    def _written(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        server = urlsplit(self._connection.server)
        query = urlencode(request.query, quote_via=quote, safe="")
        impersonate = self._connection.impersonate
        lines = [
            f"{request.method} {server.path}{request.path}{'?' if query else ''}{query} HTTP/1.1",
            f"Host: {server.netloc}",
            f"User-Agent: {self._agent}",
            f"Accept: {request.accept}",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in credentials.items()),
            *(f"{name}: {value}" for name, value in (impersonate.headers() if impersonate else ())),
            *([f"Content-Type: {request.content_type}"] if request.content_type else []),
            *([f"Content-Length: {len(request.body)}"] if request.body or request.method != "GET" else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + request.body

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None


class _Closed(Exception):
    """The server ended the connection before it had answered."""


class _Wire:
    """A connected socket, and what was read ahead of it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._ahead = b""

    def head(self) -> tuple[int, dict[str, list[str]]]:
        """Status and headers, names in lower case."""
        first, *fields = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise Unreachable("the answer is not HTTP")
        headers: dict[str, list[str]] = {}
        for field in fields:
            name, _, value = field.partition(":")
            headers.setdefault(name.strip().lower(), []).append(value.strip())
        return int(words[1]), headers

    def body(self, headers: Mapping[str, list[str]]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", [""])[-1].lower():
            return b"".join(self._chunks())
        length = headers.get("content-length", [""])[-1]
        if length.isdecimal():
            return self._exactly(int(length))
        if headers.get("connection", [""])[-1].lower() != "close":
            return b""
        parts = [self._ahead]
        while part := self.socket.recv(CHUNK):
            parts.append(part)
        self._ahead = b""
        return b"".join(parts)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            yield self._exactly(size)
            self._exactly(2)
        while self._until(b"\r\n"):
            pass

    def _until(self, end: bytes) -> bytes:
        while end not in self._ahead:
            self._ahead += self._more()
        found, _, self._ahead = self._ahead.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        parts, have = [self._ahead], len(self._ahead)
        while have < size:
            parts.append(self._more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._ahead = whole[size:]
        return whole[:size]

    def _more(self) -> bytes:
        part = self.socket.recv(CHUNK)
        if not part:
            raise _Closed("the server closed the connection")
        return part


class _Whole:
    """A stream that has arrived already."""

    def __init__(self, response: Response) -> None:
        self._response = response

    @property
    def response(self) -> Response:
        return self._response

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._response.body


def _connected(connection: Connection) -> socket.socket:
    server = urlsplit(connection.server)
    secure = server.scheme == "https"
    address = (server.hostname or "", server.port or (443 if secure else 80))
    plain = socket.create_connection(address, timeout=CONNECT_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not secure or connection.tls is None:
        return plain
    try:
        name = connection.tls.server_name or address[0]
        return ssl_context(connection.tls).wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


@contextmanager
def _translated(request: Request, connection: Connection) -> Iterator[None]:
    """Foreign errors of a request become ours, once, here."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(_untrusted(error, connection)) from error
    except TimeoutError as error:
        raise Unreachable(f"{request}: no answer in time") from error
    except ValueError as error:
        raise StreamBroken(f"{request}: the answer is garbled") from error
    except (_Closed, OSError) as error:
        raise Unreachable(f"{connection.server}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return getattr(error, "strerror", "") or str(error) or type(error).__name__


def _untrusted(error: ssl.SSLCertVerificationError, connection: Connection) -> str:
    """Where the trust comes from, why it does not reach this server, and what to write."""
    ca = connection.tls.ca if connection.tls else None
    where = ca.where if ca else f"{connection.source or connection.server}: certificate-authority"
    return (
        f"{where}: does not vouch for {urlsplit(connection.server).netloc} ({error.verify_message}); "
        "give the CA that signed the server's certificate, or tls-server-name if only the name differs"
    )
