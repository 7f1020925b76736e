"""Faults between a program and a server, as values: the same plan gives the same faults every time.

faults = Faults([Fault(2, "lost", method="POST"), Fault(0, 409, path="/status")])
client = Client(FaultyTransport(cluster.client.transport, faults))
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from random import Random
from typing import NamedTuple, NoReturn, Self

import msgspec

from gangline.base.clock import Clock, SystemClock
from gangline.kube.errors import Status, StreamBroken, Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket

FAULT_KINDS: tuple[int | str, ...] = ("unreachable", "lost", "slow", "dies", "dies after", 409, 429, 500, 503)
"""The faults from which a seed chooses."""

STATUS_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class SimulatedCrash(BaseException):
    """The program crashed in the middle of a request. Not an `Exception`, so that no handler goes on after it."""


class Fault(NamedTuple):
    """A fault of one request, after `after` other ones with that method and that part in their path.

    `what` is one of these, or the status code with which the server answers instead of carrying the request out:

    - `unreachable`: the request never arrives;
    - `lost`: it is carried out, and the answer never arrives; a watch or log breaks after its first chunk;
    - `slow`: it is carried out `seconds` later, and the chunks of a watch are as late;
    - `dies`: the program crashes before the request is sent (`SimulatedCrash`);
    - `dies after`: the program crashes after the request is carried out, before the answer arrives.
    """

    after: int
    what: int | str
    method: str = ""
    path: str = ""
    seconds: float = 0.1

    def about(self, method: str, path: str) -> bool:
        """Whether the fault is for such a request."""
        return self.method in ("", method) and self.path in path


class Faults:
    """A plan of faults, used up by requests. Shared by all runs of a program: after a crash the next run gets the rest."""

    def __init__(self, plan: Iterable[Fault] = ()) -> None:
        self._plan = list(plan)
        self._random: Random | None = None
        self._rate, self._choice = 0.0, FAULT_KINDS
        self.met: list[str] = []
        """The faults that occurred, each with its request."""

    @classmethod
    def seeded(cls, seed: int, rate: float = 0.1, choice: Sequence[int | str] = FAULT_KINDS) -> Self:
        """Random faults at a rate. The same seed gives the same faults for the same requests in the same order."""
        faults = cls()
        # S311: faults need no cryptographic randomness.
        faults._random, faults._rate, faults._choice = Random(seed), rate, tuple(choice)  # noqa: S311
        return faults

    def add(self, *faults: Fault) -> None:
        self._plan.extend(faults)

    def clear(self) -> None:
        """Drop all faults, also the random ones."""
        self._plan.clear()
        self._random = None

    @property
    def left(self) -> tuple[Fault, ...]:
        """The planned faults that have not occurred yet."""
        return tuple(self._plan)

    def due(self, method: str, path: str) -> Fault | None:
        """The fault of this request, if there is one. Counts the request for all faults that are for such requests."""
        fault = self._take_due(method, path)
        if fault is not None:
            self.met.append(f"{fault.what}: {method} {path}")
        return fault

    def _take_due(self, method: str, path: str) -> Fault | None:
        if self._random is not None and self._random.random() < self._rate:
            return Fault(0, self._random.choice(self._choice))
        due, remaining = None, []
        for fault in self._plan:
            if not fault.about(method, path):
                remaining.append(fault)
            elif fault.after:
                remaining.append(fault._replace(after=fault.after - 1))
            else:
                due = due or fault
        self._plan = remaining
        return due


class FaultyTransport:
    """A transport on which requests fail as planned. After a simulated crash every request raises `SimulatedCrash`."""

    def __init__(self, transport: Transport, faults: Faults, *, clock: Clock | None = None) -> None:
        self._transport, self._faults = transport, faults
        self._clock = clock or SystemClock()
        self._open_streams: set[_BreakableStream] = set()
        self.dead = False
        self.requests: list[Request] = []
        """All requests of this run of the program."""
        self.unanswered = 0
        """The number of requests that wait for their answer, watches and logs not included."""

    def cut(self) -> None:
        """Break all watches and logs that are open now."""
        for stream in self._open_streams:
            stream.break_off()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        fault = self._next_fault(request)
        self.unanswered += 1
        try:
            error = await self._apply_before(request, fault)
            if error is not None:
                return error
            response = await self._transport.send(request, timeout=timeout)
            self._apply_after(request, fault)
            return response
        finally:
            self.unanswered -= 1

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        fault = self._next_fault(request)
        error = await self._apply_before(request, fault)
        if error is not None:
            yield _ErrorStream(error)
            return
        async with self._transport.stream(request, idle=idle) as original:
            stream = _BreakableStream(original, lambda: self._apply_after(request, fault))
            self._open_streams.add(stream)
            try:
                yield stream
            finally:
                self._open_streams.discard(stream)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        """Pass WebSockets through, without faults."""
        return self._transport.frames(request, protocols)

    def _next_fault(self, request: Request) -> Fault | None:
        if self.dead:
            raise SimulatedCrash
        self.requests.append(request)
        return self._faults.due(request.method, request.path)

    async def _apply_before(self, request: Request, fault: Fault | None) -> Response | None:
        match fault:
            case Fault(what=int(code)):
                return error_response(code)
            case Fault(what="unreachable"):
                raise Unreachable(f"{request}: no route (planned)")
            case Fault(what="dies"):
                self._die()
            case Fault(what="slow", seconds=seconds):
                await self._clock.sleep(timedelta(seconds=seconds))
            case None | Fault(what="lost" | "dies after"):
                pass
            case _:
                raise ValueError(f"{fault.what!r} is no fault: write one of {FAULT_KINDS} or another code")
        return None

    def _apply_after(self, request: Request, fault: Fault | None) -> None:
        if fault is not None and fault.what == "dies after":
            self._die()
        if fault is not None and fault.what == "lost":
            raise Unreachable(f"{request}: the answer was lost (planned)")

    def _die(self) -> NoReturn:
        self.dead = True
        raise SimulatedCrash


def error_response(code: int) -> Response:
    """The answer of a server that fails with this code."""
    status = Status(
        status="Failure", code=code, reason=STATUS_REASONS.get(code, ""), message=f"the server said {code} (planned)"
    )
    return Response(code, msgspec.json.encode(status), {"content-type": "application/json"})


class _ErrorStream(msgspec.Struct, frozen=True):
    response: Response

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.response.body


class _BreakableStream:
    """A stream that can be broken from outside, and that calls `after` after each chunk."""

    def __init__(self, stream: ResponseStream, after: Callable[[], None]) -> None:
        self._stream, self._after = stream, after
        self._pending_read: asyncio.Timeout | None = None
        self._broken = False

    @property
    def response(self) -> Response:
        return self._stream.response

    def break_off(self) -> None:
        if self._pending_read is not None and not self._broken:
            self._pending_read.reschedule(0)
        self._broken = True

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks = self._stream.chunks()
        while not self._broken:
            try:
                chunk = await self._next(chunks)
            except StopAsyncIteration:
                return
            yield chunk
            try:
                self._after()
            except Unreachable as error:
                raise StreamBroken(str(error)) from None
        raise StreamBroken("cut off (planned)")

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(None) as self._pending_read:
                return await anext(chunks)
        except TimeoutError:
            raise StreamBroken("cut off (planned)") from None
        finally:
            self._pending_read = None
