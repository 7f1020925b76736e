"""The PodScheduled conditions that autoscalers read, and when none is written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GANG_GATE
from gangline.kube.client import Client
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import Intervals
from gangline.scheduler.status.pod_conditions import PodConditionReporter
from gangline.scheduler.types.cycle import Pending, PendingReason
from gangline.testing.clock import FakeClock, settle
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group
from support.servers.scripted import ScriptedTransport, json_response

PACE = Intervals()


class ReporterEnv:
    """A condition reporter for one gang, `g`."""

    def __init__(self, *pods: Pod) -> None:
        self.clock = FakeClock(START_TIME)
        self.wire = ScriptedTransport(lambda request: json_response({}))
        self.signals = PodConditionReporter(Client(self.wire, scheme=SCHEME, clock=self.clock), self.clock, PACE)
        self.gangs = GangRegistry()
        self.gang: GangInfo = self.gangs.put_group(make_pod_group("g", 2))
        self.put(*pods)

    def put(self, *pods: Pod) -> None:
        for each in pods:
            self.gangs.put_pod(each, shape_of(each))

    async def says(self, cause: PendingReason | None, message: str = "no room") -> None:
        requests = self.gangs.requests()
        self.gang.progress.pending = Pending(requests[0], cause, message) if cause is not None else None
        self.signals.enqueue(self.gang)
        await self.clock.advance(PACE.report)

    @property
    def said(self) -> list[tuple[str, str, str]]:
        result: list[Any] = [body["status"]["conditions"][0] for body in self.wire.sent_bodies]
        names = [request.path.split("/")[-2] for request in self.wire.requests]
        return [(name, each["reason"], each["message"]) for name, each in zip(names, result, strict=True)]

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.signals.run())
            yield
            await settle()
            running.cancel()


def waiting(number: int, **more: Any) -> Pod:
    return make_gang_pod(f"g-{number}", "g", **more)


async def test_all_members_without_a_place_say_so() -> None:
    env = ReporterEnv(waiting(0), waiting(1))
    async with env.up():
        await env.says(PendingReason.RESOURCES)
    assert env.said == [("g-0", "Unschedulable", "no room"), ("g-1", "Unschedulable", "no room")]
    (first, _) = env.wire.sent_bodies
    assert first["metadata"] == {"uid": "uid-g-0"}
    assert first["status"]["conditions"][0]["status"] == "False"


@pytest.mark.parametrize(
    "cause", [PendingReason.QUEUE, PendingReason.VICTIMS, PendingReason.HELD, PendingReason.REFUSED, None]
)
async def test_for_any_other_cause_they_say_nothing(cause: PendingReason | None) -> None:
    env = ReporterEnv(waiting(0), waiting(1))
    async with env.up():
        await env.says(cause)
    assert env.said == []


async def test_what_was_said_is_not_said_again() -> None:
    messages = ("False", "Unschedulable")
    env = ReporterEnv(waiting(0, condition=messages), waiting(1, condition=messages))
    async with env.up():
        await env.says(PendingReason.RESOURCES)
        before = len(env.said)
        # Another message shortly after the first is not written.
        await env.says(PendingReason.RESOURCES, "0/12 nodes")
        assert len(env.said) == before
        await env.clock.advance(PACE.condition_write)
        await env.says(PendingReason.RESOURCES, "0/13 nodes")
    assert env.said[-1] == ("g-1", "Unschedulable", "0/13 nodes")


async def test_a_mark_that_no_longer_holds_is_taken_back() -> None:
    messages = ("False", "Unschedulable")
    env = ReporterEnv(waiting(0, condition=messages), waiting(1))
    async with env.up():
        await env.says(PendingReason.QUEUE, "not its turn")
    assert env.said == [("g-0", "Waiting", "not its turn")]


async def test_gated_pods_are_not_spoken_for() -> None:
    pinned = {"scheduler": "default-scheduler", "gates": [GANG_GATE]}
    env = ReporterEnv(waiting(0, **pinned), waiting(1, **pinned))
    async with env.up():
        await env.says(PendingReason.RESOURCES)
    assert env.said == []


async def test_who_has_a_place_says_nothing() -> None:
    env = ReporterEnv(waiting(0, node="a"), waiting(1), waiting(2))
    async with env.up():
        await env.says(PendingReason.RESOURCES)
        await env.clock.advance(timedelta(seconds=1))
    assert [name for name, _, _ in env.said] == ["g-1", "g-2"]
