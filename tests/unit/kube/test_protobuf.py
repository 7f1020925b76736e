"""Objects in protobuf, created and watched, over a scripted transport."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import JSON, Key, Object
from gangline.api.scheme import Resource
from gangline.kube.client import Client, metadata_only
from gangline.kube.errors import BadRequest, Forbidden, Gone, StreamBroken
from gangline.kube.pages import UnreadableObject
from gangline.kube.protobuf import ProtobufBodies, selection_of, watch_events
from gangline.kube.transport.api import Request, Response
from gangline.kube.watch import Bookmark, ChangeType, ObjectChange, WatchEvent
from gangline.schema.protobuf.objects import MEDIA_TYPE, decode, encode
from gangline.schema.protobuf.wire import block
from support.servers.scripted import ScriptedTransport, json_response, refusal_response

PODS = Resource("", "v1", "Pod", "pods", Pod)
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", ConfigMap)
POD: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": {"x": "y"}, "uid": "u-1"},
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "env": [{"name": "E", "value": "long" * 1000}], "ports": [{"containerPort": 1}]}
        ],
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
    },
    "status": {"phase": "Running", "startTime": "2026-11-18T10:00:00Z", "podIP": "10.0.0.1"},
}


class Strict(Object, frozen=True, kw_only=True):
    """A config map of which we require more than the server does."""

    data: dict[str, Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]]


def frame(kind: str, body: JSON) -> bytes:
    content = encode(body.get("apiVersion", "v1"), body.get("kind", "Pod"), body)
    event = block(1, kind.encode()) + block(2, block(1, content))
    return struct.pack(">I", len(event)) + event


async def chunked(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def read(data: bytes, resource: Resource[Any] = PODS, size: int = 1 << 16) -> list[WatchEvent[Any]]:
    return [event async for event in watch_events(chunked(data, size), resource)]


@pytest.mark.parametrize("kind", list(ChangeType))
async def test_change_is_what_its_json_is(kind: ChangeType) -> None:
    (change,) = await read(frame(kind, POD))
    assert change == ObjectChange(kind, msgspec.convert(POD, Pod))


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100, 1 << 20])
async def test_frames_may_arrive_in_any_pieces(size: int) -> None:
    newer = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "8"}}
    changes = await read(frame("ADDED", POD) + frame("MODIFIED", newer), size=size)
    assert [change.resource_version for change in changes if isinstance(change, ObjectChange)] == ["7", "8"]


async def test_bookmark_and_objects_that_do_not_fit() -> None:
    strict = Resource("", "v1", "ConfigMap", "configmaps", Strict)
    body = {
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"},
        "data": {"a": "b"},
    }
    bookmark = {"kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}
    gone, end = await read(frame("DELETED", body) + frame("BOOKMARK", bookmark), strict)
    assert isinstance(gone, UnreadableObject)
    assert (gone.key, gone.resource_version, gone.deleted) == (Key("n", "a"), "7", True)
    assert end == Bookmark("9")


async def test_error_event_raises_its_status() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(Gone, match="too old"):
        await read(frame("ERROR", status))


@pytest.mark.parametrize("data", [frame("ADDED", POD)[:-1], b"\0\0", frame("NEWS", POD), b"\0\0\0\1\xff"])
async def test_stream_that_breaks_off_or_makes_no_sense(data: bytes) -> None:
    with pytest.raises(StreamBroken):
        await read(data)


async def test_objects_share_nothing_that_changes() -> None:
    other = {**POD, "metadata": {**POD["metadata"], "name": "b", "labels": {"x": "y", "z": "1"}}}
    first, second = await read(frame("ADDED", POD) + frame("ADDED", other))
    assert isinstance(first, ObjectChange)
    assert isinstance(second, ObjectChange)
    assert (first.object, second.object) == (msgspec.convert(POD, Pod), msgspec.convert(other, Pod))


def test_only_fields_of_the_model_are_selected() -> None:
    selection = selection_of(Pod)
    assert set(selection) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert "env" not in selection["spec"]["containers"]
    assert "startedAt" in selection["status"]["containerStatuses"]["state"]["running"]


# The client


class OneStream:
    """A response whose body arrives in pieces."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def chunks(self) -> AsyncIterator[bytes]:
        return chunked(self.response.body, 1000)


class WatchTransport(ScriptedTransport):
    """A transport whose streams are one response."""

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[OneStream]:
        self.requests.append(request)
        response = self.respond(request)
        assert isinstance(response, Response)
        yield OneStream(response)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> Any:
        return self._stream(request)


async def watched(response: Response, resource: Resource[Any] = PODS) -> tuple[list[WatchEvent[Any]], str]:
    transport = WatchTransport(lambda request: response)
    events = [event async for event in Client(transport, protobuf=ProtobufBodies()).watch(resource, since="1")]
    return events, transport.requests[0].accept


async def test_watch_reads_what_the_server_sends() -> None:
    headers = {"content-type": f"{MEDIA_TYPE};stream=watch"}
    events, accept = await watched(Response(200, frame("ADDED", POD), headers))
    assert accept.split(";")[0] == MEDIA_TYPE
    line = msgspec.json.encode({"type": "ADDED", "object": POD}) + b"\n"
    lines, _ = await watched(Response(200, line, {"content-type": "application/json"}))
    assert events == lines == [ObjectChange(ChangeType.ADDED, msgspec.convert(POD, Pod))]


@pytest.mark.parametrize(
    "resource", [Resource("example.com", "v1", "Pod", "pods", Pod), Resource("", "v1", "Pod", "pods", dict[str, Any])]
)
async def test_custom_resources_and_plain_json_are_watched_as_json(resource: Resource[Any]) -> None:
    line = msgspec.json.encode({"type": "ADDED", "object": POD}) + b"\n"
    _, accept = await watched(Response(200, line), resource)
    assert accept == "application/json"


async def test_refused_watch_may_say_so_in_protobuf() -> None:
    body = encode("v1", "Status", {"code": 403, "reason": "Forbidden", "message": "you may not"})
    with pytest.raises(Forbidden, match="you may not"):
        await watched(Response(403, body, {"content-type": MEDIA_TYPE}))


async def test_created_object_is_sent_as_protobuf() -> None:
    transport = ScriptedTransport(lambda request: json_response(POD, 201))
    client = Client(transport, protobuf=ProtobufBodies())
    created = await client.create(metadata_only(PODS), {"metadata": {"name": "a"}, "spec": POD["spec"]}, namespace="n")
    (request,) = transport.requests
    assert created.metadata.uid == "u-1"
    assert request.content_type == MEDIA_TYPE
    assert decode(request.body)["spec"]["containers"][0]["env"] == POD["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [], "fieldOfNextYear": {"a": 1}}, id="a field that only a newer server knows"),
        pytest.param({"containers": [{"name": "c", "ports": [{"containerPort": "80"}]}]}, id="text for a number"),
        pytest.param({"containers": [{"name": "c", "stdin": "yes"}]}, id="text for a boolean"),
        pytest.param({"containers": {"name": "c"}}, id="an object for a list"),
        pytest.param({"containers": [{"name": "c", "command": "sleep"}]}, id="text for a list"),
        pytest.param({"containers": [{"resources": {"limits": {"cpu": "much"}}}]}, id="no quantity"),
        pytest.param({"containers": [None]}, id="null in a list"),
        pytest.param({"nodeSelector": {"a": 1}}, id="a number for text in a map"),
    ],
)
async def test_object_that_does_not_fit_is_sent_as_json(spec: JSON) -> None:
    transport = ScriptedTransport(lambda request: json_response(POD, 201))
    await Client(transport, protobuf=ProtobufBodies()).create(
        PODS, {"metadata": {"name": "a"}, "spec": spec}, namespace="n"
    )
    (request,) = transport.requests
    assert request.content_type == "application/json"
    assert msgspec.json.decode(request.body)["spec"] == spec


async def test_server_that_does_not_know_protobuf_gets_json_from_then_on() -> None:
    def answer(request: Request) -> Response:
        return refusal_response(415) if request.content_type == MEDIA_TYPE else json_response(POD, 201)

    transport = ScriptedTransport(answer)
    client = Client(transport, protobuf=ProtobufBodies())
    for _ in range(2):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="n")
    assert [request.content_type for request in transport.requests] == [
        MEDIA_TYPE,
        "application/json",
        "application/json",
    ]


async def test_bad_request_is_what_the_server_says_of_json() -> None:
    transport = ScriptedTransport(
        lambda request: refusal_response(400, "of protobuf" if request.content_type == MEDIA_TYPE else "of JSON")
    )
    client = Client(transport, protobuf=ProtobufBodies())
    with pytest.raises(BadRequest, match="of JSON"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="n")


async def test_other_errors_are_not_asked_for_twice() -> None:
    transport = ScriptedTransport(lambda request: refusal_response(403))
    with pytest.raises(Forbidden):
        await Client(transport, protobuf=ProtobufBodies()).create(
            CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="n"
        )
    assert len(transport.requests) == 1
