"""Which logs are read for progress, and that their lines arrive, through restarts and broken connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.meta import Key, OwnerReference
from gangline.kube.errors import Forbidden, Status, StreamBroken
from gangline.operator.progress.log_reader import ProgressLogFollower, ProgressLogReader, pods_to_follow
from gangline.operator.progress.reporters import Reporter
from gangline.progress.line import Progress
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Delta
from gangline.testing.builders import make_member
from gangline.testing.clock import FakeClock
from support.waiting import wait_until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def member(kind: str, index: int = 0, *, job: str = "job", phase: str = "Running", age: int = 0) -> Pod:
    """A pod of a job, created so many seconds ago."""
    pod = make_member(kind, index, of=TFJOB)
    name = f"{job}-{kind.lower()}-{index}"
    owner = OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name=job, uid=f"uid-{job}", controller=True)
    metadata = msgspec.structs.replace(
        pod.metadata,
        name=name,
        uid=name,
        owner_references=(owner,),
        creation_timestamp=NOW - timedelta(seconds=age),
    )
    return msgspec.structs.replace(pod, metadata=metadata, status=msgspec.structs.replace(pod.status, phase=phase))


def names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_of_each_job_the_first_in_rank_is_followed() -> None:
    pods = [
        member("Worker", 1),
        member("PS"),
        member("Worker", 0),
        member("Chief"),
        member("Worker", 0, job="b", age=9),
    ]
    assert names(pods_to_follow(pods, (), 9)) == ["b-worker-0", "job-chief-0"]


def test_only_running_pods_of_jobs_are_followed() -> None:
    pending, ended = member("Chief", phase="Pending"), member("Chief", job="b", phase="Succeeded")
    deleted = member("Worker", job="c")
    deleted = msgspec.structs.replace(
        deleted, metadata=msgspec.structs.replace(deleted.metadata, deletion_timestamp=NOW)
    )
    stray = member("Worker", job="d")
    stray = msgspec.structs.replace(stray, metadata=msgspec.structs.replace(stray.metadata, owner_references=()))
    worker = member("Worker", 1)
    assert names(pods_to_follow([pending, ended, deleted, stray, worker], (), 9)) == ["job-worker-1"]


def test_the_limit_leaves_out_the_newest_and_never_those_that_are_followed() -> None:
    pods = [member("Worker", job=job, age=age) for job, age in (("a", 1), ("b", 3), ("c", 2))]
    assert names(pods_to_follow(pods, (), 2)) == ["b-worker-0", "c-worker-0"]
    assert names(pods_to_follow(pods, {"a-worker-0"}, 2)) == ["a-worker-0", "b-worker-0"]
    assert pods_to_follow(pods, (), 0) == []


class FakeInformer:
    """The cache of pods, whose changes the test makes."""

    def __init__(self) -> None:
        self.cache: Cache[Pod] = Cache()
        self._subscribers: list[Callable[[Delta[Pod]], None]] = []

    def subscribe(self, subscriber: Callable[[Delta[Pod]], None]) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def subscribed() -> Any:
            self._subscribers.append(subscriber)
            yield

        return subscribed()

    def put(self, pod: Pod) -> None:
        before = self.cache.get(pod.metadata.key)
        self.cache.put(pod)
        for subscriber in self._subscribers:
            subscriber(Delta(before, pod))


class FakeFollower:
    """Notes whom it follows, until the pod ends."""

    def __init__(self) -> None:
        self.following: list[str] = []
        self.ended = asyncio.Event()

    async def follow(self, pod: Pod, has_ended: Callable[[], bool]) -> None:
        self.following.append(pod.metadata.name)
        while not has_ended():
            self.ended.clear()
            await self.ended.wait()
        self.following.remove(pod.metadata.name)


async def test_a_pod_that_ends_makes_room_for_the_next() -> None:
    informer, follower = FakeInformer(), FakeFollower()
    counts: list[tuple[int, int]] = []
    pods: Any = informer
    reader = ProgressLogReader(pods, follower, 1, lambda *numbers: counts.append(numbers))
    informer.put(member("Worker", job="a", age=2))
    informer.put(member("Worker", job="b", age=1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run())
        await wait_until(lambda: follower.following == ["a-worker-0"])
        assert counts[-1] == (1, 1)
        informer.put(member("Worker", job="a", age=2, phase="Succeeded"))
        follower.ended.set()
        await wait_until(lambda: follower.following == ["b-worker-0"])
        await wait_until(lambda: counts[-1] == (1, 0))
        task.cancel()


class ScriptedLogs:
    """Logs as a server sends them: each request gets the next script, of lines and perhaps an error."""

    def __init__(self, *scripts: list[str | Exception]) -> None:
        self._scripts = list(scripts)
        self.requests: list[dict[str, Any]] = []

    async def logs(self, key: Key, **options: Any) -> AsyncGenerator[bytes, None]:
        self.requests.append(options)
        for item in self._scripts.pop(0) if self._scripts else []:
            if isinstance(item, Exception):
                raise item
            yield item.encode()


class FakeWriter:
    def __init__(self) -> None:
        self.reports: list[tuple[float, bool]] = []

    async def put(self, reporter: Reporter, progress: Progress, *, is_last: bool = False) -> None:
        assert reporter.uid == "job-chief-0"
        self.reports.append((progress.step, is_last))


def stamped(second: int, text: str) -> str:
    return f"2026-01-01T00:00:{second:02}.5Z {text}"


def report(step: int) -> str:
    return f'{{"progress": {{"step": {step}, "total": 3}}}}'


async def follow(logs: ScriptedLogs, endings: list[bool]) -> tuple[FakeWriter, FakeClock]:
    """Follow until the pod has ended: `endings` are the answers to whether it has."""
    writer, clock = FakeWriter(), FakeClock()
    parts: tuple[Any, Any] = (logs, writer)
    follower = ProgressLogFollower(*parts, [TFJOB], clock)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(follower.follow(member("Chief"), lambda: endings.pop(0) if endings else True))
        while not task.done():
            await asyncio.sleep(0)
            await clock.advance(timedelta(seconds=1))
    return writer, clock


async def test_progress_lines_are_reported_and_others_are_not() -> None:
    logs = ScriptedLogs(
        [stamped(1, "epoch 1"), stamped(2, report(1)), stamped(3, '{"loss": 1}'), stamped(4, report(3)), "no time"]
    )
    writer, _ = await follow(logs, [True])
    assert writer.reports == [(1, False), (3, True)]
    assert logs.requests == [
        {"container": "tensorflow", "follow": True, "timestamps": True, "since": None, "tail": 100}
    ]


async def test_after_a_break_reading_goes_on_where_it_was() -> None:
    logs = ScriptedLogs(
        [stamped(1, report(1)), StreamBroken("cut off")],
        [stamped(1, report(1)), stamped(2, report(2))],
        [stamped(2, report(2)), stamped(3, report(3))],
    )
    writer, _ = await follow(logs, [False, False, True])
    # The whole second is sent again, and is read once.
    assert writer.reports == [(1, False), (2, False), (3, True)]
    assert [request["since"] for request in logs.requests] == [
        None,
        datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC),
    ]


async def test_lines_of_one_moment_are_all_read_and_none_twice() -> None:
    logs = ScriptedLogs(
        [stamped(1, "text"), stamped(1, report(1)), StreamBroken("cut off")],
        [stamped(1, "text"), stamped(1, report(1)), stamped(1, report(2)), stamped(2, "text"), stamped(2, report(3))],
    )
    writer, _ = await follow(logs, [False, True])
    assert writer.reports == [(1, False), (2, False), (3, True)]


async def test_a_log_that_ends_before_its_pod_is_read_to_the_end() -> None:
    # The pod ends while its log is read: what came last is asked for once more.
    logs = ScriptedLogs([stamped(1, report(1))], [stamped(2, report(3))])
    writer, _ = await follow(logs, [False, True])
    assert writer.reports == [(1, False), (3, True)]


async def test_a_log_that_may_not_be_read_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    writer, _ = await follow(ScriptedLogs([Forbidden(Status(code=403, message="no"))]), [False, False])
    assert writer.reports == []
    assert "progress cannot be read from a log" in caplog.text
