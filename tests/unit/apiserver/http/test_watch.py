"""Watches, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from support.servers.plane import PlaneClient, running_plane

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        yield running


class Events:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def take(self, count: int) -> list[Any]:
        events: list[Any] = []
        async with asyncio.timeout(60):
            while len(events) < count:
                line = await self._response.content.readline()
                assert line, "the watch has ended"
                events.append(json.loads(line))
        return events

    async def told(self, count: int) -> list[tuple[str, str]]:
        return [(event["type"], event["object"]["metadata"]["name"]) for event in await self.take(count)]


async def make(plane: PlaneClient, name: str, **labels: str) -> Any:
    return (await plane.call("POST", MAPS, {"metadata": {"name": name, "labels": labels}})).body


async def test_existing_objects_come_first_then_changes(plane: PlaneClient) -> None:
    await make(plane, "a")
    async with plane.session.get(MAPS, params={"watch": "1"}) as response:
        events = Events(response)
        assert await events.told(1) == [("ADDED", "a")]
        await make(plane, "b")
        await plane.call("DELETE", f"{MAPS}/a")
        assert await events.told(2) == [("ADDED", "b"), ("DELETED", "a")]


async def test_watch_from_a_version_sends_later_changes(plane: PlaneClient) -> None:
    made = await make(plane, "a")
    await make(plane, "b")
    query = {"watch": "1", "resourceVersion": made["metadata"]["resourceVersion"]}
    async with plane.session.get(MAPS, params=query) as response:
        assert await Events(response).told(1) == [("ADDED", "b")]


async def test_object_that_no_longer_matches_is_deleted_with_its_old_content(plane: PlaneClient) -> None:
    async with plane.session.get(MAPS, params={"watch": "1", "labelSelector": "x=y"}) as response:
        events = Events(response)
        await make(plane, "a", x="y")
        media = "application/merge-patch+json"
        patched = await plane.call("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"x": "z"}}}, media=media)
        _, gone = await events.take(2)
        assert gone["type"] == "DELETED"
        assert gone["object"]["metadata"]["labels"] == {"x": "y"}
        assert gone["object"]["metadata"]["resourceVersion"] == patched.body["metadata"]["resourceVersion"]


async def test_initial_events_end_with_a_bookmark(plane: PlaneClient) -> None:
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    await make(plane, "a")
    async with plane.session.get(MAPS, params=query) as response:
        added, mark = await Events(response).take(2)
        assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_unreadable_version_is_refused_before_the_stream_begins(plane: PlaneClient) -> None:
    answer = await plane.call("GET", MAPS, watch="1", resourceVersion="abc")
    assert (answer.status, answer.body["kind"]) == (500, "Status")


async def test_watch_ends_after_its_timeout(plane: PlaneClient) -> None:
    async with asyncio.timeout(60):
        answer = await plane.call("GET", MAPS, watch="1", timeoutSeconds="1")
    assert (answer.status, answer.body) == (200, "")


async def test_watches_end_in_order_when_the_server_does() -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as outside:
        async with running_plane() as plane:
            headers = {"Authorization": plane.session.headers["Authorization"]}
            response = await outside.get(f"{plane.url}{MAPS}", params={"watch": "1"}, headers=headers)
            assert response.status == 200
        assert await response.read() == b""


async def test_client_may_request_changes_only(plane: PlaneClient) -> None:
    await make(plane, "a")
    query = {"watch": "1", "sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    async with plane.session.get(MAPS, params={**query, "allowWatchBookmarks": "true"}) as response:
        await make(plane, "b")
        assert await Events(response).told(1) == [("ADDED", "b")]


async def test_a_reader_who_leaves_a_watch_is_no_error_of_the_server(
    plane: PlaneClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = asyncio.Event()

    async def leave(*_: object) -> None:
        left.set()
        raise ConnectionError("Connection lost")  # as aiohttp says it while data waits to be sent

    await make(plane, "a")
    with monkeypatch.context() as patched:
        patched.setattr(web.StreamResponse, "write", leave)
        async with plane.session.get(MAPS, params={"watch": "1"}) as response:
            async with asyncio.timeout(60):
                await left.wait()
            with suppress(aiohttp.ClientError):
                assert await response.read() == b""
    assert (await plane.call("GET", f"{MAPS}/a")).status == 200
    assert not [record.message for record in caplog.records if record.exc_info]
