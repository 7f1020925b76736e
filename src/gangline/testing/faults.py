"""What goes wrong between a program and a server, as values: the same plan gives the same trouble every time.

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
"""What a seed chooses from."""

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
    """The program ended in the middle of a request. Not an `Exception`: nothing may go on after it."""


class Fault(NamedTuple):
    """What happens to one request: the one so many from now, of those with that method and that in their path.

    `what` is one of these, or the code of the answer that is given instead of carrying the request out:

    - `unreachable`: it never arrives;
    - `lost`: it is carried out, and the answer never arrives; a watch or log is cut off after its first piece;
    - `slow`: it is carried out `seconds` later, and what a watch says comes as late;
    - `dies`: the program ends before it is sent (`SimulatedCrash`);
    - `dies after`: the program ends when it was carried out, before it knows.
    """

    after: int
    what: int | str
    method: str = ""
    path: str = ""
    seconds: float = 0.1

    def about(self, method: str, path: str) -> bool:
        return self.method in ("", method) and self.path in path


class Faults:
    """A plan of faults, used up as requests are made. Shared by all lives of a program: what is left, its next one gets."""

    def __init__(self, plan: Iterable[Fault] = ()) -> None:
        self._plan = list(plan)
        self._random: Random | None = None
        self._rate, self._choice = 0.0, FAULT_KINDS
        self.met: list[str] = []
        """What happened so far, to which request."""

    @classmethod
    def seeded(cls, seed: int, rate: float = 0.1, choice: Sequence[int | str] = FAULT_KINDS) -> Self:
        """Of so many requests this part goes wrong, by a seed: the same for the same requests in the same order."""
        made = cls()
        # Which faults there are is no secret.
        made._random, made._rate, made._choice = Random(seed), rate, tuple(choice)  # noqa: S311
        return made

    def add(self, *faults: Fault) -> None:
        self._plan.extend(faults)

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self._plan.clear()
        self._random = None

    @property
    def left(self) -> tuple[Fault, ...]:
        return tuple(self._plan)

    def due(self, method: str, path: str) -> Fault | None:
        """What happens to this request; for all like it there is one less to wait for."""
        found = self._take_due(method, path)
        if found is not None:
            self.met.append(f"{found.what}: {method} {path}")
        return found

    def _take_due(self, method: str, path: str) -> Fault | None:
        if self._random is not None and self._random.random() < self._rate:
            return Fault(0, self._random.choice(self._choice))
        found, kept = None, []
        for each in self._plan:
            if not each.about(method, path):
                kept.append(each)
            elif each.after:
                kept.append(each._replace(after=each.after - 1))
            else:
                found = found or each
        self._plan = kept
        return found


class FaultyTransport:
    """A transport on which requests go wrong as planned. Once the program died on it, every request is its death."""

    def __init__(self, transport: Transport, faults: Faults, *, clock: Clock | None = None) -> None:
        self._transport, self._faults = transport, faults
        self._clock = clock or SystemClock()
        self._open_streams: set[_BreakableStream] = set()
        self.dead = False
        self.requests: list[Request] = []
        """All that the program asked for in this life."""
        self.unanswered = 0
        """How many of them wait for their answer; watches and logs are none of these."""

    def cut(self) -> None:
        """Break every watch and log that is open now, in the middle."""
        for stream in self._open_streams:
            stream.break_off()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        fault = self._next_fault(request)
        self.unanswered += 1
        try:
            refused = await self._apply_before(request, fault)
            if refused is not None:
                return refused
            answer = await self._transport.send(request, timeout=timeout)
            self._apply_after(request, fault)
            return answer
        finally:
            self.unanswered -= 1

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        fault = self._next_fault(request)
        refused = await self._apply_before(request, fault)
        if refused is not None:
            yield _ErrorStream(refused)
            return
        async with self._transport.stream(request, idle=idle) as found:
            stream = _BreakableStream(found, lambda: self._apply_after(request, fault))
            self._open_streams.add(stream)
            try:
                yield stream
            finally:
                self._open_streams.discard(stream)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        """As they are: nothing goes wrong here."""
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
    """The answer of a server that says no, with this code."""
    status = Status(
        status="Failure",
        code=code,
        reason=STATUS_REASONS.get(code, ""),
        message=f"the server said {code} (planned)",
    )
    return Response(code, msgspec.json.encode(status), {"content-type": "application/json"})


class _ErrorStream(msgspec.Struct, frozen=True):
    response: Response

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.response.body


class _BreakableStream:
    """A stream that may be broken from outside, or after its first piece."""

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
        pieces = self._stream.chunks()
        while not self._broken:
            try:
                piece = await self._next(pieces)
            except StopAsyncIteration:
                return
            yield piece
            try:
                self._after()
            except Unreachable as error:
                raise StreamBroken(str(error)) from None
        raise StreamBroken("cut off (planned)")

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(None) as self._pending_read:
                return await anext(pieces)
        except TimeoutError:
            raise StreamBroken("cut off (planned)") from None
        finally:
            self._pending_read = None
