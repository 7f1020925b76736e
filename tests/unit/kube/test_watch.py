from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key, Object
from gangline.kube.errors import ApiError, Forbidden, Gone, StreamBroken
from gangline.kube.pages import UnreadableObject
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange, WatchEvent, watch_events

POD: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"},
    "status": {"phase": "Running"},
}


class Strict(Object, frozen=True, kw_only=True):
    """A kind with a field that has no default: bookmarks lack it."""

    spec: dict[str, int]


def line(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


async def chunked(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read(model: type[Any], *chunks: bytes) -> list[WatchEvent[Any]]:
    return [event async for event in watch_events(chunked(*chunks), model)]


@pytest.mark.parametrize("kind", list(ChangeType))
async def test_change_is_decoded_to_its_type(kind: ChangeType) -> None:
    (change,) = await read(Pod, line(kind, POD))
    assert isinstance(change, ObjectChange)
    assert change.type is kind
    assert change.object == msgspec.convert(POD, Pod)
    assert change.resource_version == "7"


async def test_model_may_be_plain_json() -> None:
    for model in (dict, dict[str, Any]):
        (change,) = await read(model, line("ADDED", POD))
        assert isinstance(change, ObjectChange)
        assert change.object == POD
        assert change.resource_version == "7"


async def test_bookmark_needs_no_object_of_the_kind() -> None:
    events = await read(Strict, line("BOOKMARK", {"kind": "Strict", "metadata": {"resourceVersion": "9"}}))
    assert events == [Bookmark("9")]


async def test_bookmark_without_annotations_may_say_null() -> None:
    metadata = {"resourceVersion": "9", "annotations": None}
    assert await read(Pod, line("BOOKMARK", {"metadata": metadata})) == [Bookmark("9")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}, Gone),
        ({"code": 410, "reason": "Gone"}, Gone),
        ({"code": 403, "reason": "Forbidden"}, Forbidden),
    ],
)
async def test_error_event_is_raised_as_what_it_says(status: JSON, expected: type[ApiError]) -> None:
    with pytest.raises(expected) as caught:
        await read(Strict, line("ERROR", {"kind": "Status", **status}))
    assert caught.value.code == status["code"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>secret</html>\n",
        b'{"type":"ADDED","object":{"metadata":{"name":"secret"',
        b'{"type":"ADDED","object":"secret"}\n',
        b'{"type":"RENAMED","object":{"data":"secret"}}\n',
        b'{"object":{"data":"secret"}}\n',
        b'{"type":"BOOKMARK","object":{"data":"secret"}}\n',
        b'{"type":"ERROR","object":["secret"]}\n',
        b'["secret"]\n',
        b'\xff\xfe"secret"\n',
    ],
)
async def test_garbage_breaks_the_stream_and_is_not_shown(garbage: bytes) -> None:
    stream = watch_events(chunked(line("ADDED", POD), garbage), Pod)
    assert isinstance(await anext(stream), ObjectChange)
    with pytest.raises(StreamBroken) as caught:
        await anext(stream)
    assert "secret" not in str(caught.value)


async def test_object_that_does_not_decode_is_named_and_the_watch_goes_on() -> None:
    bad = {"metadata": {"name": "bad", "namespace": "n", "resourceVersion": "8"}, "spec": {"a": "text"}}
    good = {"metadata": {"name": "good"}, "spec": {"a": 1}}
    events = await read(Strict, line("MODIFIED", bad) + line("ADDED", good) + line("DELETED", bad))
    first, second, third = events
    assert isinstance(first, UnreadableObject)
    assert first.key == Key("n", "bad")
    assert first.resource_version == "8"
    assert "spec" in first.problem
    assert not first.deleted
    assert isinstance(second, ObjectChange)
    assert isinstance(third, UnreadableObject)
    assert third.deleted


async def test_lines_are_found_however_they_are_cut() -> None:
    text = line("ADDED", POD) + b"\n" + line("MODIFIED", POD)
    for at in range(len(text)):
        assert len(await read(Pod, text[:at], text[at:])) == 2
