"""The notifier: what it does with changes of jobs, with a journal that cannot be written, and at its end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gangline.kube.errors import Unreachable
from gangline.notify import notifier as notifier_module
from gangline.notify.delivery import DeliveryResult
from gangline.notify.notifier import MAX_UNWRITTEN, RESTART_DELAY, TICK, Notifier, NotifierOptions
from gangline.notify.plan.journal import NotificationJournal
from gangline.notify.plan.retries import Attempt, Delivered, RetryLater
from gangline.notify.plan.routes import NotificationRoute, NotificationSettings
from gangline.notify.plan.transitions import Transition
from gangline.notify.records import MemoryRecords
from gangline.runtime.informer import Delta
from gangline.testing import FakeClock, settle
from support.builders.notified_jobs import NOW, JobHistory, settings_of, webhook_route


class FakeInformer:
    """A cache that the test changes; subscribers are called as an informer calls them."""

    kind = "jobs"

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self._subscribers: list[Callable[[Delta[Any]], None]] = []

    @property
    def cache(self) -> list[Any]:
        return list(self.jobs.values())

    async def wait_for_sync(self) -> None:
        return None

    @contextmanager
    def subscribe(self, subscriber: Callable[[Delta[Any]], None]) -> Iterator[None]:
        self._subscribers.append(subscriber)
        for job in self.cache:
            subscriber(Delta(None, job))
        try:
            yield
        finally:
            self._subscribers.remove(subscriber)

    def put(self, history: JobHistory) -> None:
        job = history.job
        before, self.jobs[job.metadata.uid] = self.jobs.get(job.metadata.uid), job
        for subscriber in self._subscribers:
            subscriber(Delta(before, job))

    def remove(self, history: JobHistory) -> None:
        job = self.jobs.pop(history.job.metadata.uid)
        for subscriber in self._subscribers:
            subscriber(Delta(job, None))

    async def pages(self, kind: object, where: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(items=self.cache)


class CountingMetrics:
    def __init__(self) -> None:
        self.results: list[tuple[str, str]] = []
        self.queues: dict[str, Callable[[], int]] = {}

    def count(self, route: str, result: DeliveryResult) -> None:
        self.results.append((route, result.value))

    def set_queue(self, route: str, length: Callable[[], int], results: object) -> None:
        self.queues[route] = length


class FragileRecords(MemoryRecords):
    """Records that cannot be read or written while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.writes = 0

    async def load(self) -> Mapping[str, str]:
        if self.is_down:
            raise Unreachable("down")
        return await super().load()

    async def save(self, changes: Mapping[str, str | None], all_records: Callable[[], Mapping[str, str]]) -> None:
        if self.is_down:
            raise Unreachable("down")
        self.writes += 1
        await super().save(changes, all_records)


class Bench:
    """A notifier whose receivers are lists."""

    def __init__(self, settings: NotificationSettings | None = None, **options: Any) -> None:
        self.clock, self.informer, self.records = FakeClock(NOW), FakeInformer(), FragileRecords()
        self.metrics = CountingMetrics()
        self.received: list[str] = []
        self.dead: set[str] = set()
        self.settings = settings or settings_of()
        self._options = NotifierOptions(metrics=self.metrics, **options)

    def notifier(self) -> Notifier:
        reader = cast(Any, self.informer)
        notifier = Notifier(self.settings, reader, self.records, self._channel, self.clock, self._options)
        notifier.follow(cast(Any, self.informer))
        return notifier

    @asynccontextmanager
    async def _channel(self, route: NotificationRoute) -> AsyncIterator[Any]:
        async def deliver(transition: Transition) -> Attempt:
            await asyncio.sleep(0)
            if route.name in self.dead:
                return RetryLater("down")
            self.received.append(f"{route.name}: {transition.name} {transition.state}")
            return Delivered()

        yield SimpleNamespace(deliver=deliver)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.notifier().run())
        await settle(200)
        try:
            yield
        finally:
            task.cancel()
            while not task.done():  # its end may wait for a time
                await self.clock.advance(timedelta(seconds=1))
            assert task.cancelled()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(timedelta(seconds=seconds))
        await settle(200)


async def test_changes_of_jobs_are_delivered_and_counted() -> None:
    bench, history = Bench(), JobHistory()
    async with bench.running():
        bench.informer.put(history.create())
        bench.informer.put(history.run())
        await settle(200)
        bench.informer.put(history.fail())
        await settle(200)
        assert bench.received == ["all: bert created", "all: bert running", "all: bert failed"]
        assert bench.metrics.results == [("all", "delivered")] * 3
        assert bench.metrics.queues["all"]() == 0


async def test_a_second_process_repeats_nothing() -> None:
    bench, history = Bench(), JobHistory()
    async with bench.running():
        bench.informer.put(history.create())
        await settle(200)
    async with bench.running():
        bench.informer.put(history.run())
        await settle(200)
    assert bench.received == ["all: bert created", "all: bert running"]


async def test_a_dead_receiver_costs_the_others_nothing_and_is_served_by_the_next_process() -> None:
    bench, history = Bench(settings_of(webhook_route("dead"), webhook_route("live"))), JobHistory()
    bench.dead = {"dead"}
    async with bench.running():
        bench.informer.put(history.create())
        bench.informer.put(history.run())
        await bench.advance(30)
        assert bench.received == ["live: bert created", "live: bert running"]
        assert bench.metrics.queues["dead"]() == 2
    bench.dead = set()
    async with bench.running():
        await settle(200)
    assert bench.received[2:] == ["dead: bert created", "dead: bert running"]


async def test_what_cannot_be_written_down_is_delivered_only_up_to_a_limit() -> None:
    bench = Bench()
    async with bench.running():
        bench.records.is_down = True
        for number in range(MAX_UNWRITTEN + 50):
            bench.informer.put(JobHistory(f"job-{number}").create())
        await bench.advance(1)
        assert MAX_UNWRITTEN <= len(bench.received) < MAX_UNWRITTEN + 5
        bench.records.is_down = False
        await bench.advance(60)
        assert len(bench.received) == MAX_UNWRITTEN + 50


async def test_nothing_is_delivered_before_it_is_known_what_was() -> None:
    bench, history = Bench(), JobHistory()
    bench.records.is_down = True
    bench.informer.put(history.create())
    async with bench.running():
        await bench.advance(20)
        assert bench.received == []
        bench.records.is_down = False
        await bench.advance(60)
    # The job is older than notifications.
    assert bench.received == []


async def test_many_changes_are_few_writes() -> None:
    bench = Bench()
    async with bench.running():
        await bench.advance(5)
        bench.records.writes = 0
        for number in range(60):
            bench.informer.put(JobHistory(f"job-{number}").create())
        await bench.advance(5)
    assert len(bench.received) == 60
    assert bench.records.writes <= 5


async def test_a_change_that_is_no_change_of_state_costs_nothing() -> None:
    bench, history = Bench(), JobHistory().create()
    async with bench.running():
        bench.informer.put(history)
        await bench.advance(5)
        writes = bench.records.writes
        for _ in range(10):
            bench.informer.put(history)
        await bench.advance(5)
        assert bench.records.writes == writes


async def test_a_flood_of_changes_ends_in_the_last_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier_module, "MAX_CHANGES", 5)
    bench = Bench()
    histories = [JobHistory(f"job-{number}") for number in range(20)]
    async with bench.running():
        for history in histories:
            bench.informer.put(history.create())
        for history in histories:
            bench.informer.put(history.run().succeed())
        bench.informer.remove(histories[0])
        await bench.advance(5)
    assert {f"all: job-{number} succeeded" for number in range(1, 20)} <= set(bench.received)
    assert "uid-of-job-0" not in bench.records.records


async def test_a_job_that_waits_is_reported_when_its_time_has_come() -> None:
    bench = Bench(settings_of(waiting_after_seconds=120))
    async with bench.running():
        bench.informer.put(JobHistory("stuck").create())
        bench.informer.put(JobHistory("busy").create().run())
        await bench.advance(110)
        assert "all: stuck waiting" not in bench.received
        await bench.advance(10 + TICK.total_seconds())
        await bench.advance(600)
        assert [one for one in bench.received if "waiting" in one] == ["all: stuck waiting"]


async def test_a_deleted_job_is_reported_to_its_end_and_forgotten() -> None:
    bench, history = Bench(), JobHistory()
    async with bench.running():
        bench.informer.put(history.create())
        await settle(200)
        # Both at once: the last status was never looked at while the job existed.
        bench.informer.put(history.run().succeed())
        bench.informer.remove(history)
        await bench.advance(5)
    assert bench.received == ["all: bert created", "all: bert succeeded"]
    assert "uid-of-bert" not in bench.records.records


async def test_at_the_end_of_a_plane_the_last_states_are_delivered() -> None:
    bench, history = Bench(finish_within=timedelta(seconds=5)), JobHistory()
    async with bench.running():
        bench.informer.put(history.create())
        await settle(200)
        # The server has it, and no watch has brought it yet.
        bench.informer.jobs[history.job.metadata.uid] = history.succeed().job
    assert bench.received == ["all: bert created", "all: bert succeeded"]


async def test_at_the_end_of_a_plane_a_dead_receiver_is_reported_after_a_while() -> None:
    reports: list[str] = []
    bench = Bench(finish_within=timedelta(seconds=5), report_undelivered=reports.append)
    bench.dead = {"all"}
    async with bench.running():
        bench.informer.put(JobHistory().create())
    assert reports == ["1 notification was not delivered (all): down"]


async def test_an_error_at_the_end_does_not_keep_the_process_alive() -> None:
    def fail(text: str) -> None:
        raise BrokenPipeError

    bench = Bench(finish_within=timedelta(seconds=5), report_undelivered=fail)
    bench.dead = {"all"}
    async with bench.running():
        bench.informer.put(JobHistory().create())


async def test_an_unexpected_error_is_logged_and_notifications_start_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench, history = Bench(), JobHistory()

    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(NotificationJournal, "observe", fail)
        async with bench.running():
            bench.informer.put(history.create())
            await settle(200)
            assert "notifications failed unexpectedly" in caplog.text
            patch.undo()
            await bench.advance(RESTART_DELAY.total_seconds())
            assert bench.received == ["all: bert created"]
