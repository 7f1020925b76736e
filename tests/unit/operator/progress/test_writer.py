"""Reports are written at a limited rate, the last one always, and errors that pass lose none."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.training import PROGRESS_ANNOTATION
from gangline.api.meta import JSON, Key
from gangline.operator.progress.reporters import Reporter
from gangline.operator.progress.writer import LAST_WRITE_LIMIT, ProgressWriter, ReportOutcome
from gangline.progress.line import Progress
from gangline.testing.clock import FakeClock
from support.builders.objects import pod_body
from support.servers.memory import CallHandler, MemoryCall, MemoryServer, api_failure, perform_call
from support.waiting import wait_until

POD = Key("team", "bert-master-0")
# The server names objects' uids after them.
REPORTER = Reporter(POD, POD.name)
SECOND = timedelta(seconds=1)


class WriterHarness:
    """A writer on a server in memory, with a clock that stands still."""

    def __init__(self, wire: CallHandler = perform_call) -> None:
        self.clock, self.server = FakeClock(), MemoryServer()
        self.results: list[ReportOutcome] = []
        self.server.create("pods", POD, pod_body(POD.name, POD.namespace))
        client: Any = self.server.client(wire)
        self.writer = ProgressWriter(client, self.clock, self.results.append)

    @property
    def steps(self) -> list[int]:
        """The steps that were written, in order."""
        written = [body["metadata"].get("annotations") for verb, body in self.server.history if verb == "patch"]
        return [json.loads(annotations[PROGRESS_ANNOTATION])["progress"]["step"] for annotations in written]

    async def put(self, step: int, *, is_last: bool = False) -> None:
        await self.writer.put(REPORTER, Progress(step, 100), is_last=is_last)

    async def advance(self, duration: timedelta) -> None:
        """Let time pass, and what is due be done."""
        await self.clock.advance(duration)

    async def wait_for(self, *steps: int) -> None:
        await wait_until(lambda: self.steps == list(steps))


@asynccontextmanager
async def running_writer(wire: CallHandler = perform_call) -> AsyncIterator[WriterHarness]:
    harness = WriterHarness(wire)
    async with harness.writer.running():
        yield harness


def failing(times: int, code: int = 503) -> CallHandler:
    """A wire on which the first patches fail."""
    left = [times]

    async def perform(call: MemoryCall) -> JSON:
        if call.verb == "patch" and left[0]:
            left[0] -= 1
            raise api_failure(code, "ServiceUnavailable")
        return call.perform()

    return perform


async def test_the_first_report_is_written_at_once_and_then_one_in_five_seconds() -> None:
    async with running_writer() as harness:
        await harness.put(1)
        await harness.wait_for(1)
        for step in (2, 3, 4):
            await harness.put(step)
            await harness.advance(SECOND)
        assert harness.steps == [1]
        await harness.advance(SECOND * 2)
        # The newest of those that came meanwhile.
        await harness.wait_for(1, 4)
        await harness.advance(SECOND * 60)
        assert harness.steps == [1, 4]


async def test_the_last_report_is_written_before_it_is_answered() -> None:
    async with running_writer() as harness:
        await harness.put(1)
        await harness.wait_for(1)
        await harness.put(99)
        await harness.put(100, is_last=True)
        assert harness.steps == [1, 100]
        await harness.advance(SECOND * 60)
        assert harness.steps == [1, 100]


async def test_who_sends_a_last_report_again_and_again_is_written_at_the_usual_rate() -> None:
    async with running_writer() as harness:
        for step in range(100, 110):
            await harness.put(step, is_last=True)
        assert harness.steps == [100]
        await harness.advance(SECOND * 5)
        await harness.wait_for(100, 109)


async def test_what_waits_is_written_at_the_end() -> None:
    async with running_writer() as harness:
        await harness.put(1)
        await harness.wait_for(1)
        await harness.put(2)
        assert harness.steps == [1]
    assert harness.steps == [1, 2]


async def test_an_error_that_passes_loses_no_report() -> None:
    async with running_writer(failing(2)) as harness:
        await harness.put(1)
        await wait_until(lambda: harness.results == ["retried"])
        await harness.advance(SECOND)
        await wait_until(lambda: harness.results == ["retried"] * 2)
        await harness.advance(SECOND * 2)
        await harness.wait_for(1)
    assert harness.results == ["retried", "retried", "written"]


async def test_an_error_that_stays_is_not_tried_for_ever() -> None:
    async with running_writer(failing(1, 403)) as harness:
        await harness.put(1)
        await wait_until(lambda: harness.results == ["failed"])
        await harness.advance(SECOND * 60)
        assert harness.results == ["failed"]
        await harness.put(2)
        await harness.wait_for(2)


async def test_a_server_that_does_not_answer_does_not_hold_the_program() -> None:
    answers = asyncio.Event()

    async def slow(call: MemoryCall) -> JSON:
        await answers.wait()
        return call.perform()

    async with running_writer(slow) as harness, asyncio.TaskGroup() as group:
        task = group.create_task(harness.put(100, is_last=True))
        await harness.advance(timedelta())
        await harness.advance(LAST_WRITE_LIMIT)
        await task
        assert harness.steps == []
        answers.set()
        await harness.advance(SECOND)
        await harness.wait_for(100)


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    async with running_writer() as harness:
        await harness.put(1)
        await harness.wait_for(1)
        harness.server.delete("pods", POD)
        await harness.put(100, is_last=True)
        assert harness.results == ["written", "gone"]
        # Nothing is left of it.
        assert harness.writer.last_progress(REPORTER) is None


@pytest.mark.parametrize("annotation", ["", "text", '{"progress": {"step": 7, "total": 9}}'])
async def test_what_another_operator_wrote_before_is_the_last_progress(annotation: str) -> None:
    harness = WriterHarness()
    reporter = Reporter(POD, POD.name, {PROGRESS_ANNOTATION: annotation})
    expected = Progress(7, 9) if annotation.startswith("{") else None
    assert harness.writer.last_progress(reporter) == expected
