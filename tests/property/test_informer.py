"""Any history, cut anywhere, ends as a list of the server would.

The server is a model; what lies between it and the cache (decoders, informer, cache, indexes) is real. Time is fake.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.meta import Key
from gangline.kube.errors import Unreachable
from gangline.runtime.informer import Delta, Informer
from gangline.testing.clock import FakeClock, settle
from support.servers.flaky_reader import (
    MODEL_THINGS,
    ModelServer,
    ModelThing,
    gone_error,
    stream_broken,
    watch_line,
)

Step = Callable[[ModelServer], object]

names = st.sampled_from("abcd")
values = st.one_of(st.integers(0, 3), st.just("unreadable"))
puts = st.builds(lambda name, value: lambda server: server.put(name, value), names, values)
deletes = st.builds(lambda name: lambda server: server.delete(name), names)


def spoil(server: ModelServer) -> None:
    server.send_to_watches(b'{"type": "MODIFIED", "object": {"metada\n')


def replay(distance: int) -> Step:
    """The next watch tells what it told before."""

    def step(server: ModelServer) -> None:
        server.watch_rewind = distance
        server.end_watches()

    return step


def fail_list(pages: int, *, forgotten: bool) -> Step:
    """The next list ends after some pages; a watch that is too old makes that list come."""

    def step(server: ModelServer) -> None:
        server.list_failures.append((pages, gone_error() if forgotten else Unreachable("lost")))
        server.watch_failures.append(gone_error())
        server.end_watches(stream_broken())

    return step


faults = st.one_of(
    st.just(ModelServer.bookmark),
    st.just(ModelServer.compact),
    st.just(spoil),
    st.just(lambda server: server.end_watches()),
    st.just(lambda server: server.end_watches(stream_broken())),
    st.just(lambda server: server.send_to_watches(watch_line("ERROR", {"code": 410, "reason": "Expired"}))),
    st.just(lambda server: server.send_to_watches(watch_line("ERROR", {"code": 500, "reason": "InternalError"}))),
    st.builds(replay, st.integers(1, 8)),
    st.builds(fail_list, st.integers(0, 3), forgotten=st.booleans()),
)


class Episode(NamedTuple):
    """Some writes that are watched, a fault, some writes that nobody watches, and time to recover, or less."""

    watched: list[Step]
    fault: Step
    missed: list[Step]
    forgotten: bool
    pause: timedelta


writes = st.one_of(puts, puts, deletes)
pauses = st.sampled_from([timedelta(), timedelta(seconds=0.3), timedelta(minutes=2)])
# Whole episodes, because single steps in any order seldom make a gap that something happens in.
episodes = st.builds(
    Episode,
    st.lists(writes, min_size=2, max_size=6),
    faults,
    st.lists(writes, max_size=6),
    st.booleans(),
    pauses,
)
histories = st.lists(episodes, min_size=2, max_size=5)


def parity(found: ModelThing) -> list[object]:
    """None, one or two values, which change with the object."""
    return ["odd"] if found.value % 2 else ["even", found.value] if found.value else []


def version(found: ModelThing) -> int:
    return int(found.metadata.resource_version)


class Fold:
    """A subscriber that believes only what it is told."""

    def __init__(self) -> None:
        self.world: dict[Key, ModelThing] = {}

    def __call__(self, delta: Delta[ModelThing]) -> None:
        key = delta.newest.metadata.key
        known = self.world.get(key)
        if delta.after is None:
            assert known is not None, "told that something unknown is gone"
            assert version(delta.newest) >= version(known), "an older event deleted a newer object"
            del self.world[key]
            return
        assert delta.before is known, "told another past than the one told before"
        if known is not None:
            assert known.metadata.uid == delta.after.metadata.uid, "a successor was told as an update"
            assert version(delta.after) > version(known), "an object was turned back"
        self.world[key] = delta.after


async def live(server: ModelServer, clock: FakeClock, episode: Episode) -> None:
    for step in episode.watched:
        step(server)
        await settle()
    episode.fault(server)
    for step in episode.missed:
        step(server)
    if episode.forgotten:
        server.compact()
    await clock.advance(episode.pause)


async def follow(history: list[Episode], page: int) -> None:
    server, clock, fold = ModelServer(page), FakeClock(), Fold()
    informer = Informer(server, MODEL_THINGS, clock=clock, indexes={"parity": parity})
    with informer.subscribe(fold):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            for episode in history:
                await live(server, clock, episode)
            # Enough for every pending failure, with its delay.
            for _ in range(100):
                await clock.advance(timedelta(minutes=1))
                if server.has_watches and not server.list_failures and not server.watch_failures:
                    break
            await settle(200)
            task.cancel()
    cached = {found.metadata.key: found for found in informer.cache}
    assert cached == server.readable_objects()
    assert fold.world == cached
    assert informer.unreadable.keys() == server.objects.keys() - cached.keys()
    filed: dict[object, list[ModelThing]] = defaultdict(list)
    for found in cached.values():
        for value in parity(found):
            filed[value].append(found)
    for value in ("odd", "even", 1, 2, 3):
        assert sorted(informer.cache.by_index("parity", value), key=str) == sorted(filed[value], key=str)


@settings(max_examples=300, deadline=None)
@given(histories, st.integers(1, 4))
def test_cache_subscribers_and_indexes_end_as_a_fresh_list(history: list[Episode], page: int) -> None:
    asyncio.run(follow(history, page))
