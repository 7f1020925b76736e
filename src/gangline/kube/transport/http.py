"""Requests over HTTP: aiohttp, TLS, credentials, proxies, and the translation of their errors."""

import io
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gangline import __version__
from gangline.kube.config.connection import Connection
from gangline.kube.config.tls import ClientCertificate, ssl_context
from gangline.kube.errors import StreamBroken, Unauthorized, Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket, response_error
from gangline.kube.transport.warnings import DeduplicatedWarnings, WarningHandler, log_warning, warning_texts

REQUEST_TIMEOUT = timedelta(seconds=60)
"""How long an ordinary request may take. Watches and logs have no such limit."""

CONNECT_SECONDS = 10.0
"""How long a connection may take to come about, and a WebSocket to say goodbye."""

LONG_BODY_BYTES = 256 * 1024

# A watch may be silent for a minute, so a dead peer is noticed by the kernel: 30 s, then three probes 10 s apart.
KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)


class HttpTransport:
    """Connections to one server. An async context manager: inert before, closed after.

    As many connections as there are requests at once; idle ones are kept for a few seconds. A request is sent
    once. Exceptions: a 401 makes renewable credentials renew and is tried a second time, and a GET or DELETE that
    met a kept connection just as the server closed it is sent on a new one. Server warnings go to `warn`, each
    text once; by default to the log.
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
        # Now and not with the first request: a wrong certificate is this caller's error to see.
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
                        # Left before its end, as every watch is. A TLS goodbye may take long and serves nobody.
                        if answer.connection is not None and answer.connection.transport is not None:
                            answer.connection.transport.abort()
                    return

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """The session for one request.

        A certificate is shown when a connection is made, so a renewed one needs new connections. The old ones
        are closed when the last request on them has ended.
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
        tls = self._connection.tls
        connector = aiohttp.TCPConnector(
            limit=0,
            # A value even for plain HTTP, because the proxy may speak TLS.
            ssl=ssl_context(tls, certificate) if tls is not None else True,
            socket_factory=_create_socket,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            # Compression costs the server more than it saves us.
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
            cookie_jar=aiohttp.DummyCookieJar(),
            # For WebSocket handshakes; other requests bring their own.
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
        # Escaped here, once and strictly: Go refuses a bare semicolon, which yarl would leave.
        query = urlencode(request.query, quote_via=quote, safe="")
        return URL(f"{self._connection.server}{request.path}{'?' if query else ''}{query}", encoded=True)

    def _request_headers(self, request: Request, credentials: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict(credentials)
        headers["Accept"] = request.accept
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if self._connection.impersonate is not None:
            headers.extend(self._connection.impersonate.headers())
        return headers

    def _connection_options(self) -> dict[str, Any]:
        """Proxy and server name, which aiohttp wants with each request."""
        tls = self._connection.tls
        return {"proxy": self._connection.proxy, "server_hostname": tls.server_name if tls else None}


class _SessionPool:
    """Connections made with one client certificate, and how many requests use them."""

    def __init__(self, session: aiohttp.ClientSession, certificate: ClientCertificate | None) -> None:
        self.session, self.certificate = session, certificate
        self.users = 0


# These are iterators and not generators: one that is left early leaves nothing to be closed.


class _AiohttpStream:
    """An answer that is still arriving."""

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
    """aiohttp's, that can also be ended at once."""

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
        """After `close`: do not linger for a TLS goodbye."""
        if self._tcp_transport is not None:
            self._tcp_transport.abort()


class _AiohttpWebSocket:
    """A WebSocket as the client wants it."""

    def __init__(self, socket_: _AbortableWebSocket, request: Request) -> None:
        self._socket, self._request = socket_, request
        # Remembered, because aiohttp forgets a proper end when its own goodbye finds the connection closed.
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
    """Around each request: a WebSocket handshake that fails says why, is not redirected and not repeated.

    aiohttp by itself would drop the Status that refuses it, and send it again when the connection breaks, for it
    is a GET: but one that starts a command.
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
        refused = response_error(Response(answer.status, await answer.read(), _lowercase_headers(answer)))
    raise refused or Unreachable(f"{request.method} {request.url.path}: the server speaks no WebSocket here")


@contextmanager
def _translate_errors(request: Request, connection: Connection) -> Iterator[None]:
    """Foreign errors of a request become ours, once, here."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise Unreachable(_untrusted_message(error, connection)) from error
    except aiohttp.ClientHttpProxyError as error:
        # Its own text holds the proxy's URL, and that a password.
        raise Unreachable(f"{request}: the proxy refused: {error.status} {error.message}") from None
    except TimeoutError as error:
        raise Unreachable(f"{request}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{request}: {_error_text(error)}") from error


def _untrusted_message(error: aiohttp.ClientConnectorCertificateError, connection: Connection) -> str:
    """Where the trust comes from, why it does not reach this server, and what to write."""
    ca = connection.tls.ca if connection.tls else None
    where = ca.location if ca else f"{connection.source or connection.server}: certificate-authority"
    reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
    return (
        f"{where}: does not vouch for {error.host}:{error.port} ({reason}); "
        "give the CA that signed the server's certificate, or tls-server-name if only the name differs"
    )


def _error_text(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """A long body is written a piece at a time, so that others have their turn."""
    return io.BytesIO(body) if len(body) > LONG_BODY_BYTES else body or None


def _lowercase_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _create_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    if family in (socket.AF_INET, socket.AF_INET6):
        for level, option, value in KEEPALIVE_OPTIONS:
            made.setsockopt(level, option, value)
    return made
