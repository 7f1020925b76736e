"""A transport that answers by a function of the test, and records the requests."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import msgspec

from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket

AnswerFunction = Callable[[Request], "Response | Awaitable[Response]"]


def json_response(body: Any = None, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(body if body is not None else {}))


def refusal_response(status: int, message: str = "no", reason: str = "") -> Response:
    return json_response({"kind": "Status", "code": status, "message": message, "reason": reason}, status)


class ScriptedTransport:
    """A `Transport` without streams. An exception raised by `say` reaches the caller."""

    def __init__(self, say: AnswerFunction) -> None:
        self.respond = say
        self.requests: list[Request] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.requests.append(request)
        said = self.respond(request)
        return said if isinstance(said, Response) else await said

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError

    @property
    def sent_bodies(self) -> list[Any]:
        """The decoded bodies of the requests."""
        return [msgspec.json.decode(request.body) for request in self.requests if request.body]


class ForwardingTransport:
    """A transport that forwards to another one; subclasses override what they change."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        return await self._transport.send(request, timeout=timeout)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)
