"""The interface between the client and HTTP: requests, responses, streams and the `Transport` that carries them.

The client builds requests as plain data and knows every URL; a transport only sends them. Tests and the embedded control
plane bring transports of their own.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol, Self, TypeAlias

import msgspec

from gangline.kube.errors import ApiError, Status, error_from_body, error_from_status

QueryParams: TypeAlias = tuple[tuple[str, str], ...]
"""Query parameters in order; a name may occur more than once."""

REQUEST_TIMEOUT = timedelta(seconds=60)
"""How long a request may take by default. Watches and logs have no such limit."""

CONNECT_SECONDS = 10.0
"""How long connecting may take, and the closing handshake of a WebSocket."""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, relative to the server's root."""

    method: str
    path: str
    query: QueryParams = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = "application/json"
    trace_parent: str = ""
    """The span in whose course the request is sent, as the W3C header `traceparent`."""
    precheck: Callable[[], object] | None = None
    """Called just before the request is sent, which may be long after it was made; raises to not send it."""

    @property
    def is_idempotent(self) -> bool:
        """Whether sending the request twice has the same effect as sending it once.

        A POST may create two objects and a JSON patch may append twice; other patches set fields to a value.
        """
        return self.method != "POST" and "json-patch" not in self.content_type

    def __str__(self) -> str:
        # Without query and body: they may be long, and a body may contain a secret.
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return f"Request({str(self)!r})"


class Response(msgspec.Struct, frozen=True):
    """A complete response. Header names are in lower case."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class WebSocket(Protocol):
    """A WebSocket after its handshake. One task may send while another receives."""

    @property
    def protocol(self) -> str:
        """The subprotocol that the server chose."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Received frames until either side closes. Raises `StreamBroken` when the connection is lost.

        Iteration may be stopped and started again.
        """
        ...

    async def send(self, frame: bytes) -> None:
        """Send a binary frame. Raises `StreamBroken` when the connection is lost."""
        ...

    async def close(self) -> None: ...


class ResponseStream(Protocol):
    """A response whose body is still arriving."""

    @property
    def response(self) -> Response:
        """Status and headers; also the body if the status is an error."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The parts of the body as they arrive. Raises `StreamBroken` if the body is cut off."""
        ...


class Transport(Protocol):
    """Sends requests. Returns every response, whatever its status; raises `Unreachable` without one. Cancel-safe."""

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        """The complete response. Without `timeout` the transport's own limit applies."""
        ...

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        """A response that is read while it arrives. Silence longer than `idle` raises `StreamBroken`."""
        ...

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        """A WebSocket. Raises the `ApiError` of a refused handshake."""
        ...


def response_error(response: Response) -> ApiError | None:
    """The error that a response reports; None for a successful one."""
    if response.status < 300:
        return None
    if response.status < 400:
        # Following a redirect would send the token to another server.
        to = response.headers.get("location", "nowhere")
        message = f"the server redirects to {to}, which is not followed; correct the address of the server"
        return error_from_status(Status(code=response.status, message=message))
    return error_from_body(response.status, response.body, _retry_after(response.headers))


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    # Kubernetes sends seconds. Dates, which some proxies send, are ignored: they need synchronized clocks.
    after = headers.get("retry-after", "").strip()
    return timedelta(seconds=int(after)) if after.isascii() and after.isdigit() and len(after) < 10 else None


class LineReader:
    """The lines of a body without their line ends; the last line may lack one.

    Empty lines are left out unless `blank`. A line longer than `longest` bytes is returned in pieces. An iterator and not
    a generator, so that nothing needs closing when it is left early.
    """

    def __init__(self, chunks: AsyncIterator[bytes], *, blank: bool = False, longest: int | None = None) -> None:
        self._chunks, self._keep_blank, self._max_bytes = chunks, blank, longest
        self._complete_lines: deque[bytes] = deque()
        # Parts of the incomplete line, joined once per line: an object of megabytes arrives in hundreds of chunks.
        self._parts: list[bytes] = []
        self._size = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._complete_lines:
            try:
                self._split_chunk(await anext(self._chunks))
            except StopAsyncIteration:
                if not self._size:
                    raise
                self._complete_lines.append(self._take_line())
        return self._complete_lines.popleft()

    def _split_chunk(self, chunk: bytes) -> None:
        # One split per chunk, not per line: a chunk of a busy watch has hundreds of lines.
        first, *others = chunk.split(b"\n")
        self._append_part(first)
        if others:
            *complete, incomplete = self._take_line(), *others
            self._complete_lines.extend(complete if self._keep_blank else filter(None, complete))
            self._append_part(incomplete)
        if self._max_bytes is not None and self._size > self._max_bytes:
            self._complete_lines.append(self._take_line())

    def _append_part(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _take_line(self) -> bytes:
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        return line
