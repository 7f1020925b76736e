"""A transport that makes a span of every request, and tells the server which span it is."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import msgspec

from gangline.base.tracing import is_tracing, trace_parent, trace_span
from gangline.kube.errors import KubeError
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket


def traced(transport: Transport) -> Transport:
    """The transport with spans; the transport itself if tracing is off, so that it costs nothing then."""
    return TracedTransport(transport) if is_tracing() else transport


class TracedTransport:
    """Makes a span of every request. A stream is part of the span around it: a watch would be one for hours."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        attributes = {"http.request.method": request.method, "url.path": request.path}
        with trace_span(request.method, attributes, is_request=True) as span:
            try:
                response = await self._transport.send(_with_parent(request), timeout=timeout)
            except KubeError as error:
                span.set_attribute("error.type", type(error).__name__)
                raise
            span.set_attribute("http.response.status_code", response.status)
            return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        async with self._transport.stream(_with_parent(request), idle=idle) as stream:
            yield stream

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)


def _with_parent(request: Request) -> Request:
    return msgspec.structs.replace(request, trace_parent=trace_parent())
