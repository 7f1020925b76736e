"""The status of PodGroups, how often it is written, and its Events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroup, PodGroupState, PodGroupStatus
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response
from gangline.runtime.events import EventRecorder
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.phase import PlacementAttempt
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import Intervals
from gangline.scheduler.status.podgroups import MAX_CONCURRENT_WRITES, PodGroupReporter, status_patch
from gangline.scheduler.types.cycle import Pending, PendingReason
from gangline.testing.clock import FakeClock, settle
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group
from support.servers.scripted import ScriptedTransport, json_response, refusal_response

PACE = Intervals()


class ReporterEnv:
    """A reporter with a server that has one PodGroup, `g`."""

    def __init__(self, least: int = 2) -> None:
        self.clock = FakeClock(START_TIME)
        self.wire = ScriptedTransport(self._say)
        self.gangs = GangRegistry()
        self.stored: JSON = to_json(make_pod_group("g", least))
        self.conflicts = 0
        client = Client(self.wire, scheme=SCHEME, clock=self.clock)
        self.recorder = EventRecorder(client, "gangline.dev/scheduler", "test", self.clock, scheme=SCHEME)
        self.busy = False
        self.surprises: list[None] = []
        self.reporter = PodGroupReporter(
            client,
            self.clock,
            self.gangs,
            self.recorder,
            PACE,
            is_busy=lambda: self.busy,
            changed=lambda: self.surprises.append(None),
        )
        self.gang: GangInfo = self.gangs.put_group(self.group)

    @property
    def group(self) -> PodGroup:
        return msgspec.convert(self.stored, PodGroup)

    @property
    def writes(self) -> list[Any]:
        sent = [request for request in self.wire.requests if request.path.endswith("/status")]
        return [msgspec.json.decode(request.body)["status"] for request in sent]

    @property
    def events(self) -> list[tuple[str, str]]:
        sent = [request for request in self.wire.requests if request.path.endswith("/events")]
        bodies = [msgspec.json.decode(request.body) for request in sent]
        return [(sent["type"], sent["reason"]) for sent in bodies]

    def _say(self, request: Request) -> Response:
        if request.method == "GET":
            return json_response(self.stored)
        if not request.path.endswith("/status"):
            return json_response(status=201)
        sent = msgspec.json.decode(request.body)
        if self.conflicts or sent["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            self.conflicts = max(0, self.conflicts - 1)
            return refusal_response(409)
        self.touch()
        state = {name: value for name, value in sent["status"]["state"].items() if value is not None}
        self.stored["status"] = {**sent["status"], "state": state}
        return json_response(self.stored)

    def touch(self) -> None:
        metadata = self.stored["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def member(self, number: int, phase: str = "Running") -> None:
        result = make_gang_pod(f"g-{number}", "g", role="worker", index=number, node="a", phase=phase)
        self.gangs.put_pod(result, shape_of(result))
        self.reporter.enqueue(self.gang)

    async def passes(self, duration: timedelta = PACE.report) -> None:
        await self.clock.advance(duration)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.reporter.run()), tasks.create_task(self.recorder.run())]
            yield
            await settle()
            for task in running:
                task.cancel()


async def test_the_first_look_is_written_and_is_no_event() -> None:
    env = ReporterEnv()
    async with env.open():
        env.reporter.enqueue(env.gang)
        await env.passes()
    (written,) = env.writes
    assert written["state"]["phase"] == "Pending"
    assert written["state"]["reason"] == "NotEnoughTasks"
    assert written["state"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert env.events == []


async def test_a_new_phase_is_written_at_once_with_one_event() -> None:
    env = ReporterEnv()
    async with env.open():
        env.reporter.enqueue(env.gang)
        await env.passes()
        env.member(0)
        env.member(1)
        await env.passes()
        assert [written["state"]["phase"] for written in env.writes] == ["Pending", "Running"]
        assert env.writes[-1]["running"] == 2
        # Empty fields are removed.
        assert env.writes[-1]["state"]["reason"] is None
        env.member(1, "Failed")
        await env.passes()
    assert env.events == [("Normal", "Running"), ("Warning", "Recovering")]
    assert env.writes[-1]["failed"] == 1


async def test_other_words_about_the_same_phase_are_written_at_most_once_a_second() -> None:
    env = ReporterEnv(least=4)
    async with env.open():
        env.reporter.enqueue(env.gang)
        await env.passes()
        for number in range(3):
            env.member(number, "Pending")
            await env.passes()
        assert len(env.writes) == 1
        await env.passes(PACE.status_write + PACE.report)
        assert len(env.writes) == 2
    assert "3 of 4 exist" in env.writes[-1]["state"]["message"]


async def test_words_that_change_with_every_placement_are_written_seldom_and_hold_nothing_else_up() -> None:
    env = ReporterEnv(least=3)

    def in_vain(words: str) -> None:
        (ask,) = env.gangs.requests()
        env.gang.progress.pending = Pending(ask, PendingReason.RESOURCES, words)
        env.gang.progress.last_attempt = PlacementAttempt(failed=True, message=words)
        env.reporter.enqueue(env.gang)

    async with env.open():
        for number in range(3):
            waiting = make_gang_pod(f"g-{number}", "g", role="worker", index=number)
            env.gangs.put_pod(waiting, shape_of(waiting))
        in_vain("0/9 nodes: 9 lack cpu")
        await env.passes(3 * PACE.status_write)
        before = len(env.writes)
        for number in range(1, 9):
            in_vain(f"0/9 nodes: {9 - number} lack cpu, {number} tainted")
            await env.passes(PACE.status_write)
        assert len(env.writes) == before
        await env.passes(PACE.message_write)
        assert len(env.writes) == before + 1
        assert env.writes[-1]["state"]["message"].endswith("1 lack cpu, 8 tainted")
        # Counters are written without delay, although messages wait.
        env.member(0)
        await env.passes()
        assert env.writes[-1]["running"] == 1
        in_vain("0/9 nodes: 9 cordoned")
        await env.passes(PACE.status_write + 2 * PACE.report)
        assert env.writes[-1]["state"]["message"].endswith("9 cordoned")
        in_vain("0/9 nodes: 9 tainted")
        await env.passes()
        env.member(1)
        await env.passes(PACE.status_write + PACE.report)
        assert env.writes[-1]["running"] == 2


async def test_what_does_not_change_is_written_at_most_every_30_seconds_and_only_if_somebody_looks() -> None:
    env = ReporterEnv()
    async with env.open():
        env.member(0)
        env.member(1)
        await env.passes(timedelta(seconds=5))
        before = len(env.writes)
        first = env.group.status.state
        await env.passes(timedelta(minutes=5))
        assert len(env.writes) == before
        for _ in range(60):
            env.reporter.enqueue(env.gang)
            await env.passes(timedelta(seconds=5))
        assert len(env.writes) - before == 10
    state = env.group.status.state
    assert state.last_transition_time == first.last_transition_time
    assert state.last_probe_time is not None
    assert first.last_probe_time is not None
    assert state.last_probe_time > first.last_probe_time


async def test_times_do_not_go_back_when_the_clock_does() -> None:
    env = ReporterEnv()
    async with env.open():
        env.member(0)
        env.member(1)
        await env.passes(timedelta(seconds=5))
        before = env.group.status.state
        env.clock.jump(timedelta(hours=-1))
        env.member(1, "Failed")
        await env.passes(timedelta(seconds=5))
    state = env.group.status.state
    assert state.phase == "Recovering"
    assert state.last_probe_time is not None
    assert before.last_probe_time is not None
    assert state.last_probe_time >= before.last_probe_time


async def test_after_a_conflict_the_group_is_read_and_probed_again() -> None:
    env = ReporterEnv()
    async with env.open():
        # Another client wrote, and our watch has not shown it yet.
        env.touch()
        env.stored["spec"]["minMember"] = 1
        env.member(0)
        await env.passes(timedelta(seconds=1))
    assert env.group.status.state.phase == "Running"
    assert [request.method for request in env.wire.requests if "podgroups" in request.path][:2] == [
        "PATCH",
        "GET",
    ]
    assert len(env.surprises) == 1


async def test_while_members_are_being_placed_nothing_is_written() -> None:
    env = ReporterEnv()
    async with env.open():
        env.busy = True
        env.reporter.enqueue(env.gang)
        await env.passes(timedelta(seconds=1))
        assert env.writes == []
        env.busy = False
        await env.passes(timedelta(seconds=1))
        assert len(env.writes) == 1


async def test_members_that_come_in_the_middle_of_a_pass_are_placed_first() -> None:
    env = ReporterEnv()
    names = [f"h{number}" for number in range(3 * MAX_CONCURRENT_WRITES)]

    def say(request: Request) -> Response:
        # With the first write, binding begins.
        env.busy = True
        return json_response(to_json(make_pod_group(request.path.split("/")[-2], 2)))

    env.wire.respond = say
    async with env.open():
        for name in names:
            env.reporter.enqueue(env.gangs.put_group(make_pod_group(name, 2)))
        await env.passes()
        assert len(env.writes) <= MAX_CONCURRENT_WRITES
        await env.passes(PACE.report)
        # However long that takes, all are written in the end.
        for _ in range(10):
            await env.passes(PACE.report)
        assert len(env.writes) >= len(names)


async def test_an_error_is_tried_again() -> None:
    env = ReporterEnv()
    works = env.wire.respond
    async with env.open():
        env.wire.respond = lambda request: refusal_response(500)
        env.reporter.enqueue(env.gang)
        await env.passes()
        assert env.group.status.state.phase == ""
        env.wire.respond = works
        await env.passes(timedelta(seconds=3))
    assert env.group.status.state.phase == "Pending"


def test_a_status_is_written_whole() -> None:
    state = PodGroupState(phase="Running", last_probe_time=START_TIME, last_transition_time=START_TIME)
    assert status_patch(PodGroupStatus(state=state, running=4)) == {
        "state": {
            "phase": "Running",
            "lastProbeTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": None,
            "message": None,
        },
        "running": 4,
        "succeeded": 0,
        "failed": 0,
    }
