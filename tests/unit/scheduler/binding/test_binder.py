"""Bind requests are executed, retried or refused, and each result is reported once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gangline.api.meta import JSON, Key
from gangline.api.scheduling import GANG_GATE
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.scheduler.binding.binder import MAX_RETRY_DELAY, BindRequest, PodBinder
from gangline.scheduler.binding.evictor import Evictor, EvictRequest
from gangline.scheduler.gangs.members import BIND, PIN
from gangline.scheduler.scheduler import SCHEME
from gangline.testing.clock import FakeClock, settle
from support.servers.scripted import AnswerFunction, ScriptedTransport, json_response, refusal_response

ORDER = BindRequest(Key("ns", "p"), "uid-p", "a", BIND, "host-a")


class RecordingObserver:
    """A bind and eviction observer that records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def bind_succeeded(self, order: BindRequest) -> None:
        self.told.append(f"done {order.uid}")

    def bind_refused(self, order: BindRequest, why: str) -> None:
        self.told.append(f"refused {order.uid}")

    def bind_failed(self, order: BindRequest, error: KubeError) -> None:
        self.told.append(f"failed {order.uid}")

    def eviction_refused(self, notice: EvictRequest, why: str) -> None:
        self.told.append(f"stays {notice.uid}")


class Desk:
    def __init__(self, say: AnswerFunction) -> None:
        self.clock, self.ledger, self.wire = FakeClock(), RecordingObserver(), ScriptedTransport(say)
        client = Client(self.wire, scheme=SCHEME, clock=self.clock)
        self.committer = PodBinder(client, self.clock, self.ledger, at_once=4)
        self.evictor = Evictor(client, self.clock, self.ledger)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.committer.run()), group.create_task(self.evictor.run())]
            yield
            await settle()
            for task in tasks:
                task.cancel()


def pod(*, uid: str = "uid-p", node: str = "", leaving: bool = False) -> Response:
    removed = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
    return json_response(
        {"metadata": {"name": "p", "namespace": "ns", "uid": uid, **removed}, "spec": {"nodeName": node}}
    )


async def test_a_binding_names_the_uid_and_the_node() -> None:
    desk = Desk(lambda request: json_response(status=201))
    async with desk.at_work():
        desk.committer.submit(ORDER)
    (request,) = desk.wire.requests
    assert request.path == "/api/v1/namespaces/ns/pods/p/binding"
    (body,) = desk.wire.sent_bodies
    assert body["metadata"]["uid"] == "uid-p"
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "a"}
    assert desk.ledger.told == ["done uid-p"]


async def test_a_pin_takes_the_gate_off_and_names_the_host_in_one_patch() -> None:
    desk = Desk(lambda request: pod())
    async with desk.at_work():
        desk.committer.submit(BindRequest(Key("ns", "p"), "uid-p", "a", PIN, "host-a"))
    (body,) = desk.wire.sent_bodies
    assert body == {
        "metadata": {"uid": "uid-p", "annotations": {"scheduling.gangline.dev/pinned-to": "a"}},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": "scheduling.gangline.dev/gang"}],
            "nodeSelector": {"kubernetes.io/hostname": "host-a"},
        },
    }
    assert desk.wire.requests[0].content_type == "application/strategic-merge-patch+json"
    assert desk.ledger.told == ["done uid-p"]


async def test_it_is_known_whose_call_is_under_way_and_whose_order_only_waits() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return json_response(status=201)

    desk = Desk(slow)
    orders = [BindRequest(Key("ns", f"p-{number}"), f"uid-{number}", "a", BIND) for number in range(5)]

    def known() -> tuple[list[bool], list[bool]]:
        uids = [order.uid for order in orders]
        return [desk.committer.is_in_flight(uid) for uid in uids], [desk.committer.is_queued(uid) for uid in uids]

    async with desk.at_work():
        for order in orders:
            desk.committer.submit(order)
        assert known() == ([False] * 5, [True] * 5)
        await settle()
        assert known() == ([True] * 4 + [False], [False] * 4 + [True])
        gate.set()
        await settle()
        assert known() == ([False] * 5, [False] * 5)


async def test_no_more_than_so_many_are_under_way() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return json_response(status=201)

    desk = Desk(slow)
    async with desk.at_work():
        for number in range(10):
            desk.committer.submit(BindRequest(Key("ns", f"p{number}"), f"uid-{number}", "a", BIND))
        await settle()
        assert len(desk.wire.requests) == 4
        assert desk.committer.is_busy
        gate.set()
        await settle()
    assert len(desk.ledger.told) == 10
    assert not desk.committer.is_busy


async def test_it_is_busy_until_the_last_call_was_answered_but_not_with_what_waits_for_its_next_try() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return refusal_response(500)

    desk = Desk(slow)
    async with desk.at_work():
        desk.committer.submit(ORDER)
        await settle()
        # No request is left that has not been tried.
        assert desk.committer.is_busy
        gate.set()
        await settle()
        assert not desk.committer.is_busy


async def test_after_an_error_of_the_server_it_is_tried_again_with_growing_pauses() -> None:
    desk = Desk(lambda request: refusal_response(500))
    async with desk.at_work():
        desk.committer.submit(ORDER)
        await settle()
        assert len(desk.wire.requests) == 1
        await desk.clock.advance(timedelta(milliseconds=50))
        assert len(desk.wire.requests) == 2
        await desk.clock.advance(timedelta(milliseconds=50))
        assert len(desk.wire.requests) == 2
        await desk.clock.advance(timedelta(milliseconds=50))
        assert len(desk.wire.requests) == 3
        for _ in range(10):
            await desk.clock.advance(MAX_RETRY_DELAY)
        before = len(desk.wire.requests)
        await desk.clock.advance(MAX_RETRY_DELAY)
        assert len(desk.wire.requests) == before + 1
        desk.wire.respond = lambda request: json_response(status=201)
        await desk.clock.advance(MAX_RETRY_DELAY)
    assert desk.ledger.told[-1] == "done uid-p"


async def test_an_order_taken_back_is_not_tried_again() -> None:
    desk = Desk(lambda request: refusal_response(500))
    async with desk.at_work():
        desk.committer.submit(ORDER)
        await settle()
        desk.committer.cancel("uid-p")
        await desk.clock.advance(MAX_RETRY_DELAY)
    assert len(desk.wire.requests) == 1
    assert desk.ledger.told == ["failed uid-p"]


async def test_an_order_taken_back_while_it_was_under_way_is_not_told() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return json_response(status=201)

    desk = Desk(slow)
    async with desk.at_work():
        desk.committer.submit(ORDER)
        await settle()
        desk.committer.cancel("uid-p")
        gate.set()
    assert desk.ledger.told == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (pod(node="a"), "done uid-p"),
        (pod(node="b"), "refused uid-p"),
        (pod(uid="another"), "refused uid-p"),
        (pod(leaving=True), "refused uid-p"),
        (refusal_response(404), "refused uid-p"),
        (refusal_response(500), "failed uid-p"),
        (pod(), "failed uid-p"),
    ],
    ids=["where we wanted it", "elsewhere", "another pod", "leaving", "gone", "no answer", "not bound"],
)
async def test_a_conflict_is_looked_into(found: Response, told: str) -> None:
    desk = Desk(lambda request: refusal_response(409) if request.method == "POST" else found)
    async with desk.at_work():
        desk.committer.submit(ORDER)
    assert desk.ledger.told == [told]


@pytest.mark.parametrize(
    ("gates", "told"),
    [([], "refused uid-p"), ([{"name": GANG_GATE}], "failed uid-p")],
    ids=["elsewhere", "not yet"],
)
async def test_a_pin_that_the_server_does_not_take_is_looked_into(gates: list[JSON], told: str) -> None:
    result = json_response(
        {"metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": {"schedulingGates": gates}}
    )
    desk = Desk(lambda request: refusal_response(422) if request.method == "PATCH" else result)
    async with desk.at_work():
        desk.committer.submit(BindRequest(Key("ns", "p"), "uid-p", "a", PIN, "host-a"))
    assert desk.ledger.told == [told]


async def test_an_answer_that_was_lost_is_found_to_have_been_yes() -> None:
    def lost(request: Request) -> Response:
        raise Unreachable("cut off")

    desk = Desk(lost)
    async with desk.at_work():
        desk.committer.submit(ORDER)
        await settle()
        desk.wire.respond = lambda request: refusal_response(409) if request.method == "POST" else pod(node="a")
        await desk.clock.advance(timedelta(milliseconds=50))
    assert desk.ledger.told == ["failed uid-p", "done uid-p"]


# Evictions


async def test_an_eviction_names_the_uid() -> None:
    desk = Desk(lambda request: json_response(status=201))
    async with desk.at_work():
        desk.evictor.submit(EvictRequest(Key("ns", "p"), "uid-p"))
    (body,) = desk.wire.sent_bodies
    assert body["deleteOptions"]["preconditions"] == {"uid": "uid-p"}
    assert desk.ledger.told == []


@pytest.mark.parametrize(("status", "told"), [(429, ["stays uid-p"]), (404, []), (409, []), (403, ["stays uid-p"])])
async def test_who_may_not_be_evicted_stays_and_who_is_gone_is_gone(status: int, told: list[str]) -> None:
    desk = Desk(lambda request: refusal_response(status))
    async with desk.at_work():
        desk.evictor.submit(EvictRequest(Key("ns", "p"), "uid-p"))
    assert len(desk.wire.requests) == 1
    assert desk.ledger.told == told


async def test_an_eviction_is_tried_a_few_times() -> None:
    desk = Desk(lambda request: refusal_response(500))
    async with desk.at_work():
        desk.evictor.submit(EvictRequest(Key("ns", "p"), "uid-p"))
        await desk.clock.advance(timedelta(seconds=10))
    assert len(desk.wire.requests) == 5
    assert desk.ledger.told == ["stays uid-p"]


async def test_when_the_term_ends_calls_under_way_are_waited_for_and_none_is_begun() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return json_response(status=201)

    desk = Desk(slow)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.committer.run())
        for number in range(6):
            desk.committer.submit(BindRequest(Key("ns", f"p{number}"), f"uid-{number}", "a", BIND))
        await settle()
        running.cancel()
        await settle()
        assert not running.done()
        gate.set()
        await settle()
        assert running.cancelled()
    assert len(desk.wire.requests) == 4
    assert desk.ledger.told == [f"done uid-{number}" for number in range(4)]
