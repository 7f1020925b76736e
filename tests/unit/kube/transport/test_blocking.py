"""The transport without an event loop."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import trustme

from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.config.tls import TLS, Pem
from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.blocking import BlockingTransport, run_without_loop, supports

Talk = Callable[[socket.socket], None]


@contextmanager
def speaking(*talks: Talk, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server with one handler for each connection, in order."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for talk in talks:
                connection, _ = listening.accept()
                try:
                    with tls.wrap_socket(connection, server_side=True) if tls else connection as wire:
                        talk(wire)
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        scheme = "https" if tls else "http"
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def heard(wire: socket.socket) -> bytes:
    """One request without a body."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = wire.recv(65536)
        if not part:
            return got
        got += part
    return got


def says(*answers: bytes) -> Talk:
    def talk(wire: socket.socket) -> None:
        for answer in answers:
            heard(wire)
            wire.sendall(answer)

    return talk


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def got(server: str, *paths: str, told: list[str] | None = None, patience: float = 60.0) -> list[Response]:
    connection = Connection(server=server, credentials=StaticToken("secret", "test"))
    warn = told.append if told is not None else lambda text: None
    with BlockingTransport(connection, warn=warn, patience=timedelta(seconds=patience)) as transport:

        async def all_of_them() -> list[Response]:
            return [await transport.send(Request("GET", path, (("a", "b;c"),))) for path in paths]

        return run_without_loop(all_of_them())


def test_one_connection_carries_several_requests() -> None:
    with speaking(says(ok(b"1"), ok(b"2"))) as server:
        assert [answer.body for answer in got(server, "/a", "/b")] == [b"1", b"2"]


def test_a_request_says_who_asks_and_escapes_what_it_asks_for() -> None:
    requests: list[bytes] = []

    def talk(wire: socket.socket) -> None:
        requests.append(heard(wire))
        wire.sendall(ok(b""))

    with speaking(talk) as server:
        got(f"{server}/base", "/api")
    first, *rest = requests[0].decode().split("\r\n")
    assert first == "GET /base/api?a=b%3Bc HTTP/1.1"
    assert "Authorization: Bearer secret" in rest
    assert "Accept: application/json" in rest


def test_a_body_in_chunks_is_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    with speaking(says(chunked, ok(b"next"))) as server:
        assert [answer.body for answer in got(server, "/a", "/b")] == [b"abcde", b"next"]


def test_a_body_may_end_with_the_connection() -> None:
    with speaking(says(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")) as server:
        assert got(server, "/a")[0].body == b"all of it"


def test_after_trailers_the_connection_carries_the_next_response() -> None:
    text = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ; a = "b;"\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n'
    with speaking(says(text, ok(b"next"))) as server:
        assert [answer.body for answer in got(server, "/a", "/b")] == [b"hi", b"next"]


def test_an_interim_response_is_not_the_answer() -> None:
    with speaking(says(b"HTTP/1.1 103 Early Hints\r\n\r\n" + ok(b"all"), ok(b"next"))) as server:
        assert [(each.status, each.body) for each in got(server, "/a", "/b")] == [
            (200, b"all"),
            (200, b"next"),
        ]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_body_without_a_length_ends_with_the_connection(version: str) -> None:
    with speaking(says(f"{version} 400 Bad Request\r\n\r\nspeak TLS".encode())) as server:
        assert got(server, "/a")[0].body == b"speak TLS"


def test_repeated_headers_are_all_there() -> None:
    with speaking(says(ok(b"", "X: 1", "X: 2"))) as server:
        assert got(server, "/a")[0].headers["x"] == "1, 2"


def test_a_kept_connection_that_was_closed_is_made_again() -> None:
    with speaking(says(ok(b"1")), says(ok(b"2"))) as server:
        assert [answer.body for answer in got(server, "/a", "/b")] == [b"1", b"2"]


def names(*numbers: int) -> list[Request]:
    return [Request("GET", f"/{number}") for number in numbers]


def both(wire: socket.socket, number: int = 2) -> bytes:
    """Reads this many requests before it responds."""
    got = b""
    while got.count(b"\r\n\r\n") < number:
        got += wire.recv(65536)
    return got


def test_several_asked_ahead_are_sent_at_once_and_answered_in_order() -> None:
    asked: list[bytes] = []

    def talk(wire: socket.socket) -> None:
        asked.extend(line for line in both(wire, 3).split(b"\r\n") if line.startswith(b"GET"))
        wire.sendall(b"".join(ok(str(number).encode()) for number in (1, 2, 3)))

    with speaking(talk) as url, BlockingTransport(Connection(server=url)) as transport:
        run_without_loop(transport.pipeline(names(1, 2, 3)))
        # In any order.
        assert [run_without_loop(transport.send(one)).body for one in names(3, 1, 2)] == [b"3", b"1", b"2"]
    assert asked == [b"GET /1 HTTP/1.1", b"GET /2 HTTP/1.1", b"GET /3 HTTP/1.1"]


def test_an_answer_that_was_asked_for_ahead_is_given_once() -> None:
    with (
        speaking(says(ok(b"old"), ok(b"new"))) as url,
        BlockingTransport(Connection(server=url)) as transport,
    ):
        (one,) = names(1)
        run_without_loop(transport.pipeline([one]))
        assert [run_without_loop(transport.send(one)).body for _ in range(2)] == [b"old", b"new"]


@pytest.mark.parametrize("rest", [b"", b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", b"garbage\r\n\r\n"])
def test_what_was_not_answered_well_ahead_is_asked_again(rest: bytes) -> None:
    def talk(wire: socket.socket) -> None:
        both(wire)
        wire.sendall(ok(b"1") + rest)
        if rest.startswith(b"HTTP"):
            heard(wire)
            wire.sendall(ok(b"2"))

    again = () if rest.startswith(b"HTTP") else (says(ok(b"2")),)
    with speaking(talk, *again) as url, BlockingTransport(Connection(server=url)) as transport:
        run_without_loop(transport.pipeline(names(1, 2)))
        assert [run_without_loop(transport.send(one)).body for one in names(1, 2)] == [b"1", b"2"]


def test_a_server_that_closes_after_each_answer_is_asked_one_by_one() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"
    with (
        speaking(says(closing + b"1"), says(closing + b"2")) as url,
        BlockingTransport(Connection(server=url)) as transport,
    ):
        run_without_loop(transport.pipeline(names(1, 2)))
        assert [run_without_loop(transport.send(one)).body for one in names(1, 2)] == [b"1", b"2"]


def test_warnings_are_handed_on() -> None:
    told: list[str] = []
    with speaking(says(ok(b"", 'Warning: 299 - "be careful"'))) as server:
        got(server, "/a", told=told)
    assert told == ["be careful"]


def test_a_server_that_hangs_up_or_is_not_there_is_unreachable() -> None:
    with speaking(lambda wire: None) as server, pytest.raises(Unreachable, match=r"closed|reset"):
        got(server, "/a")
    with pytest.raises(Unreachable, match="Connection refused"):
        got("http://127.0.0.1:1", "/a")


def test_a_server_that_is_silent_is_unreachable_after_a_while() -> None:
    done = threading.Event()

    def silent(wire: socket.socket) -> None:
        done.wait(10)

    with speaking(silent) as server:
        try:
            with pytest.raises(Unreachable, match="no answer in time"):
                got(server, "/a", patience=0.05)
        finally:
            done.set()


@pytest.mark.parametrize(
    "garbage", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_not_http_is_an_error_of_ours(garbage: bytes) -> None:
    with speaking(says(garbage)) as server, pytest.raises((Unreachable, StreamBroken)):
        got(server, "/a")


def test_a_certificate_that_is_not_vouched_for_is_told_with_the_remedy() -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.issue_cert("127.0.0.1").configure_cert(context)
    trusted = TLS(ca=Pem("f: certificate-authority-data", data=ours.cert_pem.bytes()))
    with speaking(says(ok(b"")), tls=context) as server:
        connection = Connection(server=server, tls=trusted)
        with (
            BlockingTransport(connection) as transport,
            pytest.raises(Unreachable, match="does not vouch for"),
        ):
            run_without_loop(transport.send(Request("GET", "/")))


def test_a_server_is_trusted_by_the_authority_of_the_kubeconfig() -> None:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    trusted = TLS(ca=Pem("f", data=ca.cert_pem.bytes()))
    with (
        speaking(says(ok(b"hello")), tls=context) as server,
        BlockingTransport(Connection(server=server, tls=trusted)) as transport,
    ):
        assert run_without_loop(transport.send(Request("GET", "/"))).body == b"hello"


def test_proxies_need_the_other_transport() -> None:
    assert supports(Connection(server="https://x"))
    assert not supports(Connection(server="https://x", proxy="http://p:1"))


def test_a_coroutine_that_waits_for_something_else_is_refused() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for something else"):
        run_without_loop(waits())
