"""So many requests under way at the same time, and no slow one keeps others out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.kube.transport.api import Frames, Request, Response, Stream, Transport

AT_ONCE = 12
"""Two cores of an API server do no more, and each connection costs memory and a handshake."""
PATIENCE = timedelta(milliseconds=500)
"""A request that takes longer waits for something else than the server's cores: a webhook, say, that hangs for one
namespace. It goes on without its place, which then is another's."""


class Gate:
    """A transport that carries so many requests of another's at once. Watches, logs and the like are not counted."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        at_once: int = AT_ONCE,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._transport, self._clock, self._patience = transport, clock, patience
        self._places = asyncio.Semaphore(at_once)

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        async with self._place():
            return await self._transport.send(request, timeout=timeout)

    def stream(
        self, request: Request, *, idle: timedelta | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[Frames]:
        return self._transport.frames(request, protocols)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """One of the places, until the block ends or patience does."""
        await self._places.acquire()
        held = True

        def leave() -> None:
            nonlocal held
            if held:
                held = False
                self._places.release()

        timer = self._clock.call_later(self._patience, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()
