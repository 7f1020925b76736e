"""Requests without an event loop: for a command that asks a few questions, one after the other, and ends.

Importing asyncio and aiohttp takes longer than most answers. A coroutine that uses this transport alone never waits
for anything but the server, so `run_without_loop` can drive it by itself. What streams both ways, goes through a proxy or
needs a program to log in is not for here: `supports` says whether a connection is.
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
from gangline.kube.transport.api import Request, Response, ResponseStream
from gangline.kube.transport.http1 import Head, ResponseParser
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

T = TypeVar("T")

REQUEST_TIMEOUT = timedelta(seconds=60)
CONNECT_SECONDS = 10.0
RECV_BYTES = 256 * 1024


def supports(connection: Connection) -> bool:
    """Whether this transport can speak to that server: no proxy, no login by a program."""
    return connection.proxy is None and isinstance(connection.credentials, Anonymous | TokenFile)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
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
        warn: WarningHandler = log_warning,
        agent: str = "gangline",
        patience: timedelta = REQUEST_TIMEOUT,
    ) -> None:
        self._connection, self._warn, self._timeout = connection, DeduplicatedWarnings(warn), patience
        self._user_agent = f"{agent}/{__version__}"
        self._http_socket: _HttpSocket | None = None
        # Answers that were asked for ahead.
        self._pipelined: list[tuple[Request, Response]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._disconnect()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        for at, (asked, answer) in enumerate(self._pipelined):
            if asked == request:
                del self._pipelined[at]
                return answer
        sent = await self._connection.credentials.headers()
        answer = self._exchange_with_retry(request, sent, timeout or self._timeout)
        if answer.status == 401 and self._connection.credentials.invalidate(sent):
            again = await self._connection.credentials.headers()
            answer = self._exchange_with_retry(request, again, timeout or self._timeout)
        return answer

    async def pipeline(self, requests: Sequence[Request]) -> None:
        """Ask several small GETs at once, one after the other on the connection; `send` then has their answers.

        So they take as long as one. Whatever goes wrong is left to `send`, which asks again.
        """
        sent = await self._connection.credentials.headers()
        try:
            wire = self._connect(self._timeout)
            wire.socket.sendall(b"".join(self._encoded_request(request, sent) for request in requests))
            for request in requests:
                answer = self._read_response(wire)
                if answer.status not in (401, 429) and answer.status < 500:
                    self._pipelined.append((request, answer))
                if self._http_socket is None:
                    return
        except (_ConnectionClosed, OSError, ValueError, Unreachable):
            self._disconnect()

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        """The answer in one piece: good for a log that is not followed."""
        yield _BufferedStream(await self.send(request, timeout=idle))

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise RuntimeError(f"{request}: a WebSocket needs an event loop")

    def _exchange_with_retry(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        kept = self._http_socket is not None
        with _translate_errors(request, self._connection):
            try:
                return self._exchange(request, credentials, patience)
            except (_ConnectionClosed, ConnectionError):
                self._disconnect()
                # A kept connection that the server closed just now: it has not seen the request.
                if not kept or request.method not in ("GET", "DELETE"):
                    raise
                return self._exchange(request, credentials, patience)
            except BaseException:
                self._disconnect()
                raise

    def _exchange(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        wire = self._connect(patience)
        wire.socket.sendall(self._encoded_request(request, credentials))
        return self._read_response(wire)

    def _connect(self, patience: timedelta) -> "_HttpSocket":
        wire = self._http_socket = self._http_socket or _HttpSocket(_open_socket(self._connection))
        wire.socket.settimeout(patience.total_seconds())
        return wire

    def _read_response(self, wire: "_HttpSocket") -> Response:
        """The next answer. A connection that the server will close is given up."""
        head, body = wire.read_response()
        if not head.keep_alive:
            self._disconnect()
        for text in warning_texts((head.headers.get("warning", ""),)):
            self._warn(text)
        return Response(head.status, body, head.headers)

    def _encoded_request(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        server = urlsplit(self._connection.server)
        query = urlencode(request.query, quote_via=quote, safe="")
        impersonate = self._connection.impersonate
        lines = [
            f"{request.method} {server.path}{request.path}{'?' if query else ''}{query} HTTP/1.1",
            f"Host: {server.netloc}",
            f"User-Agent: {self._user_agent}",
            f"Accept: {request.accept}",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in credentials.items()),
            *(f"{name}: {value}" for name, value in (impersonate.headers() if impersonate else ())),
            *([f"Content-Type: {request.content_type}"] if request.content_type else []),
            *([f"Content-Length: {len(request.body)}"] if request.body or request.method != "GET" else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + request.body

    def _disconnect(self) -> None:
        if self._http_socket is not None:
            self._http_socket.socket.close()
            self._http_socket = None


class _ConnectionClosed(Exception):
    """The server ended the connection before it had answered."""


class _HttpSocket:
    """A connected socket and the parser of what it receives."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._parser = ResponseParser()

    def read_response(self) -> tuple[Head, bytes]:
        """Head and body of the next response. Raises `Unreachable`, `_ConnectionClosed`, ValueError and OSError."""
        parser = self._parser
        try:
            if parser.complete:
                parser.next()
            while not parser.complete:
                data = self.socket.recv(RECV_BYTES)
                if data:
                    parser.feed(data)
                elif not parser.close():
                    raise _ConnectionClosed("the server closed the connection")
        except ValueError as error:
            if parser.head is None:
                raise Unreachable("the answer is not HTTP") from error
            raise
        assert parser.head is not None
        return parser.head, parser.take_body()


class _BufferedStream:
    """A stream that has arrived already."""

    def __init__(self, response: Response) -> None:
        self._response = response

    @property
    def response(self) -> Response:
        return self._response

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._response.body


def _open_socket(connection: Connection) -> socket.socket:
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
def _translate_errors(request: Request, connection: Connection) -> Iterator[None]:
    """Foreign errors of a request become ours, once, here."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(_untrusted_message(error, connection)) from error
    except TimeoutError as error:
        raise Unreachable(f"{request}: no answer in time") from error
    except ValueError as error:
        raise StreamBroken(f"{request}: the answer is garbled") from error
    except (_ConnectionClosed, OSError) as error:
        raise Unreachable(f"{connection.server}: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", "") or str(error) or type(error).__name__


def _untrusted_message(error: ssl.SSLCertVerificationError, connection: Connection) -> str:
    """Where the trust comes from, why it does not reach this server, and what to write."""
    ca = connection.tls.ca if connection.tls else None
    where = ca.location if ca else f"{connection.source or connection.server}: certificate-authority"
    return (
        f"{where}: does not vouch for {urlsplit(connection.server).netloc} ({error.verify_message}); "
        "give the CA that signed the server's certificate, or tls-server-name if only the name differs"
    )
