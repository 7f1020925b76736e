"""Following logs: nothing twice, nothing lost, nothing piles up."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from typing import Any

import pytest

from gangline.api.meta import JSON, Key
from gangline.base.tasks import background_tasks
from gangline.dashboard.live import log_follower
from gangline.dashboard.live.log_follower import (
    MAX_FOLLOWED,
    MAX_WAITING_LINES,
    LogFollower,
    LogPositions,
    RunId,
    SavedPositions,
    readable_runs,
)
from gangline.dashboard.live.rights import Access, Refusal
from gangline.dashboard.rows.log_page import LogQuery
from gangline.kube.errors import KubeError, Status, StreamBroken, Unauthorized, Unreachable
from gangline.summary.log_lines import normalized_time
from gangline.summary.objects import JOB_KINDS, ServerJob
from gangline.testing.clock import FakeClock
from support.waiting import wait_until

JOB = ServerJob(JOB_KINDS[1], {"metadata": {"name": "bert", "namespace": "default", "uid": "job-1"}})


def pod(number: int, restarts: int = 0, **state: JSON) -> JSON:
    status = {"name": "pytorch", "restartCount": restarts, "state": state or {"running": {}}}
    if restarts:
        status["lastState"] = {"terminated": {}}
    return {
        "metadata": {"name": f"bert-worker-{number}", "namespace": "default", "uid": f"pod-{number}"},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"containerStatuses": [status]},
    }


def stamp(number: int) -> str:
    return f"2026-01-01T00:00:{number // 1000:02}.{number % 1000:03}000000Z"


class FakePods:
    """The pods of a job as an informer has them, and their logs."""

    def __init__(self, *pods: JSON) -> None:
        self.cache = list(pods)
        self.subscriber: Any = None
        self.asked: list[dict[str, Any]] = []
        self.logs_of: dict[tuple[str, bool], list[Any]] = {}
        self.sent = 0
        self.open: set[str] = set()

    @asynccontextmanager
    async def informer(self, spec: Any) -> AsyncGenerator["FakePods", None]:
        yield self

    def subscribe(self, subscriber: Any) -> Any:
        self.subscriber = subscriber
        return nullcontext()

    def change(self, *pods: JSON) -> None:
        self.cache = list(pods)
        self.subscriber(None)

    def __call__(self, client: Any) -> "FakePods":
        return self

    async def logs(self, key: Key, **options: Any) -> AsyncGenerator[bytes, None]:
        self.asked.append({"pod": key.name, **options})
        for item in self.logs_of.get((key.name, options["previous"]), []):
            if isinstance(item, Exception):
                self.logs_of[key.name, options["previous"]].remove(item)
                raise item
            self.sent += 1
            yield f"{stamp(item)} line {item}".encode()
        if options["follow"]:
            self.open.add(key.name)
            try:
                await asyncio.Event().wait()
            finally:
                self.open.discard(key.name)


class FakeRights:
    """What the server says of a viewer who may read logs, until that is taken away."""

    def __init__(self) -> None:
        self.everything = True
        self.pods: tuple[str, ...] = ()
        self.error: KubeError | None = None
        self.asked = 0

    async def may(self, access: Access) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        assert (access.verb, access.resource.plural, access.subresource) == ("get", "pods", "log")
        return self.everything or access.name in self.pods

    async def refusal(self, access: Access) -> Refusal:
        return Refusal(resource="pods/log", namespace="default", message=f"jane may not get {access.name}")


def follower(
    pods: FakePods,
    monkeypatch: pytest.MonkeyPatch,
    positions: LogPositions,
    allowed: FakeRights | None = None,
    **query: Any,
) -> LogFollower:
    monkeypatch.setattr(log_follower, "PodSubresources", pods)
    client: Any = None
    watches: Any = pods
    rights: Any = allowed or FakeRights()
    return LogFollower(client, rights, watches, FakeClock(), JOB, LogQuery(**query), positions)


async def take(follower: LogFollower, count: int) -> list[tuple[str, int, str]]:
    taken: list[tuple[str, int, str]] = []
    while len(taken) < count:
        taken += [(item.line.replica, item.attempt, item.line.text) for item in await follower.lines(100)]
    return taken


async def test_following_begins_where_the_page_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pods, positions = FakePods(pod(0), pod(1)), LogPositions()
    pods.logs_of = {("bert-worker-0", False): [1, 2, 3], ("bert-worker-1", False): [4]}
    positions.set(RunId("pod-0", 0), normalized_time(stamp(2)))
    made = follower(pods, monkeypatch, positions)
    async with background_tasks(made.run()):
        assert sorted(await take(made, 2)) == [("worker-0", 0, "line 3"), ("worker-1", 0, "line 4")]
    asked = {item["pod"]: item["since"] for item in pods.asked}
    assert asked["bert-worker-1"] is None
    assert asked["bert-worker-0"] == datetime.fromisoformat("2026-01-01T00:00:00.002+00:00")


async def test_a_log_that_the_page_did_not_read_to_its_end_is_followed_from_its_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods, positions = FakePods(pod(0)), LogPositions()
    pods.logs_of = {("bert-worker-0", False): [7]}
    positions.set(RunId("pod-0", 0), None)
    made = follower(pods, monkeypatch, positions)
    async with background_tasks(made.run()):
        await take(made, 1)
    assert [item["tail"] for item in pods.asked] == [log_follower.TAIL_LINES]


async def test_a_container_that_starts_again_is_followed_to_its_end_and_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods, positions = FakePods(pod(0, waiting={})), LogPositions()
    positions.set(RunId("pod-0", 0), normalized_time(stamp(1)))
    made = follower(pods, monkeypatch, positions)
    async with background_tasks(made.run()):
        await wait_until(lambda: pods.subscriber is not None)
        pods.logs_of = {("bert-worker-0", True): [1, 2], ("bert-worker-0", False): [5]}
        pods.change(pod(0, restarts=1))
        assert sorted(await take(made, 2)) == [("worker-0", 0, "line 2"), ("worker-0", 1, "line 5")]


async def test_a_cut_stream_is_resumed_without_a_line_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = FakePods(pod(0))
    pods.logs_of = {("bert-worker-0", False): [1, 2, StreamBroken("cut"), 3]}
    made = follower(pods, monkeypatch, LogPositions())
    clock = made._clock
    assert isinstance(clock, FakeClock)
    async with background_tasks(made.run()):
        first = await take(made, 2)
        await clock.advance(log_follower.RETRY_DELAY)
        assert [text for _, _, text in [*first, *await take(made, 1)]] == ["line 1", "line 2", "line 3"]


async def test_lines_that_nobody_takes_stop_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = FakePods(pod(0))
    pods.logs_of = {("bert-worker-0", False): list(range(5 * MAX_WAITING_LINES))}
    made = follower(pods, monkeypatch, LogPositions())
    async with background_tasks(made.run()):
        await wait_until(lambda: pods.sent > MAX_WAITING_LINES)
        for _ in range(100):
            await asyncio.sleep(0)
        assert pods.sent == MAX_WAITING_LINES + 1
        texts = [text for _, _, text in await take(made, 5 * MAX_WAITING_LINES)]
        assert texts == [f"line {number}" for number in range(5 * MAX_WAITING_LINES)]


async def test_only_what_is_asked_for_is_followed_and_not_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = FakePods(*(pod(number) for number in range(MAX_FOLLOWED + 5)))
    pods.logs_of = {("bert-worker-3", False): [1, 2]}
    chosen = follower(pods, monkeypatch, LogPositions(), replicas=("worker-3",), search="LINE 2")
    async with background_tasks(chosen.run()):
        assert await take(chosen, 1) == [("worker-3", 0, "line 2")]
    assert [item["pod"] for item in pods.asked] == ["bert-worker-3"]
    everyone = follower(pods, monkeypatch, LogPositions())
    async with background_tasks(everyone.run()):
        await wait_until(lambda: len(pods.asked) > MAX_FOLLOWED)
    assert len(pods.asked) == MAX_FOLLOWED + 1
    (note,) = everyone.notes
    assert "choose a replica" in note


async def test_logs_that_may_not_be_read_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    pods, allowed = FakePods(pod(0), pod(1)), FakeRights()
    made = follower(pods, monkeypatch, LogPositions(), allowed)
    clock = made._clock
    assert isinstance(clock, FakeClock)

    async def look_again() -> None:
        before = allowed.asked
        await clock.advance(log_follower.RIGHTS_INTERVAL)
        await wait_until(lambda: allowed.asked > before)

    async with background_tasks(made.run()):
        await wait_until(lambda: len(pods.open) == 2)
        allowed.error = Unreachable("nobody answers")
        await look_again()
        assert (len(pods.open), made.notes) == (2, {})
        allowed.error, allowed.everything, allowed.pods = None, False, ("bert-worker-1",)
        await look_again()
        await wait_until(lambda: pods.open == {"bert-worker-1"})
        assert list(made.notes) == ["worker-0: jane may not get bert-worker-0"]
        allowed.error = Unauthorized(Status(code=401, message="the token has expired"))
        await look_again()
        await wait_until(lambda: not pods.open)
        assert list(made.notes)[1:] == ["the token has expired"]


def test_positions_are_used_once_and_the_oldest_is_forgotten() -> None:
    saved = SavedPositions()
    first = saved.save(LogPositions())
    last = [saved.save(LogPositions()) for _ in range(log_follower.MAX_SAVED)][-1]
    assert saved.take(first) is None
    assert saved.take(last) is not None
    assert saved.take(last) is None


def test_a_container_that_waits_to_be_started_again_has_the_log_of_its_last_run() -> None:
    assert readable_runs(pod(0, waiting={})) == []
    assert [(run.id.attempt, run.previous) for run in readable_runs(pod(0, 2, waiting={}))] == [(2, False)]
    assert [(run.id.attempt, run.previous) for run in readable_runs(pod(0, 2))] == [(1, True), (2, False)]
