import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gangline.api.core import ObjectReference, Pod
from gangline.api.meta import JSON, Key, Object, ObjectMeta
from gangline.kube.errors import Unreachable
from gangline.runtime import events
from gangline.runtime.event_correlator import event_name, truncated_note
from gangline.runtime.events import MAX_BUSY_WAIT, EventRecorder, EventType, RecordResult
from gangline.testing.clock import FakeClock, settle
from support.servers.memory import MemoryCall, MemoryServer, api_failure

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
JOB = ObjectReference(api_version="kubeflow.org/v1", kind="TFJob", namespace="research", name="mnist", uid="u1")
NORMAL, WARNING = EventType.NORMAL, EventType.WARNING


class Desk:
    """A running recorder with a server, and a connection that can be cut."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer()
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.outcomes: list[RecordResult] = []
        self.recorder = EventRecorder(
            self.server.client(self.wire),
            "gangline.dev/operator",
            "here",
            self.clock,
            capacity=50,
            count=self.outcomes.append,
        )

    async def wire(self, call: MemoryCall) -> JSON:
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return call.perform()

    @property
    def events(self) -> list[JSON]:
        return list(self.server.objects.values())

    def say(self, note: str = "pod created", *, regarding: ObjectReference = JOB) -> None:
        self.recorder.record(regarding, NORMAL, "Created", note)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(desk.recorder.run())
        yield desk
        task.cancel()


async def test_event_is_written_as_events_v1_wants_it(desk: Desk) -> None:
    desk.recorder.record(JOB, WARNING, "BackOff", "worker-0 failed", "Restart")
    await settle()
    (event,) = desk.events
    name = event["metadata"].pop("name")
    assert name.startswith("mnist.")
    assert event == {
        "metadata": {"namespace": "research", "uid": name, "resourceVersion": "1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "gangline.dev/operator",
        "reportingInstance": "here",
        "action": "Restart",
        "reason": "BackOff",
        "regarding": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "namespace": "research",
            "name": "mnist",
            "uid": "u1",
        },
        "note": "worker-0 failed",
        "type": "Warning",
    }


async def test_events_may_wait_until_the_work_is_done() -> None:
    desk = Desk()
    late = EventRecorder(desk.server.client(desk.wire), "gangline.dev/operator", "here", desk.clock, delay=SECOND)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(late.run())
        late.record(JOB, NORMAL, "Created", "a pod")
        await settle()
        assert desk.events == []
        await desk.clock.advance(SECOND)
        assert len(desk.events) == 1
        task.cancel()


async def test_while_there_is_work_only_warnings_are_written_and_nothing_waits_for_ever() -> None:
    desk, busy = Desk(), True
    client = desk.server.client(desk.wire)
    recorder = EventRecorder(client, "gangline.dev/operator", "here", desk.clock, busy=lambda: busy)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        recorder.record(JOB, NORMAL, "Created", "a pod")
        recorder.record(JOB, WARNING, "FailedCreate", "no quota")
        await desk.clock.advance(SECOND)
        assert [event["reason"] for event in desk.events] == ["FailedCreate"]
        await desk.clock.advance(MAX_BUSY_WAIT)
        assert [event["reason"] for event in desk.events] == ["FailedCreate", "Created"]
        recorder.record(JOB, NORMAL, "Created", "another pod")
        await desk.clock.advance(SECOND)
        assert len(desk.events) == 2
        busy = False
        await desk.clock.advance(SECOND)
        assert len(desk.events) == 3
        task.cancel()


async def test_what_waits_for_work_is_written_when_the_process_ends() -> None:
    desk = Desk()
    client = desk.server.client(desk.wire)
    recorder = EventRecorder(client, "gangline.dev/operator", "here", desk.clock, busy=lambda: True)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        recorder.record(JOB, NORMAL, "Created", "a pod")
        await desk.clock.advance(SECOND)
        assert desk.events == []
        task.cancel()
    assert len(desk.events) == 1


async def test_repeat_counts_in_the_series_of_the_first(desk: Desk) -> None:
    for _ in range(3):
        desk.say()
        await desk.clock.advance(MINUTE)
    (event,) = desk.events
    assert event["series"] == {"count": 3, "lastObservedTime": "2026-01-01T00:02:00.000000Z"}


async def test_repeats_during_a_write_are_one_patch(desk: Desk) -> None:
    desk.gate.clear()
    for _ in range(20):
        desk.say()
        await settle()
    desk.gate.set()
    await settle()
    (event,) = desk.events
    assert event["series"]["count"] == 20
    assert [verb for verb, _ in desk.server.history] == ["create", "patch"]


async def test_repeat_after_a_long_silence_is_a_new_event(desk: Desk) -> None:
    desk.say()
    await desk.clock.advance(11 * MINUTE)
    desk.say()
    await settle()
    assert len(desk.events) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"type": WARNING},
        {"reason": "Deleted"},
        {"note": "another"},
        {"action": "Try"},
        {"regarding": ObjectReference(kind="TFJob", namespace="research", name="mnist", uid="u2")},
    ],
)
async def test_what_differs_is_an_event_of_its_own(desk: Desk, other: dict[str, str]) -> None:
    said = {"regarding": JOB, "type": NORMAL, "reason": "Created", "note": "pod created"}
    desk.recorder.record(**said)  # type: ignore[arg-type]
    desk.recorder.record(**{**said, **other})  # type: ignore[arg-type]
    await settle()
    assert len(desk.events) == 2


async def test_many_different_notes_are_combined_after_ten(desk: Desk) -> None:
    for number in range(15):
        desk.say(f"pod {number} created")
    await settle()
    assert len(desk.events) == 11
    combined = desk.events[-1]
    assert combined["note"] == "(combined from similar events): pod 10 created"
    assert combined["series"]["count"] == 5


async def test_object_that_talks_too_much_is_cut_short_and_others_are_not(desk: Desk) -> None:
    for _ in range(40):
        desk.say()
        await settle()
    (event,) = desk.events
    assert event["series"]["count"] == 25
    assert desk.recorder.dropped_count == 15
    desk.say(regarding=ObjectReference(kind="TFJob", namespace="research", name="quiet", uid="u2"))
    await settle()
    assert len(desk.events) == 2
    await desk.clock.advance(5 * MINUTE)
    desk.say()
    await settle()
    assert desk.events[0]["series"]["count"] == 41, "what was not sent was still counted"


async def test_full_queue_drops_and_never_raises(desk: Desk) -> None:
    desk.gate.clear()
    for number in range(60):
        desk.say(regarding=ObjectReference(kind="TFJob", namespace="research", name=f"job-{number}"))
    assert desk.recorder.dropped_count == 10
    assert desk.outcomes == [RecordResult.OVERFLOW] * 10
    desk.gate.set()
    await settle(500)
    assert len(desk.events) == 50


async def test_event_that_was_deleted_meanwhile_is_created_again(desk: Desk) -> None:
    desk.say()
    await settle()
    ((plural, key),) = desk.server.objects
    desk.server.delete(plural, key)
    desk.say()
    await settle()
    (event,) = desk.events
    assert "series" not in event


async def test_unreachable_server_is_tried_again_and_a_lost_answer_makes_no_second_event(desk: Desk) -> None:
    desk.errors += [Unreachable("refused"), api_failure(503, "ServiceUnavailable")]
    desk.say()
    await settle()
    assert desk.events == []
    await desk.clock.advance(3 * SECOND)
    assert len(desk.events) == 1
    assert desk.recorder.dropped_count == 0


async def test_event_is_given_up_after_some_tries_and_the_next_one_is_written(desk: Desk) -> None:
    desk.errors += [Unreachable("refused")] * 5
    desk.say("first")
    desk.say("second")
    await desk.clock.advance(20 * SECOND)
    assert [event["note"] for event in desk.events] == ["second"]
    assert desk.outcomes == [RecordResult.FAILED, RecordResult.CREATED]


@pytest.mark.parametrize(
    "error", [api_failure(403, "Forbidden"), api_failure(404, "NotFound"), api_failure(422, "Invalid")]
)
async def test_refused_event_is_dropped_at_once(desk: Desk, error: Exception) -> None:
    desk.errors.append(error)
    desk.say()
    await settle()
    assert desk.outcomes == [RecordResult.REFUSED]
    desk.say()
    await settle()
    assert len(desk.events) == 1


async def test_what_is_queued_at_the_end_is_flushed() -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(desk.recorder.run())
        await settle()
        desk.say()
        task.cancel()
    assert len(desk.events) == 1


async def test_flush_takes_no_longer_than_five_seconds() -> None:
    desk = Desk()
    desk.gate.clear()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(desk.recorder.run())
        desk.say()
        await settle()
        desk.say("another")
        task.cancel()
        await desk.clock.advance(4.9 * SECOND)
        assert not task.done()
        await desk.clock.advance(0.1 * SECOND)
        assert task.done()
    assert desk.events == []
    assert desk.recorder.dropped_count == 2


async def test_flush_does_not_hammer_a_server_that_fails() -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(desk.recorder.run())
        desk.say()
        await settle()
        desk.say()
        desk.errors += [Unreachable("refused")] * 100
        task.cancel()
        await settle()
        assert task.done()
    assert len(desk.errors) == 99


async def test_kind_of_an_object_from_a_list_is_found_by_its_type(desk: Desk) -> None:
    desk.recorder.record(Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u")), NORMAL, "Seen", "")
    await settle()
    (event,) = desk.events
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "n",
        "uid": "u",
    }
    assert event["action"] == "Seen"


async def test_object_of_unknown_kind_is_dropped(desk: Desk) -> None:
    desk.recorder.record(Object(metadata=ObjectMeta(name="x")), NORMAL, "Seen", "")
    assert desk.outcomes == [RecordResult.REFUSED]


async def test_event_about_a_cluster_scoped_object_goes_to_the_default_namespace(desk: Desk) -> None:
    desk.say(regarding=ObjectReference(kind="Node", name="n1", uid="n1"))
    await settle()
    assert [key.namespace for _, key in desk.server.objects] == ["default"]


async def test_bytes_that_are_no_text_do_not_stop_the_recorder(desk: Desk) -> None:
    desk.recorder.record(JOB, NORMAL, "Log", b"caf\xe9".decode(errors="surrogateescape"))
    await settle()
    assert [event["note"] for event in desk.events] == ["caf?"]


def test_long_note_is_cut_between_characters() -> None:
    assert truncated_note("short") == "short"
    cut = truncated_note("ä" * 1000)
    assert len(cut.encode()) <= 1024
    assert cut == "ä" * 510 + "…"


def test_event_name_fits_whatever_the_object_is_called() -> None:
    assert len(event_name("a" * 253)) == 253
    assert ".." not in event_name("a" * 235 + "." + "b" * 17)
    assert Key("", event_name("a")).name != event_name("a")


async def test_events_that_come_faster_than_they_are_written_are_bounded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_UNWRITTEN_SERIES", 20)
    permits = asyncio.Semaphore(0)
    monkeypatch.setattr(desk.gate, "wait", permits.acquire)
    total = 300
    for number in range(total):
        desk.say(regarding=ObjectReference(kind="TFJob", namespace="research", name=f"job-{number}"))
        if number % 2:  # one write for two events
            permits.release()
            await settle()
    dropped = desk.outcomes.count(RecordResult.OVERFLOW)
    assert dropped > 0
    assert total - dropped - len(desk.events) <= 20 + 50
    for _ in range(total):
        permits.release()
    await settle(500)
    assert len(desk.events) == total - dropped
