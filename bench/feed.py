"""The informer as it is, client and all, over a wire that brings prepared bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.runtime.informer import Informer, TransformFunc


class Script:
    """A transport: a page for each list, then one watch, then silence."""

    def __init__(self, pages: Iterable[bytes], watch: Iterable[bytes] = ()) -> None:
        self._pages: Iterator[bytes] = iter(pages)
        self._watch = watch

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        return Response(200, next(self._pages))

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        yield _Chunks(self._watch)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


class _Chunks:
    response = Response(200)

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        await asyncio.Event().wait()


def pod_informer(script: Script, trim: TransformFunc[Pod] | None = None) -> Informer[Pod]:
    return Informer(Client(script), Pod, clock=SystemClock(), trim=trim)


async def run_until(informer: Informer[Pod], done: asyncio.Event | None = None) -> None:
    """Run it until it is synced, or until something else is done."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(informer.run())
        await (done.wait() if done else informer.wait_for_sync())
        running.cancel()


def filled(pages: Iterable[bytes], trim: Callable[[Pod], Pod] | None = None) -> Informer[Pod]:
    """An informer that has taken in a list."""
    informer = pod_informer(Script(pages), trim)
    asyncio.run(run_until(informer))
    return informer
