"""A transport that answers as a test says, and keeps what was asked."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import msgspec

from gangline.kube.transport.api import Frames, Request, Response, Stream, Transport

Answer = Callable[[Request], "Response | Awaitable[Response]"]


def answer(body: Any = None, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(body if body is not None else {}))


def refusal(status: int, message: str = "no", reason: str = "") -> Response:
    return answer({"kind": "Status", "code": status, "message": message, "reason": reason}, status)


class Scripted:
    """Fits `Transport`; only whole answers. An exception that `say` raises is the answer, too."""

    def __init__(self, say: Answer) -> None:
        self.say = say
        self.requests: list[Request] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.requests.append(request)
        said = self.say(request)
        return said if isinstance(said, Response) else await said

    def stream(
        self, request: Request, *, idle: timedelta | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[Frames]:
        raise NotImplementedError

    @property
    def bodies(self) -> list[Any]:
        """What was sent."""
        return [msgspec.json.decode(request.body) for request in self.requests if request.body]


class Passing:
    """A transport before another one: what it does not do by itself goes through."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        return await self._transport.send(request, timeout=timeout)

    def stream(
        self, request: Request, *, idle: timedelta | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[Frames]:
        return self._transport.frames(request, protocols)
