"""The gate limits requests in flight, and slow ones do not block the others."""

import asyncio
from datetime import timedelta

import pytest

from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.operator.request_gate import SLOT_TIMEOUT, RequestGate
from gangline.testing.clock import FakeClock, settle
from support.servers.scripted import ScriptedTransport, json_response


class Server:
    """A transport that answers a request when a test says so, by its path."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self._answers: dict[str, asyncio.Future[Response]] = {}

    def __call__(self, request: Request) -> "asyncio.Future[Response]":
        self.under_way.append(request.path)
        self._answers[request.path] = asyncio.get_running_loop().create_future()
        return self._answers[request.path]

    def answer(self, path: str) -> None:
        self.under_way.remove(path)
        self._answers[path].set_result(json_response())

    def fail(self, path: str) -> None:
        self.under_way.remove(path)
        self._answers[path].set_exception(Unreachable(path))


class World:
    def __init__(self, at_once: int = 2) -> None:
        self.server, self.clock = Server(), FakeClock()
        self.gate = RequestGate(ScriptedTransport(self.server), self.clock, at_once=at_once)

    async def ask(self, group: asyncio.TaskGroup, *paths: str) -> list[asyncio.Task[Response]]:
        asked = [group.create_task(self.gate.send(Request("GET", path))) for path in paths]
        await settle()
        return asked


async def test_so_many_are_under_way_and_the_next_begins_when_one_is_answered() -> None:
    world = World()
    async with asyncio.TaskGroup() as group:
        await world.ask(group, "/a", "/b", "/c", "/d")
        assert world.server.under_way == ["/a", "/b"]
        world.server.answer("/b")
        await settle()
        assert world.server.under_way == ["/a", "/c"]
        for path in ("/a", "/c", "/d"):
            world.server.answer(path)
            await settle()


async def test_one_that_hangs_gives_its_place_to_another_once() -> None:
    world = World()
    async with asyncio.TaskGroup() as group:
        (hanging, *_) = await world.ask(group, "/hangs", "/b", "/c", "/d", "/e")
        world.server.answer("/b")
        await settle()
        await world.clock.advance(SLOT_TIMEOUT)
        await settle()
        assert world.server.under_way == ["/hangs", "/c", "/d", "/e"]
        assert not hanging.done()
        # The late answer frees no slot: the slot belongs to another request by now.
        world.server.answer("/hangs")
        await world.ask(group, "/f", "/g")
        assert hanging.done()
        for path in ("/c", "/d", "/e"):
            world.server.answer(path)
            await settle()
        assert world.server.under_way == ["/f", "/g"]
        for path in ("/f", "/g"):
            world.server.answer(path)


async def test_a_place_is_free_again_after_an_error_and_after_a_cancellation() -> None:
    world = World(at_once=1)
    async with asyncio.TaskGroup() as group:
        (first,) = await world.ask(group, "/cancelled")
        first.cancel()
        await settle()

        async def fails() -> None:
            with pytest.raises(Unreachable):
                await world.gate.send(Request("GET", "/fails"))

        group.create_task(fails())
        await settle()
        world.server.fail("/fails")
        await settle()
        await world.ask(group, "/a", "/b")
        assert world.server.under_way == ["/cancelled", "/a"]
        world.server.answer("/a")
        await settle()
        world.server.answer("/b")


async def test_whoever_gives_up_in_the_queue_takes_no_place() -> None:
    world = World(at_once=1)
    async with asyncio.TaskGroup() as group:
        _, waiting, _ = await world.ask(group, "/a", "/waits", "/b")
        waiting.cancel()
        world.server.answer("/a")
        await settle()
        assert world.server.under_way == ["/b"]
        world.server.answer("/b")
    assert timedelta() < SLOT_TIMEOUT < timedelta(seconds=2)
