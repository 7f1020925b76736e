import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest

from gangline.api.meta import Key
from gangline.base.errors import TerminalError
from gangline.base.log import record_fields
from gangline.kube.errors import Status, TooManyRequests
from gangline.runtime.controller import Controller, ReconcileResult
from gangline.runtime.rate_limits import ExponentialBackoff
from gangline.runtime.work_queue import WorkQueue
from gangline.testing.clock import FakeClock, settle
from support.servers.memory import api_failure

SECOND, MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)
JOB = Key("research", "mnist")

log = logging.getLogger(__name__)


class Given:
    """A synced source to which the test adds keys."""

    def __init__(self) -> None:
        self.add: Callable[[Key], None] | None = None
        self.ready = asyncio.Event()
        self.ready.set()

    @contextmanager
    def attach(self, add: Callable[[Key], None]) -> Iterator[None]:
        self.add = add
        yield
        self.add = None

    async def wait_for_sync(self) -> None:
        await self.ready.wait()


class Stage:
    """A controller with scripted reconciles, and metrics in a list."""

    def __init__(self, timeout: timedelta | None = None) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[Key] = WorkQueue(ExponentialBackoff(SECOND), self.clock, name="jobs")
        self.acts: list[Exception | timedelta | asyncio.Event | None] = []
        self.passes: list[Key] = []
        self.results: list[tuple[ReconcileResult | None, bool]] = []
        self.active = 0
        self.source = Given()
        self.controller = Controller(
            "jobs",
            self.queue,
            self,
            [self.source],
            workers=2,
            timeout=timeout,
            clock=self.clock,
            metrics=self,
        )

    async def reconcile(self, key: Key) -> timedelta | None:
        self.passes.append(key)
        log.info("looked")
        act = self.acts.pop(0) if self.acts else None
        if isinstance(act, Exception):
            raise act
        if isinstance(act, asyncio.Event):
            await act.wait()
            return None
        return act

    def on_start(self) -> None:
        self.active += 1

    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None:
        self.active -= 1
        self.results.append((result, terminal))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.controller.run())
            await settle()
            yield task
            task.cancel()


def throttled(after: timedelta | None) -> TooManyRequests:
    return TooManyRequests(Status(code=429), retry_after=after)


@pytest.mark.parametrize(
    ("act", "again_after", "result"),
    [
        (None, None, (ReconcileResult.SUCCESS, False)),
        (3 * SECOND, 3 * SECOND, (ReconcileResult.REQUEUE_AFTER, False)),
        (api_failure(409, "Conflict"), 50 * MILLISECOND, (ReconcileResult.REQUEUE, False)),
        (api_failure(409, "AlreadyExists"), SECOND, (ReconcileResult.REQUEUE, False)),
        (throttled(7 * SECOND), 7 * SECOND, (ReconcileResult.REQUEUE_AFTER, False)),
        (throttled(None), SECOND, (ReconcileResult.ERROR, False)),
        (TerminalError("no such image"), None, (ReconcileResult.ERROR, True)),
        (ZeroDivisionError(), SECOND, (ReconcileResult.ERROR, False)),
        (
            ExceptionGroup("", [api_failure(409, "Conflict"), OSError()]),
            SECOND,
            (ReconcileResult.ERROR, False),
        ),
        (
            ExceptionGroup("", [api_failure(409, "Conflict"), TerminalError("")]),
            50 * MILLISECOND,
            (ReconcileResult.REQUEUE, False),
        ),
    ],
)
async def test_reaction_table(
    act: Exception | timedelta | None, again_after: timedelta | None, result: tuple[ReconcileResult, bool]
) -> None:
    stage = Stage()
    stage.acts = [act]
    async with stage.running():
        stage.queue.add(JOB)
        await settle()
        assert stage.results == [result]
        if again_after is None:
            await stage.clock.advance(3600 * SECOND)
            assert len(stage.passes) == 1
        else:
            await stage.clock.advance(again_after - MILLISECOND)
            assert len(stage.passes) == 1
            await stage.clock.advance(MILLISECOND)
            assert len(stage.passes) == 2


async def test_conflicts_in_a_row_are_looked_at_less_and_less_often() -> None:
    stage = Stage()
    stage.acts = [api_failure(409, "Conflict")] * 100
    async with stage.running():
        stage.queue.add(JOB)
        await stage.clock.advance(60 * SECOND)
        assert 10 < len(stage.passes) < 15
        stage.acts = []
        await stage.clock.advance(60 * SECOND)
        stage.acts = [api_failure(409, "Conflict")]
        before = len(stage.passes)
        stage.queue.add(JOB)
        await stage.clock.advance(50 * MILLISECOND)
        assert len(stage.passes) == before + 2, "a success makes them short again"


async def test_pass_that_takes_too_long_is_cancelled_and_retried() -> None:
    stage = Stage(timeout=5 * SECOND)
    stage.acts = [asyncio.Event()]
    async with stage.running():
        stage.queue.add(JOB)
        await stage.clock.advance(5 * SECOND)
        assert stage.results == [(ReconcileResult.ERROR, False)]
        await stage.clock.advance(SECOND)
        assert stage.results[1:] == [(ReconcileResult.SUCCESS, False)]


async def test_stop_lets_the_pass_under_way_finish_and_begins_no_other() -> None:
    stage = Stage()
    finish = asyncio.Event()
    stage.acts = [finish]
    async with stage.running() as task:
        stage.queue.add(JOB)
        await settle()
        stage.queue.add(JOB)
        stage.controller.stop()
        stage.queue.add(Key("research", "other"))
        await settle()
        assert not task.done()
        assert stage.active == 1
        finish.set()
        await settle()
        assert task.done()
    assert stage.passes == [JOB]
    assert stage.source.add is None


async def test_passes_under_way_are_named_for_the_watchdog_and_those_that_ended_are_not() -> None:
    stage = Stage()
    finish = asyncio.Event()
    stage.acts = [finish]
    async with stage.running():
        stage.queue.add(JOB)
        await settle()
        assert [name for name, _ in stage.controller.activities()] == [f"{stage.controller.name} {JOB}"]
        finish.set()
        await settle()
        assert stage.controller.activities() == []


async def test_cancel_cancels_the_pass_under_way() -> None:
    stage = Stage()
    stage.acts = [asyncio.Event()]
    async with stage.running():
        stage.queue.add(JOB)
        await settle()
        assert stage.active == 1
    assert stage.active == 0
    assert stage.results == [(None, False)]


async def test_no_pass_begins_before_the_sources_have_synced() -> None:
    stage = Stage()
    stage.source.ready.clear()
    async with stage.running():
        assert stage.source.add is not None
        stage.source.add(JOB)
        await settle()
        assert stage.passes == []
        stage.source.ready.set()
        await settle()
        assert stage.passes == [JOB]


async def test_every_line_of_a_pass_says_which_pass_it_belongs_to() -> None:
    lines: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append({"msg": record.getMessage(), **record_fields(record)})

    handler = Keep()
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    try:
        stage = Stage()
        stage.acts = [ZeroDivisionError("oops")]
        async with stage.running():
            stage.queue.add(JOB)
            await settle()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    looked, failed = lines
    assert looked["msg"] == "looked"
    assert (looked["controller"], looked["namespace"], looked["name"]) == ("jobs", "research", "mnist")
    assert looked["reconcileID"] == failed["reconcileID"]
    assert failed["error"] == "oops"
