import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheme import Resource
from gangline.kube.errors import ConfigError, Forbidden, NotFound, Status, TooManyRequests, Unreachable
from gangline.runtime.informer import Delta, Informer
from gangline.testing.clock import FakeClock, settle
from support.servers.flaky_reader import (
    MODEL_THINGS,
    PLAIN_THINGS,
    ModelServer,
    ModelThing,
    NamespacedServer,
    gone_error,
    stream_broken,
    watch_line,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def key(name: str) -> Key:
    return Key("n", name)


def thing(name: str, value: int, version: str, uid: str = "uid-1") -> ModelThing:
    return ModelThing(metadata=ObjectMeta(namespace="n", name=name, uid=uid, resource_version=version), value=value)


def value(found: ModelThing | None) -> int | None:
    return None if found is None else found.value


class World:
    """A server, an informer that follows it, and the deltas of a subscriber."""

    def __init__(self, server: ModelServer | None = None, **options: Any) -> None:
        self.server = server or ModelServer()
        self.clock = FakeClock()
        self.informer: Informer[ModelThing] = Informer(self.server, MODEL_THINGS, clock=self.clock, **options)
        self.told: list[Delta[ModelThing]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with self.informer.subscribe(self.told.append):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self.informer.run())
                await settle()
                try:
                    yield
                finally:
                    task.cancel()

    @property
    def cached(self) -> dict[Key, ModelThing]:
        return {found.metadata.key: found for found in self.informer.cache}

    def said(self) -> list[tuple[int | None, int | None]]:
        """The deltas since the last call, as values before and after."""
        said = [(value(delta.before), value(delta.after)) for delta in self.told]
        self.told.clear()
        return said


async def test_first_list_fills_the_cache_and_then_it_is_synced() -> None:
    world = World(ModelServer(page=2))
    for number in range(5):
        world.server.put(f"t{number}", number)
    async with world.running():
        async with asyncio.timeout(60):
            await world.informer.wait_for_sync()
        assert world.informer.is_synced
        assert world.cached == world.server.readable_objects()
        assert world.said() == [(None, number) for number in range(5)]
        assert world.server.watch_starts == ["5"]
        assert world.informer.relists == world.informer.restarts == 0


async def test_empty_list_is_synced_too() -> None:
    world = World()
    async with world.running():
        assert world.informer.is_synced


async def test_changes_are_told_with_before_and_after() -> None:
    world = World()
    async with world.running():
        world.server.put("a", 1)
        world.server.put("a", 2)
        world.server.delete("a")
        await settle()
        assert world.said() == [(None, 1), (1, 2), (2, None)]
        assert world.cached == {}


async def test_subscriber_sees_the_change_in_the_cache_and_none_after_it() -> None:
    world = World()
    seen: list[bool] = []

    def look(delta: Delta[ModelThing]) -> None:
        seen.append(world.informer.cache.get(delta.newest.metadata.key) is delta.after)

    with world.informer.subscribe(look):
        async with world.running():
            for value in range(5):
                world.server.put("a", value)
            world.server.delete("a")
            await settle()
    assert seen == [True] * 6


async def test_late_subscriber_is_told_of_what_is_there() -> None:
    world = World()
    world.server.put("a", 1)
    world.server.put("b", 2)
    async with world.running():
        late: list[Delta[ModelThing]] = []
        with world.informer.subscribe(late.append):
            assert [(delta.before, delta.newest.value) for delta in late] == [(None, 1), (None, 2)]
            world.server.put("a", 3)
            await settle()
            assert late[-1].newest.value == 3
        world.server.put("a", 4)
        await settle()
        assert late[-1].newest.value == 3


async def test_subscriber_may_leave_while_others_are_told() -> None:
    world = World()
    async with world.running():
        leaving = ExitStack()
        leaving.enter_context(world.informer.subscribe(lambda delta: leaving.close()))
        late: list[Delta[ModelThing]] = []
        with world.informer.subscribe(late.append):
            world.server.put("a", 1)
            await settle()
            assert len(late) == 1


async def test_subscriber_that_raises_ends_the_informer_with_its_error() -> None:
    world = World()
    world.server.put("a", 1)

    def bug(delta: Delta[ModelThing]) -> None:
        raise ZeroDivisionError

    with world.informer.subscribe(bug), pytest.raises(ZeroDivisionError):
        await world.informer.run()


async def test_until_waits_for_the_cache() -> None:
    world = World()
    async with world.running(), asyncio.timeout(60):
        await world.informer.wait_until(lambda cache: len(cache) == 0)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.informer.wait_until(lambda cache: len(cache) == 2))
            await settle()
            world.server.put("a")
            world.server.put("b")


async def test_watch_that_ended_in_due_time_is_resumed_at_once_where_it_was() -> None:
    world = World()
    async with world.running():
        world.server.put("a", 1)
        await settle()
        world.server.end_watches()
        await settle()
        assert world.server.watch_starts == ["0", "1"]
        assert world.server.list_count == 1
        assert world.informer.problem is None
        assert world.informer.restarts == 0


async def test_watch_resumes_from_the_last_bookmark() -> None:
    world = World()
    world.server.put("a", 1)
    async with world.running():
        world.server.revision = 40
        world.server.bookmark()
        await settle()
        world.server.end_watches()
        await settle()
        assert world.server.watch_starts == ["1", "40"]
        assert world.said() == [(None, 1)]


async def test_quiet_watch_that_lasted_is_resumed_at_once() -> None:
    world = World()
    async with world.running():
        for _ in range(3):
            await world.clock.advance(5 * MINUTE)
            world.server.end_watches()
            await settle()
        assert len(world.server.watch_starts) == 4
        assert world.informer.restarts == 0


async def test_each_watch_asks_for_five_to_ten_minutes() -> None:
    world = World()
    async with world.running():
        for value in range(20):
            world.server.put("a", value)
            await settle()
            world.server.end_watches()
            await settle()
    asked = [timeout for timeout in world.server.watch_timeouts if timeout is not None]
    assert len(asked) == 21
    assert all(5 * MINUTE <= timeout <= 10 * MINUTE for timeout in asked)
    assert len(set(asked)) > 1


async def test_server_that_closes_every_watch_at_once_is_not_hammered() -> None:
    world = World()
    world.server.closes_watches = True
    async with world.running():
        await world.clock.advance(5 * MINUTE)
        # 0.2, 0.4 … 25.6 s, then 30 s each, times a random number of at least 0.5.
        assert 8 < len(world.server.watch_starts) < 40
        assert world.server.list_count == 1
        assert world.informer.problem is not None
        assert "at once" in world.informer.problem


async def test_server_that_repeats_an_old_event_and_closes_is_not_hammered() -> None:
    world = World()
    world.server.put("a", 1)
    async with world.running():
        for _ in range(30):
            world.server.watch_rewind = 1
            world.server.end_watches()
            await settle()
        assert len(world.server.watch_starts) < 5


async def test_version_that_is_always_too_old_does_not_make_it_list_without_end() -> None:
    world = World()
    world.server.watch_failures = [gone_error() for _ in range(1000)]
    async with world.running():
        await world.clock.advance(5 * MINUTE)
        assert 8 < world.server.list_count < 40


async def test_back_off_starts_anew_after_progress() -> None:
    world = World()
    async with world.running():
        for _ in range(6):
            world.server.watch_failures.append(Unreachable("down"))
        world.server.end_watches(stream_broken())
        await world.clock.advance(MINUTE)
        assert world.server.has_watches
        world.server.put("a", 1)
        await settle()
        assert world.informer.problem is None
        world.server.end_watches(stream_broken())
        await world.clock.advance(SECOND / 4)
        assert world.server.has_watches


async def test_problem_is_shown_until_a_quiet_watch_has_settled() -> None:
    world = World()
    async with world.running():
        world.server.end_watches(stream_broken())
        await settle()
        assert world.informer.problem == "cut off"
        assert world.informer.restarts == 1
        await world.clock.advance(SECOND)
        assert world.server.has_watches
        assert world.informer.problem == "cut off"
        await world.clock.advance(20 * SECOND)
        assert world.informer.problem is None


async def test_server_may_ask_for_more_patience() -> None:
    world = World()
    refusal = TooManyRequests(Status(code=429), retry_after=MINUTE)
    world.server.list_failures = [(0, refusal)]
    async with world.running():
        await world.clock.advance(MINUTE - SECOND)
        assert world.server.list_count == 1
        await world.clock.advance(2 * SECOND)
        assert world.server.list_count == 2


@pytest.mark.parametrize(
    "failure",
    [
        Forbidden(Status(code=403, message="not yours")),
        NotFound(Status(code=404, message="no such kind")),
        Unreachable("refused"),
        ConfigError("token file is empty"),
    ],
)
async def test_list_that_fails_is_tried_until_it_works(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.server.put("a", 1)
    world.server.list_failures = [(0, failure)] * 5
    async with world.running():
        problems = [world.informer.problem]
        assert not world.informer.is_synced
        assert vars(caplog.records[0])["resource"] == "things.test.io"
        await world.clock.advance(MINUTE)
        problems.append(world.informer.problem)
        assert problems == [str(failure), None]
        assert world.cached == world.server.readable_objects()
        assert world.server.list_count == 6


async def test_too_old_version_leads_to_a_new_list_and_the_difference_is_told() -> None:
    world = World()
    for name, value in (("changed", 1), ("deleted", 2), ("same", 3), ("replaced", 4)):
        world.server.put(name, value)
    async with world.running():
        world.said()
        world.server.end_watches(stream_broken())
        await settle()
        world.server.put("changed", 10)
        world.server.delete("deleted")
        world.server.delete("replaced")
        world.server.put("replaced", 40)
        world.server.put("new", 50)
        world.server.compact()
        await world.clock.advance(SECOND)
        assert world.cached == world.server.readable_objects()
        assert sorted(world.said(), key=str) == sorted([(1, 10), (4, None), (None, 40), (None, 50), (2, None)], key=str)
        assert world.informer.relists == 1
        assert world.server.watch_starts[-1] == str(world.server.revision)


async def test_deletions_are_told_only_when_the_list_is_complete() -> None:
    world = World(ModelServer(page=1))
    for name in "abc":
        world.server.put(name, 1)
    async with world.running():
        world.said()
        world.server.delete("a")
        world.server.put("b", 2)
        await settle()
        assert world.said() == [(1, None), (1, 2)]
        world.server.end_watches(stream_broken())
        await settle()
        world.server.delete("b")
        world.server.put("c", 3)
        world.server.put("d", 4)
        world.server.compact()
        world.server.list_failures = [(1, Unreachable("lost")), (1, Unreachable("lost"))]
        while world.server.list_count < 2:
            await world.clock.advance(SECOND / 10)
        assert world.said() == [(1, 3)]
        assert key("b") in world.informer.cache
        await world.clock.advance(MINUTE)
        assert world.said() == [(None, 4), (2, None)]
        assert world.cached == world.server.readable_objects()


async def test_list_that_is_slower_than_the_server_forgets_is_asked_for_at_once() -> None:
    world = World(ModelServer(page=1))
    world.server.put("a", 1)
    world.server.put("b", 2)
    world.server.list_failures = [(1, gone_error())]
    async with world.running():
        assert world.server.list_limits == [500, 0]
        assert world.cached == world.server.readable_objects()


async def test_events_repeated_after_a_resume_turn_nothing_back() -> None:
    world = World()
    async with world.running():
        world.server.put("a", 1)
        world.server.delete("a")
        world.server.put("a", 2)
        world.server.put("a", 3)
        await settle()
        world.said()
        world.server.watch_rewind = 4
        world.server.end_watches()
        await settle()
        assert world.said() == []
        assert world.cached == world.server.readable_objects()


async def test_longer_version_is_newer() -> None:
    world = World()
    world.server.revision = 8
    async with world.running():
        world.server.put("a", 9)
        world.server.put("a", 10)
        await settle()
        assert world.said() == [(None, 9), (9, 10)]


async def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    world = World()
    async with world.running():
        for version, value in (("b", 1), ("a", 2)):
            world.server.send_to_watches(watch_line("MODIFIED", msgspec.to_builtins(thing("x", value, version))))
        await settle()
        assert world.said() == [(None, 1), (1, 2)]


async def test_list_is_the_truth_even_if_its_versions_are_smaller() -> None:
    world = World()
    world.server.revision = 100
    world.server.put("a", 1)
    async with world.running():
        world.server.end_watches(stream_broken())
        await settle()
        # A restored etcd: the counter went back.
        world.server.compact()
        world.server.revision = 50
        world.server.put("a", 2)
        world.server.watch_failures = [gone_error()]
        await world.clock.advance(SECOND)
        assert world.cached == world.server.readable_objects()
        assert world.cached[key("a")].value == 2


async def test_unreadable_object_is_named_and_the_others_are_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.server.put("bad", "text")
    world.server.put("good", 1)
    async with world.running():
        assert world.cached == world.server.readable_objects()
        assert list(world.informer.unreadable) == [key("bad")]
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert vars(record)["key"] == "n/bad"
        assert "value" in vars(record)["error"]
        world.server.put("good", "text")
        world.server.put("bad", 2)
        await settle()
        assert world.cached == world.server.readable_objects()
        assert list(world.informer.unreadable) == [key("good")]
        assert world.said() == [(None, 1), (1, None), (None, 2)]
        world.server.delete("good")
        await settle()
        assert world.informer.unreadable == {}
        assert world.informer.restarts == 0


async def test_same_unreadable_object_is_logged_once_however_often_it_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.server.put("bad", "text")
    async with world.running():
        world.server.revision += 1
        world.server.compact()
        world.server.end_watches(stream_broken())
        await world.clock.advance(SECOND)
        assert world.informer.relists == 1
        assert [record.getMessage() for record in caplog.records].count("object cannot be read, ignoring it") == 1


async def test_garbage_in_the_stream_breaks_it_and_loses_nothing() -> None:
    world = World()
    async with world.running():
        world.server.put("a", 1)
        world.server.send_to_watches(b'{"type": "ADDED", "obj\n')
        world.server.put("b", 2)
        await settle()
        assert world.informer.problem is not None
        assert list(world.cached) == [key("a")]
        await world.clock.advance(SECOND)
        assert world.cached == world.server.readable_objects()
        assert world.server.list_count == 1


async def test_trim_makes_what_is_cached_and_told() -> None:
    def without_labels(found: ModelThing) -> ModelThing:
        metadata = msgspec.structs.replace(found.metadata, labels={})
        return msgspec.structs.replace(found, metadata=metadata)

    world = World(trim=without_labels)
    world.server.put("a", 1, labels={"big": "x" * 1000})
    async with world.running():
        world.server.put("a", 2, labels={"big": "x" * 1000})
        world.server.put("b", 3, labels={"big": "x" * 1000})
        world.server.delete("b")
        await settle()
    objects = [found for delta in world.told for found in (delta.before, delta.after) if found is not None]
    assert [found.metadata.labels for found in objects] == [{}] * 5
    assert world.cached[key("a")].metadata.labels == {}


async def test_resync_tells_every_object_again_each_period() -> None:
    world = World(resync=10 * MINUTE)
    world.server.put("a", 1)
    world.server.put("b", 2)
    async with world.running():
        world.said()
        await world.clock.advance(10 * MINUTE - SECOND)
        assert world.said() == []
        await world.clock.advance(SECOND)
        assert [(delta.before is delta.after) for delta in world.told] == [True, True]
        assert world.said() == [(1, 1), (2, 2)]
        world.server.put("a", 3)
        await world.clock.advance(10 * MINUTE)
        assert world.said() == [(1, 3), (3, 3), (2, 2)]


async def test_plain_json_is_followed_too() -> None:
    server = ModelServer()
    server.put("a", 1)
    informer: Informer[dict[str, Any]] = Informer(server, PLAIN_THINGS, clock=FakeClock())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await settle()
        server.put("a", "anything")
        server.put("b", 2)
        server.delete("b")
        await settle()
        assert {found["metadata"]["name"]: found["value"] for found in informer.cache} == {"a": "anything"}
        task.cancel()


async def test_informer_that_was_cancelled_can_be_run_again_and_resumes() -> None:
    world = World()
    async with world.running():
        world.server.put("a", 1)
        await settle()
    world.server.put("a", 2)
    async with world.running():
        assert world.server.list_count == 1
        assert world.cached == world.server.readable_objects()


@pytest.mark.parametrize(("kind", "name"), [(ModelThing, "ModelThing"), (MODEL_THINGS, "things.test.io")])
def test_informer_is_named_after_its_resource(kind: type[ModelThing] | Resource[ModelThing], name: str) -> None:
    assert Informer(ModelServer(), kind, clock=FakeClock()).name == name


async def test_whoever_was_told_of_the_first_may_begin_before_all_are_read() -> None:
    world = World()
    async with world.running():
        for number in range(200):
            world.server.put(f"t{number}", number)
        seen: list[int] = []
        while len(world.told) < 200:
            seen.append(len(world.told))
            await asyncio.sleep(0)
        assert any(0 < count < 200 for count in seen)


# Several namespaces

REFUSED = Forbidden(Status(code=403, message="things is forbidden"))


class Namespaces:
    """Two namespaces and an informer of both."""

    def __init__(self) -> None:
        self.server, self.clock = NamespacedServer("a", "b"), FakeClock()
        self.a, self.b = self.server.namespaces.values()
        self.informer: Informer[ModelThing] = Informer(
            self.server, MODEL_THINGS, clock=self.clock, namespaces=("a", "b")
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.informer.run())
            await settle()
            try:
                yield
            finally:
                task.cancel()

    @property
    def cached(self) -> set[str]:
        return {str(found.metadata.key) for found in self.informer.cache}


async def test_several_namespaces_are_read_one_by_one_into_one_cache() -> None:
    world = Namespaces()
    world.a.put("one")
    world.b.put("one")
    async with world.running():
        assert world.informer.is_synced
        assert world.cached == {"a/one", "b/one"}
        world.b.delete("one")
        world.a.put("two")
        await settle()
        assert world.cached == {"a/one", "a/two"}


async def test_a_new_list_of_one_namespace_removes_nothing_of_another() -> None:
    world = Namespaces()
    for server in (world.a, world.b):
        server.put("one")
        server.put("broken", "no number")
    async with world.running():
        world.a.end_watches(stream_broken())
        world.a.delete("one")
        world.a.delete("broken")
        world.a.compact()
        await world.clock.advance(SECOND)
        assert world.cached == {"b/one"}
        assert set(world.informer.unreadable) == {Key("b", "broken")}
        assert (world.a.list_count, world.b.list_count, world.informer.relists) == (2, 1, 1)


async def test_a_namespace_that_may_not_be_read_yet_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Namespaces()
    world.a.put("one")
    world.b.put("one")
    world.b.list_failures = [(0, REFUSED)] * 5
    async with world.running():
        assert world.informer.is_synced
        assert (world.informer.has_listed("a"), world.informer.has_listed("b")) == (True, False)
        problems = [world.informer.problem]
        await world.clock.advance(MINUTE)
        problems.append(world.informer.problem)
        assert world.informer.has_listed("b")
        assert problems == ["things is forbidden", None]
        assert world.cached == {"a/one", "b/one"}
    warned = [vars(record)["namespace"] for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ["b"]  # once, although it was refused five times


async def test_an_informer_has_not_synced_while_every_namespace_refuses_or_one_does_not_answer() -> None:
    world = Namespaces()
    world.a.list_failures = [(0, REFUSED)]
    world.b.list_failures = [(0, Unreachable("down")), (0, REFUSED)]
    async with world.running():
        synced = [world.informer.is_synced]
        await world.clock.advance(MINUTE)
        synced.append(world.informer.is_synced)
        assert synced == [False, True]
        assert (world.a.list_count, world.b.list_count) == (2, 3)


async def test_an_error_of_a_subscriber_ends_an_informer_of_several_namespaces_as_it_is() -> None:
    world = Namespaces()
    world.b.put("one")

    def fail(delta: Delta[ModelThing]) -> None:
        raise ZeroDivisionError

    with world.informer.subscribe(fail), pytest.raises(ZeroDivisionError):
        await world.informer.run()
