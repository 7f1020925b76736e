"""A transport without an event loop, for commands that send a few requests and end.

Importing asyncio and aiohttp takes longer than most responses. A coroutine that awaits only this transport never
suspends, so `run_without_loop` can run it. WebSockets, proxies and exec credential plugins are not supported; `supports`
tells whether a connection can be used.
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
from gangline.kube.config.connection import Connection, untrusted_certificate_message
from gangline.kube.config.credentials import Anonymous, TokenFile
from gangline.kube.config.tls import ssl_context
from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import CONNECT_SECONDS, REQUEST_TIMEOUT, Request, Response, ResponseStream
from gangline.kube.transport.http1 import Head, ResponseParser
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

T = TypeVar("T")

RECV_BYTES = 256 * 1024


def supports(connection: Connection) -> bool:
    """Whether this transport can use a connection: it has no proxy and no exec credential plugin."""
    return connection.proxy is None and isinstance(connection.credentials, Anonymous | TokenFile)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing but a blocking transport. Raises RuntimeError for any other."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise RuntimeError("the coroutine waits for something else than a blocking transport")


class BlockingClock(SystemClock):
    """A clock whose `sleep` blocks the thread."""

    async def sleep(self, duration: timedelta) -> None:
        time.sleep(max(0.0, duration.total_seconds()))  # noqa: ASYNC251 - there is no event loop to block

    def call_later(self, delay: timedelta, callback: Callable[[], object]) -> Timer:
        raise RuntimeError("there is no event loop to call back from")


class BlockingTransport:
    """One connection to one server, kept between requests. A context manager.

    Warnings of the server are passed to `warn`, each text once.
    """

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
        # Responses of `pipeline` that `send` has not returned yet.
        self._pipelined: list[tuple[Request, Response]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._disconnect()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        for index, (pipelined, response) in enumerate(self._pipelined):
            if pipelined == request:
                del self._pipelined[index]
                return response
        credentials = await self._connection.credentials.headers()
        response = self._exchange_with_retry(request, credentials, timeout or self._timeout)
        if response.status == 401 and self._connection.credentials.invalidate(credentials):
            renewed = await self._connection.credentials.headers()
            response = self._exchange_with_retry(request, renewed, timeout or self._timeout)
        return response

    async def pipeline(self, requests: Sequence[Request]) -> None:
        """Send several small GETs at once; a later `send` of one of them returns its response.

        So all take one round trip. After an error `send` sends the request again.
        """
        credentials = await self._connection.credentials.headers()
        try:
            connected = self._connect(self._timeout)
            connected.socket.sendall(b"".join(self._encoded_request(request, credentials) for request in requests))
            for request in requests:
                response = self._read_response(connected)
                if response.status not in (401, 429) and response.status < 500:
                    self._pipelined.append((request, response))
                if self._http_socket is None:
                    return
        except (_ConnectionClosed, OSError, ValueError, Unreachable):
            self._disconnect()

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        """The complete response as a stream: suits a log that is not followed."""
        yield _BufferedStream(await self.send(request, timeout=idle))

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise RuntimeError(f"{request}: a WebSocket needs an event loop")

    def _exchange_with_retry(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        was_connected = self._http_socket is not None
        with _translate_errors(request, self._connection):
            try:
                return self._exchange(request, credentials, patience)
            except (_ConnectionClosed, ConnectionError):
                self._disconnect()
                # The server closed the kept connection before it read the request.
                if not was_connected or request.method not in ("GET", "DELETE"):
                    raise
                return self._exchange(request, credentials, patience)
            except BaseException:
                self._disconnect()
                raise

    def _exchange(self, request: Request, credentials: Mapping[str, str], patience: timedelta) -> Response:
        connected = self._connect(patience)
        connected.socket.sendall(self._encoded_request(request, credentials))
        return self._read_response(connected)

    def _connect(self, patience: timedelta) -> "_HttpSocket":
        connected = self._http_socket = self._http_socket or _HttpSocket(_open_socket(self._connection))
        connected.socket.settimeout(patience.total_seconds())
        return connected

    def _read_response(self, connected: "_HttpSocket") -> Response:
        """The next response. Disconnects if the server will close the connection."""
        head, body = connected.read_response()
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
    """The server closed the connection before the response was complete."""


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
    """A stream over a complete response."""

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
    host, port = server.hostname or "", server.port or (443 if secure else 80)
    address: Any = (_host_name(host), port)  # typeshed does not know that a host may be bytes
    plain = socket.create_connection(address, timeout=CONNECT_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not secure or connection.tls is None:
        return plain
    try:
        name = _host_name(connection.tls.server_name or host)
        return ssl_context(connection.tls).wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def _host_name(name: str) -> str | bytes:
    """The name for `socket` and `ssl`: as bytes if it is ASCII, because they load tables of Unicode to encode a text."""
    return name.encode() if name.isascii() else name


@contextmanager
def _translate_errors(request: Request, connection: Connection) -> Iterator[None]:
    """Raise errors of the socket and the parser as `KubeError`."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        address = urlsplit(connection.server).netloc
        raise Unreachable(untrusted_certificate_message(connection, address, error.verify_message)) from error
    except TimeoutError as error:
        raise Unreachable(f"{request}: no answer in time") from error
    except ValueError as error:
        raise StreamBroken(f"{request}: the answer is garbled") from error
    except (_ConnectionClosed, OSError) as error:
        raise Unreachable(f"{connection.server}: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", "") or str(error) or type(error).__name__
