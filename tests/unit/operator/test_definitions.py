"""An operator waits for its definitions, and starts without the right to read signs of other operators."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON, Key
from gangline.kube.client import Client
from gangline.kube.errors import ServerError
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.operator.conflicting_operators import OperatorIdentity, check_conflicts
from gangline.operator.definitions import POLL_INTERVAL, DefinitionWaiter
from gangline.testing.clock import FakeClock, settle

Answer = Callable[[Request], Response]


class Answering:
    """A transport to a server that answers as the test wants."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.asked.append(request.path)
        return self.answer(request)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


def serving(*plurals: str) -> Answer:
    listed = [{"name": plural, "kind": plural, "namespaced": True, "verbs": ["list"]} for plural in plurals]
    return lambda request: Response(200, json.dumps({"resources": listed}).encode())


def failing(code: int, reason: str) -> Answer:
    status: JSON = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}
    return lambda request: Response(code, json.dumps(status).encode())


ALL = tuple(kind.plural for kind in TRAINING_KINDS)
RESOURCES = [kind.resource for kind in TRAINING_KINDS]


async def test_with_everything_there_it_does_not_wait() -> None:
    definitions = DefinitionWaiter(Client(Answering(serving(*ALL))), RESOURCES, FakeClock())
    assert definitions.readiness_problem() == "not looked for yet"
    await definitions.wait_until_served()
    assert definitions.readiness_problem() == ""


async def test_it_says_what_is_missing_once_and_goes_on_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, wire = FakeClock(), Answering(serving(*ALL[:-2]))
    definitions = DefinitionWaiter(Client(wire), RESOURCES, clock)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(definitions.wait_until_served())
        for _ in range(3):
            await clock.advance(POLL_INTERVAL)
        assert definitions.readiness_problem() == "not served: paddlejobs.kubeflow.org, jaxjobs.kubeflow.org"
        assert len(caplog.records) == 1
        wire.answer = serving(*ALL[:-1])
        await clock.advance(POLL_INTERVAL)
        assert [vars(record)["missing"] for record in caplog.records] == [
            "paddlejobs.kubeflow.org, jaxjobs.kubeflow.org",
            "jaxjobs.kubeflow.org",
        ]
        assert not waiting.done()
        wire.answer = serving(*ALL)
        await clock.advance(POLL_INTERVAL)
    assert definitions.readiness_problem() == ""


async def test_a_server_without_the_group_lacks_all_of_them() -> None:
    clock, wire = FakeClock(), Answering(failing(404, "NotFound"))
    definitions = DefinitionWaiter(Client(wire), RESOURCES, clock)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(definitions.wait_until_served())
        await settle()
        assert all(f"{plural}.kubeflow.org" in definitions.readiness_problem() for plural in ALL)
        waiting.cancel()


async def test_a_server_that_is_away_for_a_while_is_waited_for_but_not_at_the_start() -> None:
    clock, wire = FakeClock(), Answering(failing(500, "InternalError"))
    with pytest.raises(ServerError):
        await DefinitionWaiter(Client(wire), RESOURCES, clock).wait_until_served()
    wire.answer = serving(*ALL[1:])
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(DefinitionWaiter(Client(wire), RESOURCES, clock).wait_until_served())
        await settle()
        wire.answer = failing(500, "InternalError")
        await clock.advance(POLL_INTERVAL)
        assert not waiting.done()
        wire.answer = serving(*ALL)
        await clock.advance(POLL_INTERVAL)
        assert waiting.done()


async def test_signs_of_another_operator_that_the_server_does_not_know_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire, me = Answering(failing(404, "NotFound")), OperatorIdentity(Key("ours", "us"), "gangline")
    with caplog.at_level(logging.DEBUG, "gangline.operator.conflicting_operators"):
        await check_conflicts(Client(wire), TRAINING_KINDS, "", me, FakeClock())
    # Leases, Deployments, pods, and jobs of six kinds.
    assert len(wire.asked) == len(caplog.records) == 9
