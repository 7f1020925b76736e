"""Subresources of pods with a small server that behaves as an API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import WSMsgType, web

from gangline.api.meta import Key
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import KubeError, NotFound, ServerError, StreamBroken, TooManyRequests
from gangline.kube.options import WriteOptions
from gangline.kube.pods import PodSubresources
from gangline.kube.streams import Channel, ExecResult, ExecSession
from gangline.kube.transport.http import HttpTransport
from support.servers.http import Handler, http_server

KEY = Key("team", "one")
SUCCESS = {"metadata": {}, "status": "Success"}
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


@asynccontextmanager
async def pods(handler: Handler, options: WriteOptions | None = None) -> AsyncIterator[PodSubresources]:
    async with http_server(handler) as url, HttpTransport(Connection(server=url)) as transport:
        client = Client(transport)
        yield PodSubresources(client.with_options(options) if options else client)


def ended(code: int) -> dict[str, object]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def speaking(*frames: bytes, status: object = None, protocol: str = V5) -> Handler:
    """The server side of exec: sends these frames, then the status, then closes."""

    async def talk(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse(protocols=(protocol,))
        await server.prepare(request)
        for frame in frames:
            await server.send_bytes(frame)
        if status is not None:
            await server.send_bytes(b"\3" + json.dumps(status).encode())
        await server.close()
        return server

    return talk


# Logs


async def test_log_lines_are_whole_and_blank_ones_are_lines_too() -> None:
    async def log(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for chunk in (b"one\n\ntw", b"o\nthr", b"ee"):
            await answer.write(chunk)
        return answer

    async with pods(log) as api:
        assert [line async for line in api.logs(KEY)] == [b"one", b"", b"two", b"three"]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({}, ""),
        ({"container": "main", "follow": True, "previous": True}, "follow=true&previous=true&container=main"),
        ({"tail": 0, "limit_bytes": 9, "timestamps": True}, "timestamps=true&tailLines=0&limitBytes=9"),
        ({"since": timedelta(milliseconds=1500)}, "sinceSeconds=2"),
        ({"since": timedelta()}, "sinceSeconds=1"),
        (
            {"since": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)},
            "sinceTime=2026-01-02T03%3A04%3A05.000006Z",
        ),
    ],
)
async def test_log_options_are_query_parameters(options: dict[str, object], query: str) -> None:
    async def say(request: web.Request) -> web.Response:
        return web.Response(text=request.raw_path)

    async with pods(say) as api:
        lines = [line async for line in api.logs(KEY, **options)]  # type: ignore[arg-type]
    assert lines == [f"/api/v1/namespaces/team/pods/one/log{'?' if query else ''}{query}".encode()]


async def test_followed_log_gives_lines_as_they_come_and_can_be_left() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await asyncio.Event().wait()
        return answer

    async with pods(endless) as api, aclosing(api.logs(KEY, follow=True)) as lines:
        assert await anext(lines) == b"one"


async def test_refused_log_raises_what_the_server_said() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"code": 404, "reason": "NotFound", "message": "no pod"}, status=404)

    async with pods(refuse) as api:
        with pytest.raises(NotFound, match="no pod"):
            await anext(api.logs(KEY))


# Commands


async def test_output_is_given_by_stream_and_the_end_tells_the_exit_code() -> None:
    # The first frame is empty: servers confirm the connection with it.
    server = speaking(b"\1", b"\1out", b"\2err", b"\1more", status=ended(3))
    async with pods(server) as api, api.exec(KEY, ["true"]) as session:
        codes = [session.exit_code]
        said = [piece async for piece in session]
        codes.append(session.exit_code)
    assert codes == [None, 3]
    assert said == [(Channel.STDOUT, b"out"), (Channel.STDERR, b"err"), (Channel.STDOUT, b"more")]


async def test_command_and_streams_are_query_parameters() -> None:
    asked: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.raw_path)
        return await speaking(status=SUCCESS)(request)

    async with pods(note) as api:
        await api.run(KEY, ["sh", "-c", "a; b"], container="main")
        async with api.exec(KEY, ["sh"], stdin=True, tty=True) as session:
            assert [piece async for piece in session] == []
    path = "/api/v1/namespaces/team/pods/one/exec"
    assert asked == [
        f"{path}?stdout=true&stderr=true&container=main&command=sh&command=-c&command=a%3B%20b",
        f"{path}?stdin=true&stdout=true&tty=true&command=sh",
    ]


async def test_input_is_written_and_closed_while_output_is_read() -> None:
    async def upper(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse(protocols=(V5,))
        await server.prepare(request)
        async for message in server:
            if message.type is WSMsgType.BINARY and message.data == b"\xff\0":
                break
            await server.send_bytes(b"\1" + message.data[1:].upper())
        await server.send_bytes(b"\3" + json.dumps(SUCCESS).encode())
        await server.close()
        return server

    sent = b"abc" * 100_000
    async with pods(upper) as api:
        assert await api.run(KEY, ["upper"], stdin=sent) == ExecResult(0, sent.upper())


async def test_command_that_ends_before_it_read_its_input_has_ended_well() -> None:
    async with pods(speaking(b"\1done", status=SUCCESS)) as api:
        assert await api.run(KEY, ["true"], stdin=b"x" * 100_000) == ExecResult(0, b"done")


async def test_old_server_cannot_close_input() -> None:
    async with pods(speaking(status=SUCCESS, protocol=V4)) as api:
        assert (await api.run(KEY, ["true"])).exit_code == 0
        with pytest.raises(KubeError, match=r"that takes v5\.channel\.k8s\.io, the server speaks v4"):
            await api.run(KEY, ["cat"], stdin=b"")


async def test_resize_is_told_in_its_channel() -> None:
    got: list[bytes] = []

    async def note(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse(protocols=(V5,))
        await server.prepare(request)
        got.append(await server.receive_bytes())
        await server.close()
        return server

    async with pods(note) as api, api.exec(KEY, ["sh"], tty=True) as session:
        await session.resize(80, 24)
        with pytest.raises(StreamBroken):
            await drained(session)
    assert got == [b'\4{"Width":80,"Height":24}']


async def test_command_that_could_not_run_is_an_error_of_the_server() -> None:
    causes = [{"message": "no such file"}]
    status = {"status": "Failure", "code": 500, "message": "no such file", "details": {"causes": causes}}
    async with pods(speaking(status=status)) as api:
        with pytest.raises(ServerError, match="no such file"):
            await api.run(KEY, ["nonsense"])
        with pytest.raises(ServerError, match="no such file"):
            await api.run(KEY, ["nonsense"], stdin=b"")


@pytest.mark.parametrize("frames", [(), (b"\1out",), (b"\3",), (b"\3garbage",)])
async def test_connection_that_ends_without_a_status_is_broken(frames: tuple[bytes, ...]) -> None:
    async with pods(speaking(*frames)) as api:
        with pytest.raises(StreamBroken, match="exec"):
            await api.run(KEY, ["true"])


async def test_empty_command_is_refused() -> None:
    async with pods(speaking()) as api:
        with pytest.raises(InputError, match="the command is empty"):
            await api.run(KEY, [])


async def drained(session: ExecSession) -> None:
    async for _ in session:
        pass


# Ports


def forwarding(*frames: bytes) -> Handler:
    async def talk(request: web.Request) -> web.WebSocketResponse:
        assert request.query_string == "ports=80"
        server = web.WebSocketResponse(protocols=(V4,))
        await server.prepare(request)
        for frame in frames:
            await server.send_bytes(frame)
        async for message in server:
            await server.send_bytes(message.data)
        return server

    return talk


PORT = (80).to_bytes(2, "little")


async def test_bytes_are_forwarded_both_ways_without_the_port_numbers() -> None:
    server = forwarding(b"\0" + PORT, b"\1" + PORT, b"\0hello")
    async with pods(server) as api, api.port_forward(KEY, 80) as stream:
        assert await stream.read() == b"hello"
        await stream.write(b"echo")
        assert await stream.read() == b"echo"
        await stream.close()
        await stream.close()
        assert await stream.read() == b""


async def test_port_number_may_come_in_any_pieces() -> None:
    server = forwarding(b"\0" + PORT[:1], b"\0" + PORT[1:] + b"he", b"\0llo")
    async with pods(server) as api, api.port_forward(KEY, 80) as stream:
        assert await stream.read() + await stream.read() == b"hello"


async def test_forwarding_that_fails_says_why_when_read() -> None:
    server = forwarding(b"\0" + PORT, b"\1" + PORT, b"\1connection refused\n")
    async with pods(server) as api, api.port_forward(KEY, 80) as stream:
        with pytest.raises(StreamBroken, match="port 80: connection refused"):
            await stream.read()


# Binding and eviction


async def test_binding_and_eviction_say_which_pod() -> None:
    got: list[tuple[str, object]] = []

    async def note(request: web.Request) -> web.Response:
        got.append((request.raw_path, await request.json()))
        return web.json_response(SUCCESS, status=201)

    async with pods(note, WriteOptions("me", dry_run=True)) as api:
        await api.bind(KEY, "node-1", uid="u")
        await api.evict(KEY, grace=timedelta(seconds=5), uid="u")
    path = "/api/v1/namespaces/team/pods/one"
    metadata = {"name": "one", "namespace": "team"}
    assert got == [
        (
            f"{path}/binding?fieldManager=me&dryRun=All",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {**metadata, "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            },
        ),
        (
            f"{path}/eviction?fieldManager=me&dryRun=All",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": metadata,
                "deleteOptions": {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                    "gracePeriodSeconds": 5,
                    "dryRun": ["All"],
                },
            },
        ),
    ]


async def test_eviction_against_a_budget_is_raised_at_once() -> None:
    tries = 0

    async def refuse(request: web.Request) -> web.Response:
        nonlocal tries
        tries += 1
        details = {"causes": [{"reason": "DisruptionBudget", "message": "needs 1"}], "retryAfterSeconds": 10}
        status = {"code": 429, "reason": "TooManyRequests", "message": "budget", "details": details}
        return web.json_response(status, status=429, headers={"Retry-After": "10"})

    async with pods(refuse) as api:
        with pytest.raises(TooManyRequests, match="budget") as caught:
            await api.evict(KEY)
    assert tries == 1
    assert caught.value.retry_after == timedelta(seconds=10)
