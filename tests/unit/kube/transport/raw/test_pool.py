"""The raw pool: responses are complete however they are cut, and none is taken for that of another request."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.kube.config.connection import Connection, Impersonation
from gangline.kube.config.credentials import StaticToken
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.raw.pool import (
    BASELINE_RESET_SECONDS,
    MAX_CONNECTION_WAIT,
    MAX_SERVER_QUEUE,
    MIN_CONCURRENCY,
    ConcurrencyEstimate,
    raw_pool,
)
from gangline.testing.clock import settle
from support.servers.raw_http import (
    FALLBACK_TRANSPORT,
    ByteHandler,
    RenewableCredentials,
    raw_pool_to,
    read_request,
    responder,
)
from support.servers.scripted import ScriptedTransport, json_response

POST = Request("POST", "/api/v1/things", (("a b", "c;d"),), b'{"x":1}', "application/json")


async def ask(talk: ByteHandler, request: Request = POST, timeout: timedelta | None = None) -> Response:
    async with raw_pool_to(talk) as quick:
        return await quick.send(request, timeout=timeout)


async def test_a_request_is_sent_as_the_other_transport_would() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\n{}")
        await writer.drain()

    me: dict[str, Any] = {
        "credentials": StaticToken("secret", "test"),
        "impersonate": Impersonation(user="jane"),
    }
    async with raw_pool_to(talk, base="/base", **me) as quick:
        response = await quick.send(POST)
    ((line, headers, body),) = seen
    assert line == "POST /base/api/v1/things?a%20b=c%3Bd HTTP/1.1"
    assert body == b'{"x":1}'
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Impersonate-User"] == "jane"
    assert headers["Content-Type"] == headers["Accept"] == "application/json"
    assert (response.status, response.body, response.headers["retry-after"]) == (201, b"{}", "3")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\n\r", b"\nhe", b"llo"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r",
            b"\nhe\r\n3\r\nl",
            b"lo\r\n0\r\n",
            b"\r\n",
        ],
    ],
    ids=["whole", "in pieces", "chunks", "chunks in pieces"],
)
async def test_an_answer_is_read_however_it_comes(pieces: list[bytes]) -> None:
    assert (await ask(responder(*pieces))).body == b"hello"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"x" * 100_000,
    ],
    ids=["closed", "cut off", "another protocol", "no length", "bad chunk", "negative chunk", "no end"],
)
async def test_no_whole_answer_is_no_answer(text: bytes) -> None:
    with pytest.raises(Unreachable, match=r"^POST /api/v1/things: "):
        await ask(responder(text, closes=True))


async def test_silence_is_told_after_the_time_limit() -> None:
    with pytest.raises(Unreachable, match="no answer in time"):
        await ask(responder(b""), timeout=timedelta(milliseconds=20))


async def test_nobody_there_is_told() -> None:
    async with raw_pool(FALLBACK_TRANSPORT, Connection(server="http://127.0.0.1:1"), agent="test") as transport:
        with pytest.raises(Unreachable, match="POST /api/v1/things"):
            await transport.send(POST)


class Counting:
    """A server that returns the number of the connection of a request."""

    def __init__(self, close: str = "") -> None:
        self.connections = 0
        self._head = f"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{close}\r\n"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        mine = self.connections
        while True:
            _, _, body = await read_request(reader)
            if body == b"hang":
                await asyncio.sleep(1.0)
            writer.write(f"{self._head}{mine}".encode())
            await writer.drain()


async def test_a_connection_is_used_again_unless_the_server_says_it_closes() -> None:
    for close, expected in (("", [b"1", b"1"]), ("Connection: close\r\n", [b"1", b"2"])):
        counting = Counting(close)
        async with raw_pool_to(counting.talk) as quick:
            assert [(await quick.send(POST)).body for _ in range(2)] == expected


async def test_after_a_cancelled_request_its_answer_is_not_given_to_another() -> None:
    counting = Counting()
    async with raw_pool_to(counting.talk) as quick:
        with pytest.raises(Unreachable, match="no answer in time"):
            # Long enough to be connected.
            await quick.send(msgspec.structs.replace(POST, body=b"hang"), timeout=timedelta(seconds=0.9))
        assert (await quick.send(POST)).body == b"2"


async def test_as_many_connections_as_requests_at_once() -> None:
    counting = Counting()
    async with raw_pool_to(counting.talk) as quick:
        slow = msgspec.structs.replace(POST, body=b"hang")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(quick.send(slow)) for _ in range(3)]
        assert sorted(task.result().body for task in tasks) == [b"1", b"2", b"3"]
        assert (await quick.send(POST)).body in (b"1", b"2", b"3")


class Busy:
    """A server that answers requests one by one, whatever the number of connections, and some never."""

    def __init__(self) -> None:
        self.connections = 0
        self.hung = asyncio.Semaphore(0)
        self._turn = asyncio.Lock()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            _, _, body = await read_request(reader)
            if body == b"hang":
                self.hung.release()
                await reader.read()
                return
            async with self._turn:
                await asyncio.sleep(0.006)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()


async def crowded(busy: Busy) -> bool:
    """Many at once, eight times each: whether the machine stood still meanwhile.

    A server whose first answers take long seems to be far away, and who waits for too long makes a connection anyway.
    """
    took: list[float] = []
    async with raw_pool_to(busy.talk) as quick:

        async def work() -> None:
            for _ in range(8):
                began = asyncio.get_running_loop().time()
                await quick.send(POST)
                took.append(asyncio.get_running_loop().time() - began)

        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(work())
        assert quick.idle_count == busy.connections
    return min(took[:4]) > 0.02 or max(took) > MAX_CONNECTION_WAIT


async def test_a_busy_server_gets_no_more_connections_than_help() -> None:
    busy = Busy()
    async with asyncio.timeout(60):
        while await crowded(busy):
            busy = Busy()
    assert 4 <= busy.connections < 32


async def test_requests_that_hang_keep_no_others_from_their_turn() -> None:
    busy = Busy()
    async with raw_pool_to(busy.talk) as quick, asyncio.TaskGroup() as group:
        hang = msgspec.structs.replace(POST, body=b"hang")
        hanging = [group.create_task(quick.send(hang)) for _ in range(20)]
        for _ in hanging:
            await busy.hung.acquire()
        # No response has arrived yet.
        assert [(await quick.send(POST)).status for _ in range(3)] == [200] * 3
        for task in hanging:
            task.cancel()


async def test_who_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    busy = Busy()
    async with raw_pool_to(busy.talk) as quick, asyncio.TaskGroup() as group:
        first = [group.create_task(quick.send(POST)) for _ in range(8)]
        later = [group.create_task(quick.send(POST)) for _ in range(16)]
        await settle()
        for task in (*first, *later[::2]):
            task.cancel()
        assert [(await task).status for task in later[1::2]] == [200] * 8


async def test_a_server_that_closed_a_kept_connection_is_connected_to_anew() -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with raw_pool_to(once) as quick:
        await quick.send(POST)
        async with asyncio.timeout(60):
            while True:
                if not quick.idle_count:
                    break
                await asyncio.sleep(0.001)
        await quick.send(POST)
    assert connections == 2


async def test_a_401_that_can_be_healed_is_left_to_the_other_transport() -> None:
    other = ScriptedTransport(lambda request: json_response({"from": "the other"}))
    refusing = responder(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    credentials = RenewableCredentials()
    async with raw_pool_to(refusing, other, credentials=credentials) as quick:
        assert (await quick.send(POST)).body == b'{"from":"the other"}'
    assert credentials.was_renewed


async def test_reads_are_left_to_the_other_transport() -> None:
    other = ScriptedTransport(lambda request: json_response({"from": "the other"}))
    async with raw_pool(other, Connection(server="http://127.0.0.1:1"), agent="test") as quick:
        for method in ("GET", "DELETE"):
            response = await quick.send(Request(method, "/api/v1/pods"))
            assert response.body == b'{"from":"the other"}'


async def test_a_long_answer_in_chunks_is_put_together() -> None:
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    pieces = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[chunk] * 64, b"0\r\n\r\n"]
    assert (await ask(responder(*pieces))).body == b"x" * (0x4000 * 64)


async def test_after_trailers_a_connection_carries_the_next_response() -> None:
    text = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ; a = "b;"\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n'
    async with raw_pool_to(responder(text)) as quick:
        assert [(await quick.send(POST)).body for _ in range(3)] == [b"hi"] * 3
        assert quick.idle_count == 1


async def test_an_interim_response_is_not_the_answer() -> None:
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
    response = await ask(responder(text))
    assert (response.status, response.body) == (201, b"{}")


async def test_a_response_that_nobody_asked_for_is_given_to_nobody() -> None:
    connections = 0
    ok, late = (f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode() for status in ("200 OK", "408 Late"))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        # The first one together with the response, the second one later.
        writer.write(ok + late[:9] if connections == 1 else ok)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(late)
        await reader.read()

    async with raw_pool_to(talk) as quick:
        for _ in range(3):
            assert (await quick.send(POST)).status == 200
            async with asyncio.timeout(60):
                while True:
                    if not quick.idle_count:
                        break
                    await asyncio.sleep(0.001)
    assert connections == 3


async def test_behind_a_proxy_everything_is_left_to_the_other_transport() -> None:
    other = ScriptedTransport(lambda request: json_response({"from": "the other"}))
    connection = Connection(server="http://127.0.0.1:1", proxy="http://127.0.0.1:2")
    async with raw_pool(other, connection, agent="test") as quick:
        assert (await quick.send(POST)).body == b'{"from":"the other"}'


async def test_warnings_are_handed_on() -> None:
    told: list[str] = []
    text = b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nWarning: 299 - "old"\r\nWarning: 299 - "older"\r\n\r\n'
    async with raw_pool_to(responder(text), warn=told.append) as quick:
        await quick.send(POST)
    assert told == ["old", "older"]


async def test_connections_are_made_before_they_are_needed() -> None:
    counting = Counting()
    async with raw_pool_to(counting.talk) as quick:
        await quick.prewarm(5)
        assert (quick.idle_count, counting.connections) == (5, 5)
        await quick.prewarm(3)
        assert quick.idle_count == 5
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(quick.send(POST))
        assert counting.connections == 5


async def test_a_connection_made_ahead_goes_to_whoever_waits_for_one() -> None:
    busy = Busy()
    hang = msgspec.structs.replace(POST, body=b"hang")
    async with raw_pool_to(busy.talk) as quick, asyncio.TaskGroup() as group:
        tasks = [group.create_task(quick.send(hang)) for _ in range(6)]
        for _ in range(4):
            await busy.hung.acquire()
        # Two requests wait here, and would open a connection each after a longer wait.
        await quick.prewarm(6)
        for _ in range(2):
            await busy.hung.acquire()
        assert busy.connections == 6
        for task in tasks:
            task.cancel()


async def test_preparing_for_a_server_that_is_not_there_says_nothing() -> None:
    async with raw_pool(FALLBACK_TRANSPORT, Connection(server="http://127.0.0.1:1"), agent="test") as quick:
        await quick.prewarm(10)
        assert quick.idle_count == 0


# The number of concurrent requests: as many as help, whatever limits the server.


def most(crowd: ConcurrencyEstimate, wanted: int = 32) -> int:
    """The number of requests in flight if `wanted` are waiting."""
    return next(number for number in range(wanted + 1) if number == wanted or crowd.is_saturated(number))


def served(cores: int, seconds: float, distance: float = 0.0, wanted: int = 32) -> int:
    """The final number of requests in flight at a server with limited concurrency and response time."""
    crowd, now, under_way = ConcurrencyEstimate(), 0.0, 1
    for _ in range(500):
        took = distance + seconds * max(1, under_way / cores)
        now += took / under_way
        crowd.observe(took, now)
        under_way = min(under_way + 1, most(crowd, wanted))
    return under_way


def test_an_unknown_server_gets_a_few() -> None:
    assert most(ConcurrencyEstimate()) == MIN_CONCURRENCY


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_a_server_gets_what_it_answers_at_once_and_a_short_queue(cores: int) -> None:
    assert cores + MAX_SERVER_QUEUE / 2 <= served(cores, 0.002) <= cores + 2 * MAX_SERVER_QUEUE


@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_a_server_that_is_never_busy_gets_all(seconds: float) -> None:
    assert served(64, seconds) == 32


def test_a_server_far_away_gets_all() -> None:
    assert served(2, 0.001, distance=0.2) == 32


def test_there_are_always_some_under_way() -> None:
    crowd = ConcurrencyEstimate()
    crowd.observe(0.001, 0.0)
    for number in range(1000):
        crowd.observe(60.0, float(number % 20))
    assert most(crowd) >= MIN_CONCURRENCY


def test_one_quick_answer_is_forgotten_in_time() -> None:
    crowd = ConcurrencyEstimate()
    crowd.observe(0.001, 0.0)
    for number in range(100):
        crowd.observe(0.1, number * 0.1)
    assert most(crowd) < 2 * MAX_SERVER_QUEUE
    crowd.observe(0.1, BASELINE_RESET_SECONDS + 1)
    assert most(crowd) == 32
