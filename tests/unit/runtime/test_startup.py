"""The first requests of a process, to a server that fails."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from gangline.kube.errors import KubeError, Status, Unreachable, error_from_status
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.runtime.startup import MAX_DELAY, StartupTransport, is_temporary, retry_delay
from gangline.testing.clock import FakeClock, settle

GET = Request("GET", "/api/v1/pods")
NOW = timedelta()


def answer(code: int, **headers: str) -> Response:
    return Response(code, b"{}", headers)


class ScriptedTransport:
    """Gives these answers in turn; an exception is raised."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers, self.requests = list(answers), 0

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.requests += 1
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


async def send(transport: StartupTransport, clock: FakeClock, request: Request = GET) -> Response:
    """Send the request, and let as much time pass as it wants."""
    task = asyncio.create_task(transport.send(request))
    await settle()
    while not task.done():
        await clock.advance(timedelta(seconds=1))
        await settle()
    return await task


async def test_a_request_is_sent_until_the_server_answers() -> None:
    clock = FakeClock()
    wire = ScriptedTransport(answer(500), Unreachable("refused"), answer(429), answer(503), answer(504), answer(200))
    assert (await send(StartupTransport(wire, clock), clock)).status == 200
    assert wire.requests == 6


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
async def test_an_answer_that_will_not_change_is_returned_at_once(code: int) -> None:
    clock = FakeClock()
    wire = ScriptedTransport(answer(code))
    assert (await send(StartupTransport(wire, clock), clock)).status == code


async def test_a_post_is_sent_once() -> None:
    clock = FakeClock()
    wire = ScriptedTransport(answer(500))
    assert (await send(StartupTransport(wire, clock), clock, Request("POST", "/api/v1/pods"))).status == 500


async def test_a_token_that_stays_unknown_ends_the_start() -> None:
    clock = FakeClock()
    wire = ScriptedTransport(*[answer(401)] * 1000)
    assert (await send(StartupTransport(wire, clock), clock)).status == 401
    assert wire.requests > 3
    assert timedelta(seconds=60) <= clock.now() - FakeClock().now() < timedelta(seconds=90)


async def test_readiness_says_what_fails_and_since_when_and_the_log_says_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    wire = ScriptedTransport(answer(503), answer(503), answer(503), answer(500), answer(200))
    transport = StartupTransport(wire, clock)
    assert transport.readiness_problem() == ""
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(transport.send(GET))
        await settle()
        problem = transport.readiness_problem()
        while not task.done():
            await clock.advance(timedelta(seconds=1))
            await settle()
    assert problem == "GET /api/v1/pods: HTTP 503, trying again since 2026-01-01T00:00:00Z"
    assert transport.readiness_problem() == ""
    assert [record.message for record in caplog.records] == ["the server does not answer yet, trying again"] * 2


def test_delays_grow_to_a_limit_and_honour_the_server() -> None:
    busy = error_from_status(Status(code=429), timedelta(seconds=7))
    assert retry_delay(1, busy, 0.0) == timedelta(seconds=7)
    down = Unreachable("refused")
    delays = [retry_delay(attempt, down, 1.0) for attempt in range(1, 40)]
    assert delays == sorted(delays)
    assert delays[0] == timedelta(milliseconds=50)
    assert delays[-1] == MAX_DELAY
    assert retry_delay(3, down, 0.0) < retry_delay(3, down, 1.0)


def test_what_is_temporary() -> None:
    def status(code: int) -> KubeError:
        return error_from_status(Status(code=code))

    assert [code for code in range(400, 600) if is_temporary(status(code), NOW)] == [401, 410, 429, *range(500, 600)]
    assert not is_temporary(status(401), timedelta(minutes=1))
    assert is_temporary(Unreachable("refused"), timedelta(hours=1))
