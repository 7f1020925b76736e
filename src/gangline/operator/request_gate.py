"""So many requests under way at the same time, and no slow one keeps others out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket

MAX_IN_FLIGHT = 12
"""Two cores of an API server do no more, and each connection costs memory and a handshake."""
SLOT_TIMEOUT = timedelta(milliseconds=500)
"""A request that takes longer waits for something else than the server's cores: a webhook, say, that hangs for one
namespace. It goes on without its place, which then is another's."""


class RequestGate:
    """A transport that carries so many requests of another's at once. Watches, logs and the like are not counted."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        at_once: int = MAX_IN_FLIGHT,
        patience: timedelta = SLOT_TIMEOUT,
    ) -> None:
        self._transport, self._clock, self._slot_timeout = transport, clock, patience
        self._slots = asyncio.Semaphore(at_once)

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        async with self._slot():
            return await self._transport.send(request, timeout=timeout)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """One of the places, until the block ends or patience does."""
        await self._slots.acquire()
        held = True

        def leave() -> None:
            nonlocal held
            if held:
                held = False
                self._slots.release()

        timer = self._clock.call_later(self._slot_timeout, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()
