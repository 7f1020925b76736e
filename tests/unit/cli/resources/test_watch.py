"""Listed and watched objects, across broken connections."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from gangline.api.meta import JSON, ListMeta, Selector
from gangline.cli.resources.watch import MAX_RECONNECTS, Reconnects, WatchedObject, watch_objects
from gangline.kube.errors import Gone, Status, StreamBroken, Unreachable
from gangline.kube.pages import Page
from gangline.kube.watch import ChangeType, ObjectChange
from gangline.summary.objects import PODS

WHERE = Selector("ns")


def pod(name: str, version: int) -> JSON:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


class Script:
    """A client that lists and watches by a script: each entry is a result or an error."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        self._lists, self._watches = lists, watches
        self.since: list[str] = []

    async def list(self, kind: Any, selector: Selector) -> Page[JSON]:
        items = self._lists.pop(0)
        if isinstance(items, Exception):
            raise items
        return Page(items=tuple(items), metadata=ListMeta(resource_version="10"))

    async def watch(self, kind: Any, selector: Selector, *, since: str) -> AsyncIterator[ObjectChange[JSON]]:
        self.since.append(since)
        for step in self._watches.pop(0) if self._watches else [Finished()]:
            if isinstance(step, Exception):
                raise step
            yield step


class Finished(Exception):
    """Raised at the end of the script."""


class NoWait:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.slept = 0

    async def sleep(self, duration: timedelta) -> None:
        self.slept += 1


async def collect(script: Script, clock: NoWait | None = None) -> list[WatchedObject]:
    items: list[WatchedObject] = []
    try:
        async with aclosing(watch_objects(script, PODS, WHERE, Reconnects(clock=clock or NoWait()))) as stream:  # type: ignore[arg-type]
            async for change in stream:
                items.append(change)  # noqa: PERF401 - kept although it raises
    except (Finished, Unreachable):
        pass
    return items


def modified(body: JSON) -> ObjectChange[JSON]:
    return ObjectChange(ChangeType.MODIFIED, body)


async def test_existing_objects_come_first_then_a_mark_then_changes() -> None:
    script = Script([[pod("a", 1)]], [[modified(pod("a", 11)), ObjectChange(ChangeType.DELETED, pod("a", 12))]])
    assert await collect(script) == [
        WatchedObject(pod("a", 1)),
        WatchedObject(None),
        WatchedObject(pod("a", 11)),
        WatchedObject(pod("a", 12), deleted=True),
    ]


async def test_a_watch_that_ends_is_resumed_from_its_version() -> None:
    script = Script([[]], [[modified(pod("a", 11))], [modified(pod("a", 12))]])
    assert len(await collect(script)) == 3
    assert script.since == ["10", "11", "12"]


async def test_after_gone_only_differences_are_yielded() -> None:
    forgot = Gone(Status(code=410, reason="Expired"))
    script = Script([[pod("a", 1), pod("b", 2), pod("c", 3)], [pod("a", 1), pod("b", 20)]], [[forgot]])
    changes = await collect(script)
    assert changes[3:] == [
        WatchedObject(None),
        WatchedObject(pod("c", 3), deleted=True),
        WatchedObject(pod("b", 20)),
    ]


async def test_a_broken_stream_is_reconnected_after_a_pause() -> None:
    clock = NoWait()
    script = Script([[], [pod("a", 1)]], [[StreamBroken("cut")]])
    assert await collect(script, clock) == [WatchedObject(None), WatchedObject(pod("a", 1))]
    assert clock.slept == 1


async def test_a_server_that_stays_unreachable_is_an_error() -> None:
    clock = NoWait()
    script = Script([[], *[Unreachable("away")] * (MAX_RECONNECTS + 1)], [[StreamBroken("cut")]])
    assert await collect(script, clock) == [WatchedObject(None)]
    assert clock.slept == MAX_RECONNECTS


async def test_a_server_that_was_never_reachable_is_an_error_at_once() -> None:
    clock = NoWait()
    assert await collect(Script([Unreachable("away")], []), clock) == []
    assert clock.slept == 0


async def test_without_a_limit_a_server_is_waited_for_and_both_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = NoWait()
    reconnects = Reconnects(None, clock)  # type: ignore[arg-type]
    await reconnects.wait(StreamBroken("cut"))
    assert capsys.readouterr().err == ""
    for _ in range(MAX_RECONNECTS + 2):
        await reconnects.wait(Unreachable("away"))
    reconnects.succeed()
    reconnects.succeed()
    assert capsys.readouterr().err.splitlines() == [
        "the server does not answer; trying again until it does (Ctrl-C ends it)",
        "connected again",
    ]
