"""The client over a scripted transport: its requests, retries and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from gangline.api.core import ConfigMap, Namespace, Node, Pod
from gangline.api.meta import Key, Object, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.kube.client import Client, metadata_only
from gangline.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    Invalid,
    MalformedResponse,
    NotFound,
    ServerError,
    ServerTimeout,
    TooManyRequests,
    Unreachable,
)
from gangline.kube.options import DeletionPropagation, FieldValidation, PatchType, WriteOptions
from gangline.kube.request_sender import MAX_ATTEMPTS, MAX_THROTTLE_WAIT
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.testing.clock import FakeClock, settle

WIDGETS = Resource("example.com", "v1", "Widget", "widgets", dict[str, Any])
SIZES = Resource("example.com", "v1", "Size", "sizes", dict[str, Any], namespaced=False)
KEY = Key("team", "one")
SECOND = timedelta(seconds=1)


class Scripted:
    """A transport that returns prepared responses in order, and keeps the requests."""

    def __init__(self, *answers: Response | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[Request] = []
        self.timeouts: list[timedelta | None] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.timeouts.append(timeout)
        return self._next(request)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        yield Arrived(self._next(request))

    @asynccontextmanager
    async def frames(self, request: Request, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        self._next(request)
        yield Silent()

    def _next(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def seen(self) -> list[str]:
        return [
            f"{request.method} {request.path}{'?' if request.query else ''}{urlencode(request.query)}"
            for request in self.requests
        ]

    @property
    def body(self) -> Any:
        return json.loads(self.requests[-1].body)


class Silent:
    """A WebSocket without messages."""

    protocol = ""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        frames: tuple[bytes, ...] = ()
        for frame in frames:
            yield frame

    async def send(self, frame: bytes) -> None: ...

    async def close(self) -> None: ...


class Arrived:
    """A stream over a complete body."""

    def __init__(self, response: Response) -> None:
        self.response = response

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.response.body


def ok(body: object = None) -> Response:
    return Response(200, json.dumps({} if body is None else body).encode())


def refused(code: int, reason: str = "", *, after: str = "", causes: tuple[str, ...] = ()) -> Response:
    status = {"status": "Failure", "code": code, "reason": reason, "message": f"{code} {reason}"}
    status |= {"details": {"causes": [{"reason": cause} for cause in causes]}} if causes else {}
    return Response(code, json.dumps(status).encode(), {"retry-after": after} if after else {})


def page(*names: str, token: str = "") -> Response:
    return ok({"metadata": {"continue": token}, "items": [{"metadata": {"name": name}} for name in names]})


# Paths


async def test_paths_follow_group_scope_and_namespace() -> None:
    wire = Scripted(*(ok() for _ in range(4)), page(), page())
    client = Client(wire)
    await client.get(Pod, KEY)
    await client.get(Node, Key("", "one"))
    await client.get(WIDGETS, KEY)
    await client.get(SIZES, Key("", "one"))
    await client.list(WIDGETS)
    await client.list(Pod, Selector("team", labels="a=b,c in (d)", fields="spec.nodeName="))
    assert wire.seen == [
        "GET /api/v1/namespaces/team/pods/one",
        "GET /api/v1/nodes/one",
        "GET /apis/example.com/v1/namespaces/team/widgets/one",
        "GET /apis/example.com/v1/sizes/one",
        "GET /apis/example.com/v1/widgets",
        "GET /api/v1/namespaces/team/pods?labelSelector=a%3Db%2Cc+in+%28d%29&fieldSelector=spec.nodeName%3D",
    ]


async def test_names_are_escaped() -> None:
    wire = Scripted(ok())
    await Client(wire).get(WIDGETS, Key("team", "system:who? #1"))
    assert wire.seen == ["GET /apis/example.com/v1/namespaces/team/widgets/system%3Awho%3F%20%231"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
async def test_what_cannot_be_a_name_is_refused_before_anything_is_sent(name: str) -> None:
    wire = Scripted()
    with pytest.raises(InputError, match="pods: the name is"):
        await Client(wire).delete(Pod, Key("team", name))
    assert not wire.requests


async def test_object_of_a_namespaced_kind_needs_a_namespace() -> None:
    client = Client(Scripted())
    calls: list[Callable[[], Any]] = [
        lambda: client.get(Pod, Key("", "one")),
        lambda: client.create(Pod, {"metadata": {"name": "one"}}),
        lambda: client.delete_all(Pod, Selector()),
    ]
    for call in calls:
        with pytest.raises(InputError, match="pods: the namespace is missing"):
            await call()


async def test_namespace_of_a_kind_without_one_is_refused_rather_than_ignored() -> None:
    with pytest.raises(InputError, match=r"nodes: are not in namespaces, but \"team\""):
        await Client(Scripted()).delete_all(Node, Selector("team"))


async def test_applied_body_without_a_name_is_refused() -> None:
    for body in ({}, {"metadata": None}, {"metadata": {"namespace": "team"}}):
        with pytest.raises(InputError, match="configmaps: the"):
            await Client(Scripted()).apply(ConfigMap, body, owner="me")


# Writes


async def test_create_says_kind_and_goes_where_body_or_caller_says() -> None:
    wire = Scripted(ok(), ok(), ok())
    client = Client(wire)
    await client.create(WIDGETS, {"metadata": {"name": "one", "namespace": "team"}})
    assert wire.body["apiVersion"] == "example.com/v1"
    assert wire.body["kind"] == "Widget"
    await client.create(WIDGETS, {"metadata": {"generateName": "one-"}}, namespace="other")
    # A default namespace is ignored for cluster-scoped kinds.
    await client.create(Namespace, {"metadata": {"name": "one"}}, namespace="other")
    assert wire.seen == [
        "POST /apis/example.com/v1/namespaces/team/widgets?fieldManager=gangline",
        "POST /apis/example.com/v1/namespaces/other/widgets?fieldManager=gangline",
        "POST /api/v1/namespaces?fieldManager=gangline",
    ]


async def test_write_options_reach_every_write() -> None:
    wire = Scripted(*(ok() for _ in range(6)))
    options = WriteOptions("me", dry_run=True, field_validation=FieldValidation.STRICT)
    client = Client(wire).with_options(options)
    body = {"metadata": {"name": "one", "namespace": "team"}}
    await client.create(WIDGETS, body)
    await client.patch(WIDGETS, KEY, {})
    await client.apply(WIDGETS, body, owner="you", force=True)
    await client.scale(WIDGETS, KEY, 3)
    said = ["fieldManager=me&dryRun=All&fieldValidation=Strict"] * 4
    said[2] = "fieldManager=you&dryRun=All&fieldValidation=Strict&force=true"
    assert [text.partition("?")[2] for text in wire.seen] == said
    await client.delete(WIDGETS, KEY)
    assert wire.body["dryRun"] == ["All"]
    await client.delete_all(WIDGETS, Selector("team"))
    assert wire.body["dryRun"] == ["All"]


async def test_patches_say_their_form_and_part() -> None:
    wire = Scripted(ok(), ok(), ok())
    client = Client(wire)
    for form in PatchType:
        await client.patch(WIDGETS, KEY, [] if form is PatchType.JSON else {}, form=form, subresource="status")
    assert [request.content_type for request in wire.requests] == [form.value for form in PatchType]
    assert {request.path.rpartition("/")[2] for request in wire.requests} == {"status"}


async def test_guarded_patch_carries_the_version_it_was_made_for() -> None:
    wire = Scripted(ok(), ok())
    client = Client(wire)
    await client.patch(WIDGETS, KEY, {"metadata": {"labels": {"a": "b"}}}, resource_version="7")
    assert wire.body == {"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}
    await client.patch(WIDGETS, KEY, [{"op": "remove", "path": "/spec"}], form=PatchType.JSON, resource_version="7")
    assert wire.body[0] == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}


async def test_delete_carries_preconditions_propagation_and_grace() -> None:
    wire = Scripted(ok(), ok())
    client = Client(wire)
    await client.delete(
        Pod, KEY, uid="u", resource_version="7", propagation=DeletionPropagation.ORPHAN, grace=timedelta()
    )
    assert wire.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
    }
    await client.delete(Pod, KEY)
    assert wire.body == {"apiVersion": "v1", "kind": "DeleteOptions"}


# Reads


async def test_plain_kind_gives_the_whole_object() -> None:
    whole = {"metadata": {"name": "one"}, "spec": {"volumes": [{"name": "x"}]}}
    client = Client(Scripted(ok(whole), ok({"metadata": {}, "items": [whole]})))
    assert await client.get(client.unstructured(Pod), KEY) == whole
    assert (await client.list(client.unstructured(Pod))).items == (whole,)


async def test_of_an_object_that_nobody_reads_the_server_sends_only_the_metadata() -> None:
    whole = {"metadata": {"name": "one", "uid": "u"}, "spec": {"containers": [{"name": "x"}]}}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}
    wire = Scripted(ok(partial), ok(whole), ok(partial), ok({}))
    client = Client(wire)
    pods = metadata_only(client.scheme.of(Pod))
    created = await client.create(pods, {"metadata": {"name": "one"}}, namespace="team")
    # A server may send the whole object all the same.
    patched = await client.patch(pods, KEY, {"metadata": {"labels": {"a": "b"}}})
    assert type(created) is type(patched) is Object
    assert [created.metadata.uid, patched.metadata.uid, (await client.get(pods, KEY)).metadata.uid] == ["u"] * 3
    await client.delete(Pod, KEY)
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    assert {request.accept for request in wire.requests} == {accept}
    assert wire.seen[:2] == [
        "POST /api/v1/namespaces/team/pods?fieldManager=gangline",
        "PATCH /api/v1/namespaces/team/pods/one?fieldManager=gangline",
    ]
    assert json.loads(wire.requests[0].body)["kind"] == "Pod"


async def test_lists_are_whole_also_of_metadata() -> None:
    wire = Scripted(page("a"))
    client = Client(wire)
    (found,) = (await client.list(metadata_only(client.scheme.of(Pod)))).items
    assert (found.metadata.name, wire.requests[0].accept) == ("a", "application/json")


async def test_pages_follow_the_tokens_to_the_end() -> None:
    wire = Scripted(page("a", "b", token="x"), page("c", token="y"), page("d"))
    names = [found.metadata.name async for found in Client(wire).iterate(Pod, Selector("team"), limit=2)]
    assert names == ["a", "b", "c", "d"]
    assert [text.partition("?")[2] for text in wire.seen] == [
        "limit=2",
        "limit=2&continue=x",
        "limit=2&continue=y",
    ]


async def test_token_that_expires_midway_raises_gone_after_what_came_before() -> None:
    client = Client(Scripted(page("a", token="x"), refused(410, "Expired")))
    found = client.iterate(Pod)
    assert (await anext(found)).metadata.name == "a"
    with pytest.raises(Gone):
        await anext(found)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"metadata": 3}', b"\xff"])
async def test_answer_that_cannot_be_read_is_the_servers_fault(body: bytes) -> None:
    client = Client(Scripted(*(Response(200, body) for _ in range(2))))
    with pytest.raises(MalformedResponse, match="GET /api/v1/namespaces/team/pods/one: the server's answer"):
        await client.get(Pod, KEY)
    with pytest.raises(MalformedResponse):
        await client.list(Pod)


async def test_timeout_of_the_client_reaches_the_transport() -> None:
    wire = Scripted(ok())
    await Client(wire, timeout=SECOND).get(Pod, KEY)
    assert wire.timeouts == [SECOND]


# Errors


async def test_redirect_is_an_error_that_says_where_to() -> None:
    client = Client(Scripted(Response(302, b"", {"location": "https://elsewhere/"})))
    with pytest.raises(ApiError, match="redirects to https://elsewhere/") as caught:
        await client.get(Pod, KEY)
    assert caught.value.code == 302


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(404, "NotFound"), NotFound),
        (refused(409, "Conflict"), Conflict),
        (refused(422, "Invalid"), Invalid),
        (refused(500, "InternalError"), ServerError),
        (refused(418), ApiError),
        (Response(502, b"<html>bad gateway</html>"), ServerError),
    ],
)
async def test_refusal_is_raised_at_once(answer: Response, error: type[ApiError]) -> None:
    wire = Scripted(answer)
    with pytest.raises(error):
        await Client(wire).get(Pod, KEY)
    assert len(wire.requests) == 1


async def test_throttled_request_is_sent_again_when_the_server_said() -> None:
    clock = FakeClock()
    wire = Scripted(refused(429, after="2"), refused(503, after="3"), ok())
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(Client(wire, clock=clock).create(WIDGETS, {}, namespace="team"))
        await clock.advance(timedelta(seconds=1.9))
        assert len(wire.requests) == 1
        await clock.advance(timedelta(seconds=0.1))
        assert len(wire.requests) == 2
        await clock.advance(timedelta(seconds=3))
        assert creating.done()
    assert wire.requests[0] == wire.requests[2]


async def test_throttling_without_end_is_raised_after_a_bound() -> None:
    clock = FakeClock()
    wire = Scripted(*(refused(429, after="1") for _ in range(MAX_ATTEMPTS)))
    async with asyncio.TaskGroup() as group:
        getting = group.create_task(outcome(Client(wire, clock=clock).get(Pod, KEY)))
        await clock.advance(MAX_ATTEMPTS * SECOND)
    assert isinstance(getting.result(), TooManyRequests)
    assert len(wire.requests) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    "answer",
    [
        refused(429),
        refused(429, after="Wed, 21 Oct 2026 07:28:00 GMT"),
        refused(429, after="-1"),
        refused(429, after=str(int(MAX_THROTTLE_WAIT.total_seconds()) + 1)),
        refused(503),
        # An exhausted disruption budget is not throttling.
        refused(429, "TooManyRequests", after="10", causes=("DisruptionBudget",)),
    ],
)
async def test_what_names_no_usable_delay_is_raised_at_once(answer: Response) -> None:
    wire = Scripted(answer)
    with pytest.raises((TooManyRequests, ServerError)):
        await Client(wire, clock=FakeClock()).get(Pod, KEY)
    assert len(wire.requests) == 1


async def test_server_error_that_may_come_after_the_deed_is_not_repeated_for_what_must_not_be() -> None:
    clock = FakeClock()
    late = refused(500, "ServerTimeout", after="1")
    wire = Scripted(late, late)
    client = Client(wire, clock=clock)
    with pytest.raises(ServerTimeout):
        await client.create(WIDGETS, {}, namespace="team")
    with pytest.raises(ServerTimeout):
        await client.patch(WIDGETS, KEY, [], form=PatchType.JSON)
    wire = Scripted(late, ok())
    async with asyncio.TaskGroup() as group:
        group.create_task(Client(wire, clock=clock).patch(WIDGETS, KEY, {}))
        await clock.advance(SECOND)
    assert len(wire.requests) == 2


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_nothing_is_repeated_when_there_was_no_answer(verb: str) -> None:
    wire = Scripted(Unreachable("reset"))
    client = Client(wire)
    with pytest.raises(Unreachable):
        await (client.get(Pod, KEY) if verb == "get" else client.create(Pod, {}, namespace="team"))
    assert len(wire.requests) == 1


async def test_watch_waits_out_throttling_and_then_gives_what_happens() -> None:
    clock = FakeClock()
    line = {"type": "ADDED", "object": {"metadata": {"name": "one", "resourceVersion": "8"}}}
    wire = Scripted(refused(429, after="1"), Response(200, json.dumps(line).encode()))
    seen: list[object] = []

    async def watch() -> None:
        async with aclosing(Client(wire, clock=clock).watch(Pod, since="7")) as events:
            seen.extend([event async for event in events])

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await clock.advance(SECOND)
    assert len(seen) == 1
    assert wire.seen[1] == "GET /api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7"


async def test_watch_from_too_long_ago_raises_gone() -> None:
    client = Client(Scripted(refused(410, "Expired")))
    with pytest.raises(Gone):
        async for _ in client.watch(Pod, since="1"):
            pass


async def test_cancelling_while_waiting_out_throttling_sends_nothing_more() -> None:
    clock = FakeClock()
    wire = Scripted(refused(429, after="1"), ok())
    async with asyncio.TaskGroup() as group:
        getting = group.create_task(Client(wire, clock=clock).get(Pod, KEY))
        await settle()
        getting.cancel()
    await clock.advance(2 * SECOND)
    assert len(wire.requests) == 1


async def test_rate_limit_is_asked_before_each_attempt() -> None:
    class Counting:
        asked = 0

        async def wait(self) -> None:
            self.asked += 1

    limit = Counting()
    client = Client(Scripted(refused(429, after="0"), ok(), ok()), limit=limit)
    await client.get(Pod, KEY)
    await client.with_options(WriteOptions()).get(Pod, KEY)
    assert limit.asked == 3


async def outcome(work: Any) -> object:
    try:
        return await work
    except ApiError as error:
        return error
