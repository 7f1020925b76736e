"""The first requests of a process, to a server that may be overloaded, restarting, or not there yet.

A process that ends at the first error loads such a server more, and comes up only by luck. So its first requests are
sent again until the server answers. What another attempt cannot change is returned at once: 400, 403, 404, 409, 422, and
a certificate that is not trusted. 401 is returned after `UNAUTHORIZED_LIMIT`: a server that starts may not know any token.
"""

import logging
import random
import ssl
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import aiohttp

from gangline.base.clock import Clock
from gangline.kube.errors import ApiError, Gone, KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket, response_error

log = logging.getLogger(__name__)

FIRST_DELAY, MAX_DELAY = timedelta(milliseconds=50), timedelta(seconds=10)
MAX_RETRY_AFTER = timedelta(minutes=1)
UNAUTHORIZED_LIMIT = timedelta(minutes=1)
LONG_FAILURE = timedelta(seconds=5)
"""The end of a failure this long is logged."""


def is_temporary(error: KubeError, failing_for: timedelta) -> bool:
    """Whether the request may succeed later. `failing_for` is the time since the first of these errors in a row."""
    match error:
        case Unauthorized():
            return failing_for < UNAUTHORIZED_LIMIT
        case Unreachable():
            return not _is_untrusted_certificate(error)
    return isinstance(error, TooManyRequests | ServerError | Gone)


def retry_delay(attempt: int, error: KubeError, jitter: float) -> timedelta:
    """How long to wait after this many errors in a row. `jitter` is between 0 and 1."""
    delay: timedelta = min(FIRST_DELAY * 2 ** min(attempt - 1, 10), MAX_DELAY) * (0.5 + jitter / 2)
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(delay, min(asked or timedelta(), MAX_RETRY_AFTER))


def _is_untrusted_certificate(error: BaseException) -> bool:
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError)


class StartupTransport:
    """A transport for the first requests of a process: it sends a request again until the server answers it.

    For requests that may be sent twice; others are sent once. Watches, logs and WebSockets are passed on.
    """

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._problem = ""
        self._failing_since: datetime | None = None
        self._errors: set[str] = set()

    def readiness_problem(self) -> str:
        """A readiness check: which request fails, with what, and since when; empty if none does."""
        if self._failing_since is None:
            return ""
        return f"{self._problem}, trying again since {self._failing_since:%Y-%m-%dT%H:%M:%SZ}"

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        attempt = 0
        while True:
            attempt += 1
            response: Response | None = None
            error: KubeError | None
            try:
                response = await self._transport.send(request, timeout=timeout)
                error = response_error(response)
            except Unreachable as unreachable:
                error = unreachable
            if error is None or not request.is_idempotent or not is_temporary(error, self._failing_for()):
                self._end_failure()
                if response is None:
                    assert error is not None
                    raise error
                return response
            self._note(request, error)
            await self._clock.sleep(retry_delay(attempt, error, random.random()))  # noqa: S311

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)

    def _failing_for(self) -> timedelta:
        return timedelta() if self._failing_since is None else self._clock.now() - self._failing_since

    def _end_failure(self) -> None:
        failing_for = self._failing_for()
        self._failing_since = None
        if failing_for >= LONG_FAILURE:
            log.info("the server answers", extra={"after": failing_for})

    def _note(self, request: Request, error: KubeError) -> None:
        """Log the first error of each kind: a line for every attempt would say nothing more."""
        if self._failing_since is None:
            self._failing_since = self._clock.now()
        text = str(error)
        self._problem = text if str(request) in text else f"{request}: {text}"
        kind = f"{type(error).__name__} {error.code if isinstance(error, ApiError) else ''}"
        if kind not in self._errors:
            self._errors.add(kind)
            log.warning("the server does not answer yet, trying again", extra={"error": self._problem})
