"""Decisions about who reads the metrics, and how long they hold."""

import asyncio
import ssl
from datetime import timedelta

import msgspec

from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response
from gangline.runtime.metrics_guard import ALLOWED_FOR, DENIED_FOR, MAX_CACHED, MAX_REVIEWS, MetricsGuard
from gangline.testing.clock import FakeClock
from support.servers.scripted import ScriptedTransport, json_response, refusal_response

SECOND = timedelta(seconds=1)


class ReviewServer:
    """Knows the users of tokens, and who may read."""

    def __init__(self) -> None:
        self.users = {"good": "reader", "other": "stranger"}
        self.readers = {"reader"}
        self.down = False
        self.bodies: list[dict[str, object]] = []
        self.clock = FakeClock()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.guard = MetricsGuard(Client(ScriptedTransport(self._answer)), tls, self.clock)

    def _answer(self, request: Request) -> Response:
        if self.down:
            return refusal_response(503, "overloaded", "ServiceUnavailable")
        assert request.body is not None
        body = msgspec.json.decode(request.body)
        self.bodies.append(body["spec"])
        if request.path.endswith("tokenreviews"):
            user = self.users.get(body["spec"]["token"])
            status = {"authenticated": True, "user": {"username": user, "groups": ["g"], "extra": {"k": ["v"]}}}
            return json_response({"status": status if user else {"error": "no"}}, status=201)
        return json_response({"status": {"allowed": body["spec"]["user"] in self.readers}}, status=201)

    async def status(self, token: str) -> int:
        return (await self.guard.decide(f"Bearer {token}")).status


async def test_the_user_of_the_token_is_asked_about_with_groups_and_extra() -> None:
    server = ReviewServer()
    assert await server.status("good") == 200
    attributes = {"path": "/metrics", "verb": "get"}
    asked = {"user": "reader", "groups": ["g"], "extra": {"k": ["v"]}, "nonResourceAttributes": attributes}
    assert server.bodies == [{"token": "good"}, asked]
    assert [await server.status(token) for token in ("other", "unknown")] == [403, 401]


async def test_an_answer_holds_for_a_short_time() -> None:
    server = ReviewServer()
    assert [await server.status("good"), await server.status("other")] == [200, 403]
    server.readers = {"stranger"}
    assert [await server.status("good"), await server.status("other")] == [200, 403]
    await server.clock.advance(DENIED_FOR + SECOND)
    assert [await server.status("good"), await server.status("other")] == [200, 200]
    await server.clock.advance(ALLOWED_FOR)
    assert await server.status("good") == 403


async def test_a_server_that_does_not_answer_allows_nothing_and_is_asked_again() -> None:
    server = ReviewServer()
    server.down = True
    assert await server.status("good") == 503
    server.down = False
    assert await server.status("good") == 200


async def test_many_wrong_tokens_are_reviewed_a_few_at_a_time_and_not_all_remembered() -> None:
    server = ReviewServer()
    for number in range(MAX_CACHED + 5):
        assert await server.status(f"wrong-{number}") == 401
    assert len(server.guard._decisions) == MAX_CACHED
    server.bodies.clear()
    assert await asyncio.gather(*(server.status("good") for _ in range(3 * MAX_REVIEWS))) == [200] * 3 * MAX_REVIEWS
    # The first ones ask at the same time, the others take their answer.
    assert len(server.bodies) <= 2 * MAX_REVIEWS


async def test_tokens_are_not_kept() -> None:
    server = ReviewServer()
    await server.status("good")
    assert "good" not in repr(vars(server.guard))


async def test_only_bearer_tokens_are_looked_at() -> None:
    server = ReviewServer()
    for header in ("", "Bearer", "Bearer  ", "Basic Z29vZA==", "good", "bearergood"):
        assert (await server.guard.decide(header)).status == 401
    assert server.bodies == []
    assert (await server.guard.decide("bearer   good ")).status == 200
