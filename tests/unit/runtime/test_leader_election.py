import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from gangline.api.meta import JSON, Key
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.runtime.leader_election import (
    LeaderElector,
    LeadershipFence,
    LeaseSettings,
    LostLeadership,
    NotLeading,
    unique_identity,
)
from gangline.testing.clock import FakeClock, settle
from support.servers.memory import CallHandler, MemoryCall, MemoryServer, api_failure, perform_call

SECOND = timedelta(seconds=1)
LEASE = Key("system", "operator")


class World:
    """A server, a clock, and electors whose work records when it runs."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer()
        self.at_work: list[str] = []
        self.reports: list[tuple[str, bool]] = []

    def elector(self, identity: str, wire: CallHandler = perform_call, clock: FakeClock | None = None) -> LeaderElector:
        return LeaderElector(
            self.server.client(wire),
            LEASE,
            identity,
            clock or self.clock,
            report=lambda leading: self.reports.append((identity, leading)),
        )

    def work(self, identity: str) -> Callable[[], Awaitable[None]]:
        async def forever() -> None:
            self.at_work.append(identity)
            try:
                await asyncio.Event().wait()
            finally:
                self.at_work.remove(identity)

        return forever

    def lease(self) -> JSON:
        spec: JSON = self.server.get("leases", LEASE)["spec"]
        return spec

    def held_by_a_stranger(self, **spec: object) -> None:
        """A record of another machine, whose clock is years off."""
        record = {"holderIdentity": "stranger", "leaseDurationSeconds": 15, "leaseTransitions": 3}
        times = {"acquireTime": "1999-01-01T00:00:00.000000Z", "renewTime": "1999-01-01T00:00:00.000000Z"}
        body = {"metadata": {"name": LEASE.name, "namespace": LEASE.namespace}}
        self.server.create("leases", LEASE, {**body, "spec": {**record, **times, **spec}})


@pytest.fixture
def world() -> World:
    return World()


async def leading(group: asyncio.TaskGroup, world: World, leader: LeaderElector) -> asyncio.Task[None]:
    task = group.create_task(leader.run_while_leading(world.work(leader.identity)))
    await settle()
    return task


async def expect_lost(leader: LeaderElector, run: Callable[[], Awaitable[None]]) -> str:
    with pytest.raises(LostLeadership) as caught:
        await leader.run_while_leading(run)
    return str(caught.value)


async def test_free_lease_is_taken_at_once(world: World) -> None:
    leader = world.elector("a")
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, leader)
        assert world.at_work == ["a"]
        assert leader.is_leader
        assert world.lease() == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        task.cancel()
    assert not leader.is_leader


async def test_leader_renews_and_candidate_waits(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [await leading(group, world, world.elector(name)) for name in "ab"]
        await world.clock.advance(100 * SECOND)
        assert world.at_work == ["a"]
        assert world.lease()["acquireTime"] == "2026-01-01T00:00:00.000000Z"
        assert world.lease()["renewTime"] == "2026-01-01T00:01:40.000000Z"
        for task in tasks:
            task.cancel()


async def test_released_lease_is_taken_at_the_next_look_and_the_change_is_counted(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        first = await leading(group, world, world.elector("a"))
        second = await leading(group, world, world.elector("b"))
        first.cancel()
        await settle()
        assert world.lease()["holderIdentity"] == ""
        assert world.lease()["leaseDurationSeconds"] == 1
        await world.clock.advance(4.4 * SECOND)
        assert world.at_work == ["b"]
        assert world.lease()["leaseTransitions"] == 1
        assert world.lease()["leaseDurationSeconds"] == 15
        second.cancel()
    assert world.reports == [("a", True), ("a", False), ("b", True), ("b", False)]


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2055-01-01T00:00:00.000000Z"])
async def test_silent_holder_is_believed_for_its_duration_from_when_it_was_first_seen(
    world: World, renewed: str
) -> None:
    world.held_by_a_stranger(renewTime=renewed)
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a"))
        await world.clock.advance(14.9 * SECOND)
        assert world.at_work == []
        await world.clock.advance(4.5 * SECOND)
        assert world.at_work == ["a"]
        assert world.lease()["leaseTransitions"] == 4
        task.cancel()


async def test_holder_that_renews_late_is_believed_anew(world: World) -> None:
    world.held_by_a_stranger()
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a"))
        await world.clock.advance(14 * SECOND)
        world.server.patch("leases", LEASE, {"spec": {"renewTime": "1999-01-01T00:00:00.000001Z"}})
        await world.clock.advance(14 * SECOND)
        assert world.at_work == []
        task.cancel()
    assert world.lease()["holderIdentity"] == "stranger", "what was never ours is not released"


async def test_wall_clock_that_stands_still_does_not_look_like_death(world: World) -> None:
    """A renewal must change the record: otherwise the server does not store it, and candidates do not see it."""
    stuck = FakeClock()
    async with asyncio.TaskGroup() as group:
        first = await leading(group, world, world.elector("a", clock=stuck))
        second = await leading(group, world, world.elector("b"))
        for _ in range(30):
            await stuck.advance(SECOND)
            stuck.jump(-SECOND)
            await world.clock.advance(SECOND)
        assert world.at_work == ["a"]
        first.cancel()
        second.cancel()


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_candidate_whose_wall_clock_differs_takes_over_neither_earlier_nor_later(
    world: World, hours: int
) -> None:
    shifted = FakeClock(world.clock.now() + timedelta(hours=hours))

    async def pass_time(seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            await world.clock.advance(SECOND / 10)
            await shifted.advance(SECOND / 10)

    async with asyncio.TaskGroup() as group:
        leader, candidate = world.elector("a"), world.elector("b", clock=shifted)
        first = await leading(group, world, leader)
        second = await leading(group, world, candidate)
        await pass_time(60)
        assert world.at_work == ["a"]
        first.cancel()
        await settle()
        await pass_time(6)
        assert world.at_work == ["b"]
        third = await leading(group, world, world.elector("c"))
        await pass_time(60)
        assert world.at_work == ["b"], "the times that it writes mean nothing to others"
        second.cancel()
        third.cancel()


@pytest.mark.parametrize("fault", ["silent", "refused"])
async def test_leader_that_cannot_renew_stops_at_the_deadline_and_before_anybody_takes_over(
    world: World, fault: str
) -> None:
    broken = asyncio.Event()

    async def wire(call: MemoryCall) -> JSON:
        if broken.is_set():
            if fault == "refused":
                raise Unreachable("connection refused")
            await asyncio.Event().wait()
        return call.perform()

    async with asyncio.TaskGroup() as group:
        lost = group.create_task(expect_lost(world.elector("a", wire), world.work("a")))
        await settle()
        other = await leading(group, world, world.elector("b"))
        await world.clock.advance(3 * SECOND)
        broken.set()  # the last renewal was sent at 2 s
        await world.clock.advance(8.9 * SECOND)
        assert world.at_work == ["a"]
        await world.clock.advance(0.1 * SECOND)
        assert world.at_work == []
        # At most 4.4 s until "b" sees the last renewal, 15 s of belief, 4.4 s until it looks again.
        await world.clock.advance(15 * SECOND)
        assert world.at_work == ["b"]
        assert "not renewed for 10 s" in await lost
        other.cancel()


async def test_connection_that_died_silently_leaves_time_for_another_attempt(world: World) -> None:
    hangs = 1

    async def wire(call: MemoryCall) -> JSON:
        nonlocal hangs
        if call.verb == "patch" and hangs:
            hangs -= 1
            await asyncio.Event().wait()
        return call.perform()

    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a", wire))
        await world.clock.advance(60 * SECOND)
        assert world.at_work == ["a"]
        task.cancel()


async def test_leader_stops_as_soon_as_it_sees_another_holder(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(expect_lost(world.elector("a"), world.work("a")))
        await settle()
        world.server.patch("leases", LEASE, {"spec": {"holderIdentity": "usurper"}})
        await world.clock.advance(2 * SECOND)
        assert world.at_work == []
        assert "usurper holds it now" in await lost
    assert world.lease()["holderIdentity"] == "usurper"


async def test_lost_leadership_is_raised_only_after_slow_work_has_ended(world: World) -> None:
    may_end = asyncio.Event()
    leader = world.elector("a")
    seen: list[bool] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(leader.is_leader)
            await may_end.wait()

    async with asyncio.TaskGroup() as group:
        lost = group.create_task(expect_lost(leader, slow))
        await settle()
        world.server.patch("leases", LEASE, {"spec": {"holderIdentity": "usurper"}})
        await world.clock.advance(60 * SECOND)
        assert not lost.done()
        assert seen == [False], "the work can see that it no longer leads"
        may_end.set()


async def test_work_that_outlives_the_lease_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for seconds, lines in ((4, 0), (16, 1)):
        caplog.clear()
        await outlive(World(), seconds * SECOND)
        assert [record.message for record in caplog.records].count("work outlived the lease") == lines


async def outlive(world: World, by: timedelta) -> None:
    """Lose the lease at its deadline, 10 s after the start, and work on for this long."""
    broken = False

    async def wire(call: MemoryCall) -> JSON:
        if broken:
            raise Unreachable("refused")
        return call.perform()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await world.clock.sleep(by)

    async with asyncio.TaskGroup() as group:
        group.create_task(expect_lost(world.elector("a", wire), stubborn))
        await settle()
        broken = True
        await world.clock.advance(10 * SECOND + by)


async def test_cancelled_work_that_is_slow_to_end_keeps_its_lease_until_it_has(world: World) -> None:
    may_end = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.elector("a").run_while_leading(slow))
        await settle()
        other = await leading(group, world, world.elector("b"))
        task.cancel()
        await world.clock.advance(60 * SECOND)
        assert world.lease()["holderIdentity"] == "a"
        assert world.at_work == []
        may_end.set()
        await settle()
        assert world.lease()["holderIdentity"] == ""
        await world.clock.advance(5 * SECOND)
        assert world.at_work == ["b"]
        other.cancel()


async def test_lost_answers_do_not_lose_the_lease(world: World) -> None:
    """Every second write is carried out but its response is lost: the process holds the lease without knowing."""
    writes = 0

    async def wire(call: MemoryCall) -> JSON:
        nonlocal writes
        answer = call.perform()
        writes += call.verb != "get"
        if call.verb != "get" and writes % 2:
            raise Unreachable("connection reset")
        return answer

    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a", wire))
        await world.clock.advance(60 * SECOND)
        assert world.at_work == ["a"]
        assert world.lease().get("leaseTransitions", 0) == 0
        task.cancel()


async def test_candidate_cancelled_before_it_heard_that_it_won_gives_the_lease_back(world: World) -> None:
    async def wire(call: MemoryCall) -> JSON:
        answer = call.perform()
        if call.verb == "create":
            await asyncio.Event().wait()
        return answer

    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a", wire))
        assert world.lease()["holderIdentity"] == "a"
        task.cancel()
    assert world.lease()["holderIdentity"] == ""
    assert world.reports == []


async def test_of_two_that_see_a_free_lease_one_wins(world: World) -> None:
    async def late(call: MemoryCall) -> JSON:
        if call.verb == "create":
            await world.clock.sleep(SECOND)
        return call.perform()

    async with asyncio.TaskGroup() as group:
        tasks = [await leading(group, world, world.elector(name, late)) for name in "ab"]
        await world.clock.advance(30 * SECOND)
        assert world.at_work == ["a"]
        for task in tasks:
            task.cancel()


async def test_deleted_lease_is_created_again(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a"))
        world.server.delete("leases", LEASE)
        await world.clock.advance(20 * SECOND)
        assert world.at_work == ["a"]
        assert world.lease()["holderIdentity"] == "a"
        task.cancel()


async def test_work_that_returns_releases_and_may_be_run_again(world: World) -> None:
    leader = world.elector("a")
    terms: list[str] = []

    async def brief() -> None:
        terms.append(world.lease()["holderIdentity"])

    for _ in range(2):
        await leader.run_while_leading(brief)
        assert world.lease()["holderIdentity"] == ""
    assert terms == ["a", "a"]


async def test_error_of_the_work_is_raised_as_it_is_after_the_release(world: World) -> None:
    async def faulty() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await world.elector("a").run_while_leading(faulty)
    assert world.lease()["holderIdentity"] == ""


async def test_forbidden_lease_is_asked_for_again(world: World) -> None:
    refusals = 3

    async def wire(call: MemoryCall) -> JSON:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise api_failure(403, "Forbidden")
        return call.perform()

    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, world.elector("a", wire))
        assert world.at_work == []
        await world.clock.advance(14 * SECOND)
        assert world.at_work == ["a"]
        task.cancel()


@pytest.mark.parametrize(("lease", "deadline", "retry"), [(10, 10, 2), (15, 10, 10), (0.5, 0.3, 0.1), (15, 10, 0)])
def test_settings_that_could_not_be_safe_are_refused(lease: float, deadline: float, retry: float) -> None:
    with pytest.raises(ValueError):
        LeaseSettings(lease * SECOND, deadline * SECOND, retry * SECOND)


def test_identities_are_unique() -> None:
    assert unique_identity() != unique_identity()


class RecordingTransport:
    """Answers every request, and waits for `gate` before it is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        await self.gate.wait()
        if request.precheck is not None:
            request.precheck()
        self.sent.append(str(request))
        return Response(200, b"{}")

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


GET, POST = Request("GET", "/pods"), Request("POST", "/pods")


async def test_only_a_leader_writes(world: World) -> None:
    leader, wire = world.elector("a"), RecordingTransport()
    fence = LeadershipFence(wire, leader)
    await fence.send(GET)
    with pytest.raises(NotLeading):
        await fence.send(POST)
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, leader)
        await fence.send(POST)
        task.cancel()
    with pytest.raises(NotLeading):
        await fence.send(POST)
    assert wire.sent == ["GET /pods", "POST /pods"]


async def test_a_leader_that_was_frozen_writes_nothing_before_it_knows(world: World) -> None:
    """It is thawed after its lease has expired: no timer has fired yet, and its work goes on."""
    leader, wire = world.elector("a"), RecordingTransport()
    fence = LeadershipFence(wire, leader)
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, leader)
        wire.gate.clear()
        waiting = asyncio.create_task(fence.send(POST))
        await settle()
        world.clock.skip(timedelta(seconds=16))
        wire.gate.set()
        with pytest.raises(NotLeading):
            await waiting
        with pytest.raises(NotLeading):
            await fence.send(POST)
        assert world.at_work == ["a"]
        task.cancel()
    assert wire.sent == []


async def test_time_for_which_the_machine_was_suspended_counts(world: World) -> None:
    """The monotonic clock stands still while a machine is suspended; the time since boot does not."""
    since_boot = [0.0]
    leader = LeaderElector(world.server.client(perform_call), LEASE, "a", world.clock, since_boot=lambda: since_boot[0])
    async with asyncio.TaskGroup() as group:
        task = await leading(group, world, leader)
        before = leader.is_leader
        since_boot[0] = 16.0
        assert (before, leader.is_leader) == (True, False)
        task.cancel()


async def test_without_an_election_everything_is_written() -> None:
    wire = RecordingTransport()
    await LeadershipFence(wire, None).send(POST)
    assert wire.sent == ["POST /pods"]
