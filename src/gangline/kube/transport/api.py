"""The one seam between the client and a wire.

Requests are plain data, built by the client, which knows every URL; a transport carries them and knows none.
Tests, and the embedded control plane, may bring a transport of their own.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol, Self, TypeAlias

import msgspec

from gangline.kube.errors import ApiError, Status, error_from_body, error_from_status

QueryParams: TypeAlias = tuple[tuple[str, str], ...]
"""Parameters of a request, in order; a name may come more than once."""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, relative to the server's root."""

    method: str
    path: str
    query: QueryParams = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = "application/json"

    @property
    def is_idempotent(self) -> bool:
        """Whether sending it twice leaves the server as sending it once does.

        A POST may create two, and a JSON patch may append twice. Other patches say how things should be.
        """
        return self.method != "POST" and "json-patch" not in self.content_type

    def __str__(self) -> str:
        # Without query and body: they may be long, and a body may hold a secret.
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return f"Request({str(self)!r})"


class Response(msgspec.Struct, frozen=True):
    """A whole answer. Header names are lower case."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class WebSocket(Protocol):
    """A WebSocket after its handshake: binary frames both ways. Sending and receiving may be two tasks."""

    @property
    def protocol(self) -> str:
        """The subprotocol the server chose."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Frames until either side closes; raises `StreamBroken` when the connection is lost.

        May be left and taken up again.
        """
        ...

    async def send(self, frame: bytes) -> None:
        """Raises `StreamBroken` when the other side is gone."""
        ...

    async def close(self) -> None: ...


class ResponseStream(Protocol):
    """An answer whose body is still arriving."""

    @property
    def response(self) -> Response:
        """Status and headers; the body only if the status is an error."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces as they come. Ends when the server ends it; raises `StreamBroken` if cut off."""
        ...


class Transport(Protocol):
    """Carries requests. Any answer comes back as it is; no answer raises `Unreachable`. Cancel-safe."""

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        """The whole answer. None: the transport's own limit."""
        ...

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        """An answer read as it arrives; silence longer than `idle` raises `StreamBroken`."""
        ...

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        """A WebSocket. Raises the `ApiError` with which the server refused it."""
        ...


def response_error(response: Response) -> ApiError | None:
    """The error an answer stands for; None for a good one."""
    if response.status < 300:
        return None
    if response.status < 400:
        # Following it would carry the token to another place.
        to = response.headers.get("location", "nowhere")
        message = f"the server redirects to {to}, which is not followed; correct the address of the server"
        return error_from_status(Status(code=response.status, message=message))
    return error_from_body(response.status, response.body, _retry_after(response.headers))


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    # Kubernetes sends seconds. The other form, a date, comes from proxies and needs clocks that agree: ignored.
    after = headers.get("retry-after", "").strip()
    return timedelta(seconds=int(after)) if after.isascii() and after.isdigit() and len(after) < 10 else None


class LineReader:
    """Cut a body into lines, without their ends. A last line without an end is part of the answer too.

    Empty lines are left out unless `blank`. A line that grows beyond `longest` bytes is given in pieces. An
    iterator and not a generator: whoever leaves early has nothing to close.
    """

    def __init__(self, chunks: AsyncIterator[bytes], *, blank: bool = False, longest: int | None = None) -> None:
        self._chunks, self._keep_blank, self._max_bytes = chunks, blank, longest
        self._complete_lines: deque[bytes] = deque()
        # The begun line. One join per line, not per chunk: an object of megabytes comes in hundreds of chunks.
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
        # One split per chunk, not per line: a busy watch brings hundreds of lines in a chunk.
        first, *others = chunk.split(b"\n")
        self._append_part(first)
        if others:
            *complete, begun = self._take_line(), *others
            self._complete_lines.extend(complete if self._keep_blank else filter(None, complete))
            self._append_part(begun)
        if self._max_bytes is not None and self._size > self._max_bytes:
            self._complete_lines.append(self._take_line())

    def _append_part(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _take_line(self) -> bytes:
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest
