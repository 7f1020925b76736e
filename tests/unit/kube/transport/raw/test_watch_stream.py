"""A watch on its own connection: complete however it is cut, ended by the server, broken by silence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest

from gangline.kube.config.connection import Connection
from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.kube.transport.raw.pool import raw_pool
from gangline.kube.transport.raw.tls_socket import MAX_READ_BYTES, connect_socket
from gangline.kube.transport.raw.watch_stream import MAX_BUFFERED_BYTES, WatchStream
from support.servers.http import byte_server
from support.servers.raw_http import (
    FALLBACK_TRANSPORT,
    ByteHandler,
    RenewableCredentials,
    raw_pool_to,
    responder,
)

WATCH = Request("GET", "/api/v1/pods", (("watch", "true"), ("resourceVersion", "5")))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = [b'{"type":"ADDED"}\n', b'{"type":"MODIFIED"}\n', b"x" * 70_000 + b"\n"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


BODY = b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"


async def followed(talk: ByteHandler, idle: timedelta | None = None) -> tuple[Response, bytes]:
    """The body of a watch until the server ends it."""
    async with raw_pool_to(talk) as quick, quick.stream(WATCH, idle=idle) as stream:
        return stream.response, b"".join([piece async for piece in stream.chunks()])


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD + BODY],
        [HEAD, BODY],
        [HEAD[:10], HEAD[10:-1], HEAD[-1:] + BODY[:1], BODY[1:3], BODY[3:-3], BODY[-3:]],
        [HEAD, *(BODY[begin : begin + 5] for begin in range(0, 500, 5)), BODY[500:]],
        [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(b"".join(EVENTS)), b"".join(EVENTS)],
    ],
    ids=["at once", "head and body", "torn", "in crumbs", "counted"],
)
async def test_all_of_it_comes_however_it_is_cut(pieces: list[bytes]) -> None:
    response, body = await followed(responder(*pieces))
    assert (response.status, body) == (200, b"".join(EVENTS))


async def test_without_a_length_the_body_ends_with_the_connection() -> None:
    response, body = await followed(responder(b"HTTP/1.0 200 OK\r\n\r\nso ", b"much", closes=True))
    assert (response.headers, body) == ({}, b"so much")


async def test_an_event_is_given_as_soon_as_it_is_there() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"one\n"))
        await heard.wait()
        writer.write(chunk(b"two\n"))
        await reader.read()

    async with raw_pool_to(talk) as quick, quick.stream(WATCH) as stream:
        chunks = stream.chunks()
        assert await anext(chunks) == b"one\n"
        heard.set()
        assert await anext(chunks) == b"two\n"


async def test_what_is_asked_is_what_the_other_transport_would_ask() -> None:
    asked: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.extend((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n"))
        writer.write(HEAD + b"0\r\n\r\n")

    await followed(talk)
    assert asked[0] == "GET /api/v1/pods?watch=true&resourceVersion=5 HTTP/1.1"
    assert "Accept: application/json" in asked


async def test_an_error_is_given_whole() -> None:
    text = b'{"kind":"Status","code":410}'
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n" % len(text)
    async with raw_pool_to(responder(gone, text[:5], text[5:])) as quick, quick.stream(WATCH) as stream:
        assert (stream.response.status, stream.response.body) == (410, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + chunk(b"one\n") + b"5\r\nab", "cut off: the server closed the connection"),
        (HEAD + b"no number\r\n", "an answer that cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "cut off"),
    ],
)
async def test_a_body_without_its_end_is_broken(text: bytes, told: str) -> None:
    with pytest.raises(StreamBroken, match=f"GET /api/v1/pods: {told}"):
        await followed(responder(text, closes=True))


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 200", b"SSH-2.0 hello\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Le"])
async def test_without_a_head_there_is_no_answer(text: bytes) -> None:
    with pytest.raises(Unreachable, match="GET /api/v1/pods"):
        await followed(responder(text, closes=True))


async def test_nobody_there_is_told() -> None:
    async with raw_pool(FALLBACK_TRANSPORT, Connection(server="http://127.0.0.1:1"), agent="test") as quick:
        with pytest.raises(Unreachable, match="GET /api/v1/pods"):
            async with quick.stream(WATCH):
                pass


@asynccontextmanager
async def flowing(talk: ByteHandler, idle: timedelta | None = None) -> AsyncIterator[WatchStream]:
    """A watch after the head of its response. The transport handles silence before that."""
    async with byte_server(talk) as url:
        flow = WatchStream(await connect_socket("127.0.0.1", int(url.rpartition(":")[2])), "GET /", idle)
        await flow.send(b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        try:
            yield flow
        finally:
            flow.close()


async def test_silence_that_is_too_long_breaks_it() -> None:
    async with flowing(responder(HEAD + chunk(b"one\n")), timedelta(seconds=0.05)) as flow:
        assert await anext(flow.chunks()) == b"one\n"
        with pytest.raises(StreamBroken, match="nothing arrived for a while"):
            await anext(flow.chunks())


async def test_silence_instead_of_an_answer_is_no_answer() -> None:
    with pytest.raises(Unreachable, match="no answer in time"):
        await followed(responder(b""), idle=timedelta(seconds=0.05))


async def test_a_reader_that_is_slow_is_not_taken_for_silence_of_the_server() -> None:
    cut = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"y" * 2 * MAX_BUFFERED_BYTES))
        await reader.read()
        cut.set()

    async with flowing(talk, timedelta(seconds=0.05)) as flow:
        await asyncio.sleep(0.3)
        assert not cut.is_set()
        size = 0
        while size < 2 * MAX_BUFFERED_BYTES:
            size += len(await anext(flow.chunks()))
        assert size == 2 * MAX_BUFFERED_BYTES


async def test_who_reads_slowly_makes_the_server_wait() -> None:
    piece, count = chunk(b"y" * 100_000), 200

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for _ in range(count):
            writer.write(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with flowing(talk) as flow:
        size, most = 0, 0
        async for data in flow.chunks():
            size, most = size + len(data), max(most, len(data))
            # Other tasks run, and more data may arrive.
            await asyncio.sleep(0.001)
    assert size == 100_000 * count
    assert most <= MAX_BUFFERED_BYTES + 100_000 + MAX_READ_BYTES


async def test_who_leaves_early_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"one\n"))
        await reader.read()
        gone.set()

    async with raw_pool_to(talk) as quick:
        async with quick.stream(WATCH) as stream:
            await anext(stream.chunks())
        await asyncio.wait_for(gone.wait(), 60)


class Other:
    """A transport that answers every stream at once and records the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        self.asked.append(request.path)
        yield self

    @property
    def response(self) -> Response:
        return Response(202)

    def chunks(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


async def test_a_401_that_can_be_healed_is_left_to_the_other_transport() -> None:
    credentials, other = RenewableCredentials(), Other()
    refusing = responder(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    async with raw_pool_to(refusing, other, credentials=credentials) as quick, quick.stream(WATCH) as stream:
        assert stream.response.status == 202
    assert (credentials.was_renewed, other.asked) == (True, ["/api/v1/pods"])


async def test_what_is_no_watch_is_left_to_the_other_transport() -> None:
    other = Other()
    async with raw_pool_to(responder(), other) as quick, quick.stream(Request("GET", "/logs")) as stream:
        assert stream.response.status == 202
    assert other.asked == ["/logs"]


async def test_warnings_are_handed_on() -> None:
    told: list[str] = []
    warned = HEAD.replace(b"Content-Type", b'Warning: 299 - "old"\r\nContent-Type')
    async with raw_pool_to(responder(warned, b"0\r\n\r\n"), warn=told.append) as quick, quick.stream(WATCH):
        pass
    assert told == ["old"]
