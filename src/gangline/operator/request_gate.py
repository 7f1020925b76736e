"""Limits the requests in flight, without letting slow ones block the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket

MAX_IN_FLIGHT = 12
"""An API server with two cores does no more at a time, and each connection costs memory and a handshake."""
SLOT_TIMEOUT = timedelta(milliseconds=500)
"""A request that takes longer does not wait for the server's cores, but for a webhook, say, that hangs in one namespace.
It goes on, and its slot becomes free."""


class RequestGate:
    """A transport that passes at most `at_once` requests to another one. Watches, logs and WebSockets are not limited."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        at_once: int = MAX_IN_FLIGHT,
        slot_timeout: timedelta = SLOT_TIMEOUT,
    ) -> None:
        self._transport, self._clock, self._slot_timeout = transport, clock, slot_timeout
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
        """Hold a slot until the block ends or the slot timeout has passed."""
        await self._slots.acquire()
        holds_slot = True

        def release() -> None:
            nonlocal holds_slot
            if holds_slot:
                holds_slot = False
                self._slots.release()

        timer = self._clock.call_later(self._slot_timeout, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
