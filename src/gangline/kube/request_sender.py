"""Requests to an API server, with throttling, retries and errors: what the verbs of `Client` are made of."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol, TypeVar

from gangline.api.codec.codec import DecodeError, decode
from gangline.base.clock import Clock
from gangline.kube.errors import ApiError, MalformedResponse, ServerError, TooManyRequests
from gangline.kube.transport.api import Request, ResponseStream, Transport, WebSocket, response_error

T = TypeVar("T")
R = TypeVar("R")

MAX_ATTEMPTS = 8
"""How often a throttled request is sent in all."""
MAX_THROTTLE_WAIT = timedelta(minutes=1)
"""A longer Retry-After is not waited for: the error is raised, so that the caller can do other work meanwhile."""


class Throttle(Protocol):
    """A client-side limit, for servers without API priority and fairness."""

    async def wait(self) -> None: ...


class RequestSender:
    """Sends requests over a transport. An error response raises the `ApiError` that its Status stands for.

    A throttled request is sent again after the server's Retry-After, at most `MAX_ATTEMPTS` times: after 429 and 503,
    and after another 5xx if the request is idempotent. Nothing is sent again after `Unreachable`, because the server
    may have carried it out.
    """

    def __init__(
        self, transport: Transport, clock: Clock, throttle: Throttle | None = None, timeout: timedelta | None = None
    ) -> None:
        """`timeout` limits one attempt, without waiting for throttling; None is the transport's own limit."""
        self._transport, self._clock, self._throttle, self._timeout = transport, clock, throttle, timeout

    def with_transport(self, transport: Transport) -> "RequestSender":
        """The same limits on another transport."""
        return RequestSender(transport, self._clock, self._throttle, self._timeout)

    async def call(self, request: Request) -> bytes:
        """The body of a successful response."""
        attempt = 1
        while True:
            await self._wait_for_throttle()
            response = await self._transport.send(request, timeout=self._timeout)
            error = response_error(response)
            if error is None:
                return response.body
            await self._wait_or_raise(request, error, attempt)
            attempt += 1

    async def call_typed(self, request: Request, model: type[T]) -> T:
        """A successful response, decoded. Raises `MalformedResponse` when it does not fit `model`."""
        return decode_response(request, await self.call(request), model, decode)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        """A successful response whose body is read while it arrives."""
        attempt = 1
        while True:
            await self._wait_for_throttle()
            async with self._transport.stream(request, idle=idle) as stream:
                error = response_error(stream.response)
                if error is None:
                    yield stream
                    return
            await self._wait_or_raise(request, error, attempt)
            attempt += 1

    @asynccontextmanager
    async def frames(self, request: Request, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        """A WebSocket. The request is sent once, because it starts something."""
        await self._wait_for_throttle()
        async with self._transport.frames(request, protocols) as frames:
            yield frames

    async def _wait_for_throttle(self) -> None:
        if self._throttle is not None:
            await self._throttle.wait()

    async def _wait_or_raise(self, request: Request, error: ApiError, attempt: int) -> None:
        """Return when the request may be sent again; raise the error if it may not."""
        delay = retry_delay(request, error)
        if delay is None or delay > MAX_THROTTLE_WAIT or attempt >= MAX_ATTEMPTS:
            raise error
        await self._clock.sleep(delay)


def retry_delay(request: Request, error: ApiError) -> timedelta | None:
    """How long to wait before sending the request again; None if it must not be sent again."""
    match error:
        case TooManyRequests():
            # An eviction that a disruption budget forbids is also a 429. That is a decision, and may last for days.
            by_budget = any(cause.reason == "DisruptionBudget" for cause in error.causes)
            return None if by_budget else error.retry_after
        case ServerError() if request.is_idempotent or error.code == 503:
            # Other codes may come after the write: 504, and 500 when a webhook or the store took too long.
            return error.retry_after
    return None


def decode_response(request: Request, body: bytes, model: type[T], decoder: Callable[[bytes, type[T]], R]) -> R:
    """The decoded body. Raises `MalformedResponse`."""
    try:
        return decoder(body, model)
    except DecodeError as error:
        raise MalformedResponse(f"{request}: the server's answer cannot be read: {error}") from error
