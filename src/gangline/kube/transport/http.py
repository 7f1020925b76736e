"""The general transport: aiohttp with TLS, credentials and proxies."""

import io
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from gangline import __version__
from gangline.kube.config.connection import Connection, SocketOpener, untrusted_certificate_message
from gangline.kube.config.tls import ClientCertificate, ssl_context
from gangline.kube.errors import StreamBroken, Unauthorized, Unreachable
from gangline.kube.transport.api import (
    CONNECT_SECONDS,
    REQUEST_TIMEOUT,
    Request,
    Response,
    ResponseStream,
    WebSocket,
    response_error,
)
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

LONG_BODY_BYTES = 256 * 1024

# A watch may be silent for a minute, so the kernel detects a dead peer: after 30 s, with three probes 10 s apart.
KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)


class HttpTransport:
    """Connections to one server. Use it as an async context manager; it connects with the first request.

    There are as many connections as concurrent requests; idle ones are kept for a few seconds. A request is sent once,
    except that after a 401 it is sent again with renewed credentials, and that a GET or DELETE is sent again when the
    server closed its kept connection. Warnings of the server are passed to `warn`, each text once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        warn: WarningHandler = log_warning,
        agent: str = "gangline",
        patience: timedelta = REQUEST_TIMEOUT,
    ) -> None:
        self._connection = connection
        self._warn = DeduplicatedWarnings(warn)
        self._user_agent = f"{agent}/{__version__}"
        self._timeout = patience
        self._entered = False
        self._pool: _SessionPool | None = None
        self._retired: list[_SessionPool] = []

    async def __aenter__(self) -> Self:
        self._entered = True
        # Not with the first request: an unusable client certificate is reported here.
        async with self._session():
            return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        pools, self._pool, self._retired = [*self._retired, self._pool], None, []
        for pool in pools:
            if pool is not None:
                await pool.session.close()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        seconds = (timeout or self._timeout).total_seconds()
        limit = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._open_response(request, limit) as answer:
            with _translate_errors(request, self._connection):
                return Response(answer.status, await answer.read(), _lowercase_headers(answer))

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        limit = aiohttp.ClientTimeout(
            total=None,
            connect=CONNECT_SECONDS,
            sock_connect=CONNECT_SECONDS,
            sock_read=idle.total_seconds() if idle else None,
        )
        async with self._open_response(request, limit) as answer:
            with _translate_errors(request, self._connection):
                body = await answer.read() if answer.status >= 300 else b""
            yield _AiohttpStream(answer, Response(answer.status, body, _lowercase_headers(answer)), request)

    @asynccontextmanager
    async def frames(self, request: Request, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        for last in (False, True):
            async with self._session() as session:
                sent = await self._connection.credentials.headers()
                try:
                    socket_ = await self._handshake(session, request, protocols, sent)
                except Unauthorized:
                    if last or not self._connection.credentials.invalidate(sent):
                        raise
                    continue
                try:
                    yield _AiohttpWebSocket(socket_, request)
                finally:
                    await socket_.close()
                    socket_.abort()
                return

    async def _handshake(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        protocols: tuple[str, ...],
        credentials: Mapping[str, str],
    ) -> "_AbortableWebSocket":
        with _translate_errors(request, self._connection):
            opened = await session.ws_connect(
                self._url(request),
                protocols=protocols,
                headers=self._request_headers(request, credentials),
                method=request.method,
                timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_SECONDS),
                **self._connection_options(),
            )
        assert isinstance(opened, _AbortableWebSocket)
        return opened

    @asynccontextmanager
    async def _open_response(
        self, request: Request, limit: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        for last in (False, True):
            async with self._session() as session:
                sent = await self._connection.credentials.headers()
                if request.precheck is not None:
                    request.precheck()
                with _translate_errors(request, self._connection):
                    answer = await session.request(
                        request.method,
                        self._url(request),
                        data=_payload(request.body),
                        headers=self._request_headers(request, sent),
                        timeout=limit,
                        allow_redirects=False,
                        **self._connection_options(),
                    )
                async with answer:
                    if answer.status == 401 and not last and self._connection.credentials.invalidate(sent):
                        continue
                    for text in warning_texts(answer.headers.getall("Warning", ())):
                        self._warn(text)
                    try:
                        yield answer
                    finally:
                        # The body was not read to its end, as with every watch: skip the TLS shutdown, which may take long.
                        if answer.connection is not None and answer.connection.transport is not None:
                            answer.connection.transport.abort()
                    return

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """The session for one request.

        A client certificate is presented when connecting, so a renewed one needs new connections. The old ones are closed
        when the last request on them has ended.
        """
        if not self._entered:
            raise RuntimeError("HttpTransport is used outside of its `async with`")
        tls = self._connection.tls
        certificate = await self._connection.credentials.client_certificate() if tls else None
        pool = self._pool
        if pool is None or pool.certificate is not certificate:
            self._retired += [pool] if pool else []
            pool = self._pool = self._new_pool(certificate)
        pool.users += 1
        try:
            await self._close_unused()
            yield pool.session
        finally:
            pool.users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        unused = [pool for pool in self._retired if not pool.users]
        self._retired = [pool for pool in self._retired if pool.users]
        for pool in unused:
            await pool.session.close()

    def _new_pool(self, certificate: ClientCertificate | None) -> "_SessionPool":
        session = aiohttp.ClientSession(
            connector=_connector(self._connection, certificate),
            # Compression costs the server more than it saves the client.
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
            cookie_jar=aiohttp.DummyCookieJar(),
            # For WebSocket handshakes; other requests have their own timeout.
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=CONNECT_SECONDS,
                sock_connect=CONNECT_SECONDS,
                sock_read=self._timeout.total_seconds(),
            ),
            middlewares=(_reject_failed_upgrade,),
            ws_response_class=_AbortableWebSocket,
        )
        return _SessionPool(session, certificate)

    def _url(self, request: Request) -> URL:
        # Escaped here and not by yarl, which leaves semicolons: Go rejects them.
        query = urlencode(request.query, quote_via=quote, safe="")
        return URL(f"{self._connection.server}{request.path}{'?' if query else ''}{query}", encoded=True)

    def _request_headers(self, request: Request, credentials: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict(credentials)
        headers["Accept"] = request.accept
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if request.trace_parent:
            headers["traceparent"] = request.trace_parent
        if self._connection.impersonate is not None:
            headers.extend(self._connection.impersonate.headers())
        return headers

    def _connection_options(self) -> dict[str, Any]:
        """Proxy and server name, which aiohttp takes per request."""
        tls = self._connection.tls
        return {"proxy": self._connection.proxy, "server_hostname": tls.server_name if tls else None}


def _connector(connection: Connection, certificate: ClientCertificate | None) -> aiohttp.BaseConnector:
    if connection.open_socket is not None:
        return _SocketConnector(connection.open_socket)
    tls = connection.tls
    return aiohttp.TCPConnector(
        limit=0,
        # Also set for plain HTTP, because the proxy may use TLS.
        ssl=ssl_context(tls, certificate) if tls is not None else True,
        socket_factory=_create_socket,
    )


class _SocketConnector(aiohttp.BaseConnector):
    """Connects by sockets that a function opens."""

    def __init__(self, open_socket: SocketOpener) -> None:
        super().__init__(limit=0)
        self._open_socket = open_socket

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        try:
            opened = await self._open_socket()
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        _, protocol = await self._loop.create_connection(self._factory, sock=opened)
        return protocol


class _SessionPool:
    """The connections with one client certificate, and the number of requests that use them."""

    def __init__(self, session: aiohttp.ClientSession, certificate: ClientCertificate | None) -> None:
        self.session, self.certificate = session, certificate
        self.users = 0


# Iterators and not generators, so that nothing needs closing when they are left early.


class _AiohttpStream:
    """A response whose body is still arriving."""

    def __init__(self, answer: aiohttp.ClientResponse, response: Response, request: Request) -> None:
        self._http_response, self._response, self._request = answer, response, request

    @property
    def response(self) -> Response:
        return self._response

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._http_response.content.readany()
        except aiohttp.SocketTimeoutError as error:
            raise StreamBroken(f"{self._request}: nothing arrived for a while, the connection may be dead") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StreamBroken(f"{self._request}: cut off: {_error_text(error)}") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


class _AbortableWebSocket(aiohttp.ClientWebSocketResponse):
    """A WebSocket of aiohttp whose connection can be aborted."""

    def __init__(
        self,
        reader: Any,
        writer: Any,
        protocol: str | None,
        response: aiohttp.ClientResponse,
        *rest: Any,
        **more: Any,
    ) -> None:
        super().__init__(reader, writer, protocol, response, *rest, **more)
        self._tcp_transport = response.connection.transport if response.connection is not None else None

    def abort(self) -> None:
        """Call after `close`: do not wait for the TLS shutdown."""
        # Python before 3.11.5 raises this for a transport that was closed twice: by us, and by the other side.
        with suppress(AttributeError):
            if self._tcp_transport is not None:
                self._tcp_transport.abort()


class _AiohttpWebSocket:
    """The `WebSocket` protocol over aiohttp."""

    def __init__(self, socket_: _AbortableWebSocket, request: Request) -> None:
        self._socket, self._request = socket_, request
        # Kept here: aiohttp reports an error instead of the end if its own close frame finds the connection closed.
        self._ended = False

    @property
    def protocol(self) -> str:
        return self._socket.protocol or ""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        message = await self._socket.receive()
        match message.type:
            case aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                return data
            case aiohttp.WSMsgType.TEXT:
                return str(message.data).encode()
            case aiohttp.WSMsgType.CLOSED if self._socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                raise self._stream_broken(self._socket.exception())
            case aiohttp.WSMsgType.ERROR:
                raise self._stream_broken(self._socket.exception())
        self._ended = True
        raise StopAsyncIteration

    async def send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, OSError) as error:
            raise self._stream_broken(error) from error

    async def close(self) -> None:
        await self._socket.close()

    def _stream_broken(self, error: BaseException | None) -> StreamBroken:
        return StreamBroken(f"{self._request}: cut off: {_error_text(error) if error else 'the connection was lost'}")


async def _reject_failed_upgrade(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Middleware: a failed WebSocket handshake raises its Status, and is neither redirected nor repeated.

    aiohttp would drop the Status, and would send the request again when the connection breaks because it is a GET; but
    this GET starts a command.
    """
    if "Upgrade" not in request.headers:
        return await handler(request)
    try:
        answer = await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Unreachable(f"{request.method} {request.url.path}: {_error_text(error)}") from error
    if answer.status == 101:
        return answer
    async with answer:
        refusal = response_error(Response(answer.status, await answer.read(), _lowercase_headers(answer)))
    raise refusal or Unreachable(f"{request.method} {request.url.path}: the server speaks no WebSocket here")


@contextmanager
def _translate_errors(request: Request, connection: Connection) -> Iterator[None]:
    """Raise errors of aiohttp and of the socket as `Unreachable`."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise Unreachable(untrusted_certificate_message(connection, f"{error.host}:{error.port}", reason)) from error
    except aiohttp.ClientHttpProxyError as error:
        # The error's own text contains the proxy's URL, which may contain a password.
        raise Unreachable(f"{request}: the proxy refused: {error.status} {error.message}") from None
    except TimeoutError as error:
        raise Unreachable(f"{request}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{request}: {_error_text(error)}") from error


def _error_text(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """The request body. aiohttp writes a long one in pieces, so that other tasks can run."""
    return io.BytesIO(body) if len(body) > LONG_BODY_BYTES else body or None


def _lowercase_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _create_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    created = socket.socket(family, kind, protocol)
    created.setblocking(False)  # noqa: FBT003 - the standard library's signature
    if family in (socket.AF_INET, socket.AF_INET6):
        for level, option, value in KEEPALIVE_OPTIONS:
            created.setsockopt(level, option, value)
    return created
