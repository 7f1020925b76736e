"""The aiohttp transport with small real servers."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from gangline.kube.config.connection import Connection, Impersonation
from gangline.kube.config.credentials import Anonymous, TokenFile
from gangline.kube.config.tls import TLS, ClientCertificate, Pem
from gangline.kube.errors import ConfigError, Forbidden, StreamBroken, Unauthorized, Unreachable
from gangline.kube.transport.api import LineReader, Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.warnings import DeduplicatedWarnings, warning_texts
from gangline.testing.clock import FakeClock
from support.servers.http import Handler, byte_server, http_server

GET = Request("GET", "/here")


@asynccontextmanager
async def asking(handler: Handler, **connection: object) -> AsyncIterator[HttpTransport]:
    async with http_server(handler) as url, HttpTransport(Connection(server=url, **connection)) as transport:  # type: ignore[arg-type]
        yield transport


async def echo(request: web.Request) -> web.Response:
    said = {"path": request.raw_path, "method": request.method, "headers": list(request.headers.items())}
    return web.json_response({**said, "body": (await request.read()).decode()})


def body_of(response: Response) -> dict[str, object]:
    found: dict[str, object] = json.loads(response.body)
    return found


# Requests


async def test_path_and_query_arrive_as_they_were_meant() -> None:
    query = (("command", "sh"), ("command", "a; b & c=d+e"), ("labelSelector", "x in (y)"))
    async with asking(echo) as transport:
        said = body_of(await transport.send(Request("GET", "/api/system%3Anode%2F..", query)))
    assert said["path"] == (
        "/api/system%3Anode%2F..?command=sh&command=a%3B%20b%20%26%20c%3Dd%2Be&labelSelector=x%20in%20%28y%29"
    )


async def test_server_below_a_base_path_is_asked_there() -> None:
    async with (
        http_server(echo) as url,
        HttpTransport(Connection(server=f"{url}/k8s/clusters/one")) as transport,
    ):
        assert body_of(await transport.send(GET))["path"] == "/k8s/clusters/one/here"


async def test_headers_say_who_asks_what_for_and_as_whom() -> None:
    somebody = Impersonation("jane", ("dev", "ops"), extra={"scopes": ("view",)})
    async with asking(echo, impersonate=somebody) as transport:
        request = Request("POST", "/here", body=b"{}", content_type="application/json")
        said = body_of(await transport.send(request))
    assert said["body"] == "{}"
    pairs = [tuple(pair) for pair in said["headers"]]  # type: ignore[attr-defined]
    headers = dict(pairs)
    assert headers["Content-Type"] == "application/json"
    assert headers["Accept"] == "application/json"
    assert headers["User-Agent"].startswith("gangline/")
    assert "Accept-Encoding" not in headers or headers["Accept-Encoding"] == "identity"
    assert ("Impersonate-Group", "dev") in pairs
    assert ("Impersonate-Group", "ops") in pairs
    assert headers["Impersonate-Extra-scopes"] == "view"


async def test_redirect_is_not_followed() -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("/elsewhere")

    async with asking(away) as transport:
        answer = await transport.send(GET)
    assert (answer.status, answer.headers["location"]) == (302, "/elsewhere")


async def test_transport_outside_of_its_block_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await HttpTransport(Connection(server="http://127.0.0.1:1")).send(GET)


async def test_more_requests_at_once_than_any_pool_would_hold() -> None:
    waiting, everybody = 0, asyncio.Event()

    async def together(request: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 150:
            everybody.set()
        await everybody.wait()
        return web.Response()

    async with asking(together) as transport, asyncio.TaskGroup() as group:
        for _ in range(150):
            group.create_task(transport.send(GET))


# No response


async def test_nobody_listening_is_unreachable() -> None:
    async with HttpTransport(Connection(server="http://127.0.0.1:1")) as transport:
        with pytest.raises(Unreachable, match="GET /here"):
            await transport.send(GET)


async def test_answer_that_takes_too_long_is_unreachable() -> None:
    async def forever(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with asking(forever) as transport:
        with pytest.raises(Unreachable, match="no answer in time"):
            await transport.send(GET, timeout=timedelta(milliseconds=50))


async def test_answer_cut_off_in_the_middle_is_unreachable() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with byte_server(half) as url, HttpTransport(Connection(server=url)) as transport:
        with pytest.raises(Unreachable):
            await transport.send(GET)


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)])
async def test_request_on_a_connection_closed_meanwhile_is_sent_again_only_if_harmless(method: str, sent: int) -> None:
    arrived: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the first request, reads the second one and closes; later connections work."""
        line = await reader.readuntil(b"\r\n\r\n")
        while True:
            if b"/first" not in line:
                arrived.append(line)
            if b"/first" not in line and len(arrived) == 1:
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            line = await reader.readuntil(b"\r\n\r\n")

    async with byte_server(once) as url, HttpTransport(Connection(server=url)) as transport:
        await transport.send(Request("GET", "/first"))
        with contextlib.suppress(Unreachable):
            await transport.send(Request(method, "/here"))
    assert len(arrived) == sent


async def test_callers_own_error_while_reading_a_stream_stays_what_it_is() -> None:
    async with asking(echo) as transport:
        with pytest.raises(FileNotFoundError):
            async with transport.stream(GET):
                raise FileNotFoundError("the caller's")


# Streams


async def test_stream_gives_pieces_as_they_come_and_tells_when_it_is_cut_off() -> None:
    go_on = asyncio.Event()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await go_on.wait()

    async with (
        byte_server(cut) as url,
        HttpTransport(Connection(server=url)) as transport,
        transport.stream(GET) as stream,
    ):
        chunks = stream.chunks()
        assert await anext(chunks) == b"one\n"
        go_on.set()
        with pytest.raises(StreamBroken, match="GET /here: cut off"):
            await anext(chunks)


async def test_silent_stream_is_broken_after_its_limit() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await asyncio.Event().wait()
        return answer

    limit = timedelta(seconds=2)  # the rest must arrive within that time, too
    async with asking(silent) as transport, transport.stream(GET, idle=limit) as stream:
        chunks = stream.chunks()
        assert await anext(chunks) == b"one\n"
        with pytest.raises(StreamBroken, match="nothing arrived"):
            await anext(chunks)


async def test_refused_stream_has_its_status_and_body() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"code": 410}, status=410)

    async with asking(refuse) as transport, transport.stream(GET) as stream:
        assert (stream.response.status, stream.response.body) == (410, b'{"code": 410}')


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ((b"a\nb\n",), [b"a", b"b"]),
        ((b"a", b"b\nc", b"d"), [b"ab", b"cd"]),
        ((b"a\n\nb",), [b"a", b"b"]),
        ((b"a\n", b"\n", b"b\n"), [b"a", b"b"]),
        ((), []),
    ],
)
async def test_lines_are_whole_however_they_arrive(chunks: tuple[bytes, ...], found: list[bytes]) -> None:
    assert [line async for line in LineReader(pieces(*chunks))] == found


async def test_lines_keep_blanks_and_cut_what_never_ends_when_asked() -> None:
    assert [line async for line in LineReader(pieces(b"a\n\nb\n"), blank=True)] == [b"a", b"", b"b"]
    found = [line async for line in LineReader(pieces(b"1234", b"56\n7"), longest=3)]
    assert found == [b"1234", b"56", b"7"]


# Credentials


async def test_rejected_token_is_read_again_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    seen: list[str] = []

    async def guard(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        # Same length and time look unchanged; only the 401 makes it be read again.
        file.write_text("new")
        return web.Response(status=200 if seen[-1] == "Bearer new" else 401)

    async with asking(guard, credentials=TokenFile(file, "here", FakeClock())) as transport:
        assert (await transport.send(GET)).status == 200
    assert seen == ["Bearer old", "Bearer new"]


async def test_token_that_stays_wrong_is_a_401_after_two_tries(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("wrong")
    tries = 0

    async def guard(request: web.Request) -> web.Response:
        nonlocal tries
        tries += 1
        return web.Response(status=401)

    async with asking(guard, credentials=TokenFile(file, "here", FakeClock())) as transport:
        assert (await transport.send(GET)).status == 401
        assert tries == 2
        with pytest.raises(Unauthorized):
            async with transport.frames(GET, ("v5",)):
                pass
        assert tries == 4


class Renewable(Anonymous):
    """Returns the given certificates one after the other, and records a 401."""

    def __init__(self, *certificates: ClientCertificate) -> None:
        self._certificates = certificates
        self.at = 0

    async def client_certificate(self) -> ClientCertificate:  # type: ignore[override]
        return self._certificates[self.at]

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        self.at = min(self.at + 1, len(self._certificates) - 1)
        return True


class Authority:
    """A CA, a server context that requires client certificates, and the client's settings."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert("127.0.0.1", "api.example.com").configure_cert(self.server)
        self.server.verify_mode = ssl.CERT_REQUIRED
        self._ca.configure_trust(self.server)
        self.pem = Pem("ca", data=self._ca.cert_pem.bytes())

    def client(self, name: str) -> ClientCertificate:
        made = self._ca.issue_cert(common_name=name, organization_name="people")
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        return ClientCertificate(Pem("cert", data=chain), Pem("key", data=made.private_key_pem.bytes()))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def who(request: web.Request) -> web.Response:
    assert request.transport is not None
    subject = request.transport.get_extra_info("peercert")["subject"]
    return web.Response(text=dict(pair for (pair,) in subject)["commonName"])


async def test_client_certificate_is_shown_and_a_renewed_one_too(authority: Authority) -> None:
    renewable = Renewable(authority.client("first"), authority.client("second"))
    hold = asyncio.Event()

    async def slow_or_quick(request: web.Request) -> web.StreamResponse:
        if request.path != "/slow":
            return await who(request)
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"begun")
        await hold.wait()
        await answer.write(b"ended")
        return answer

    async with http_server(slow_or_quick, authority.server) as url:
        connection = Connection(server=url, tls=TLS(ca=authority.pem), credentials=renewable)
        async with HttpTransport(connection) as transport:
            assert (await transport.send(GET)).body == b"first"
            async with transport.stream(Request("GET", "/slow")) as stream:
                chunks = stream.chunks()
                assert await anext(chunks) == b"begun"
                renewable.at = 1
                assert (await transport.send(GET)).body == b"second"
                # Requests that began with the old certificate finish with it.
                hold.set()
                assert await anext(chunks) == b"ended"


async def test_rejected_certificate_is_renewed_for_the_second_try(authority: Authority) -> None:
    renewable = Renewable(authority.client("old"), authority.client("new"))

    async def only_new(request: web.Request) -> web.Response:
        name = (await who(request)).text
        return web.Response(status=200 if name == "new" else 401)

    async with http_server(only_new, authority.server) as url:
        connection = Connection(server=url, tls=TLS(ca=authority.pem), credentials=renewable)
        async with HttpTransport(connection) as transport:
            assert (await transport.send(GET)).status == 200


async def test_server_that_is_not_trusted_is_named_with_the_remedy(authority: Authority) -> None:
    stranger = Pem("ca", data=trustme.CA().cert_pem.bytes())
    async with http_server(who, authority.server) as url:
        tls = TLS(ca=stranger, client=authority.client("me"))
        async with HttpTransport(Connection(server=url, tls=tls)) as transport:
            with pytest.raises(Unreachable, match=r"does not vouch for.*give the CA"):
                await transport.send(GET)


async def test_server_name_is_checked_instead_of_the_host(authority: Authority) -> None:
    async with http_server(who, authority.server) as url:
        named = url.replace("127.0.0.1", "localhost")  # a name that is not in the certificate
        for name, fine in (("api.example.com", True), ("other.example.com", False)):
            tls = TLS(ca=authority.pem, client=authority.client("me"), server_name=name)
            async with HttpTransport(Connection(server=named, tls=tls)) as transport:
                if fine:
                    assert (await transport.send(GET)).body == b"me"
                else:
                    with pytest.raises(Unreachable, match="does not vouch"):
                        await transport.send(GET)


async def test_bad_certificate_is_seen_on_entering(authority: Authority) -> None:
    tls = TLS(ca=Pem("FILE: certificate-authority", data=b"nonsense"))
    with pytest.raises(ConfigError, match="FILE: certificate-authority"):
        async with HttpTransport(Connection(server="https://127.0.0.1:1", tls=tls)):
            pass


# Proxies


@asynccontextmanager
async def proxying(*, refuse: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A tunnelling proxy; yields its URL and the heads of its requests."""
    heads: list[bytes] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if refuse:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = heads[-1].split(b" ")[1].decode().split(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, back))
            group.create_task(copy(there, writer))

    async with byte_server(tunnel) as url:
        yield url, heads


async def test_https_goes_through_the_proxy_with_its_password_and_the_servers_name(
    authority: Authority,
) -> None:
    async with http_server(who, authority.server) as url, proxying() as (proxy, heads):
        tls = TLS(ca=authority.pem, client=authority.client("me"), server_name="api.example.com")
        through = proxy.replace("http://", "http://user:secret@")
        async with HttpTransport(Connection(server=url, tls=tls, proxy=through)) as transport:
            assert (await transport.send(GET)).body == b"me"
    assert heads[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic" in heads[0]


async def test_proxy_that_refuses_is_told_without_its_password(authority: Authority) -> None:
    async with proxying(refuse=True) as (proxy, _):
        tls = TLS(ca=authority.pem)
        through = proxy.replace("http://", "http://user:secret@")
        async with HttpTransport(Connection(server="https://127.0.0.1:1", tls=tls, proxy=through)) as transport:
            with pytest.raises(Unreachable, match="the proxy refused: 407") as caught:
                await transport.send(GET)
    assert "secret" not in str(caught.value)


# Warnings


async def test_each_warning_is_told_once() -> None:
    async def warning(request: web.Request) -> web.Response:
        answer = web.Response()
        answer.headers.add("Warning", '299 - "first, with \\"quotes\\" and \\\\", 299 agent "second" "Wed, 21 Oct"')
        answer.headers.add("Warning", '299 - "third"')
        return answer

    told: list[str] = []
    async with (
        http_server(warning) as url,
        HttpTransport(Connection(server=url), warn=told.append) as transport,
    ):
        await transport.send(GET)
        await transport.send(GET)
    assert told == ['first, with "quotes" and \\', "second", "third"]


@pytest.mark.parametrize("header", ["", "nonsense", '199 - "other code"', '299 - "no end', "299 -"])
def test_what_is_no_warning_is_left_out(header: str) -> None:
    assert list(warning_texts([header])) == []


def test_memory_of_warnings_is_bounded() -> None:
    told: list[str] = []
    once = DeduplicatedWarnings(told.append, memory=2)
    for text in "abaca":
        once(text)
    assert told == ["a", "b", "c", "a"]


# WebSockets


async def test_frames_go_both_ways_until_closed() -> None:
    async def talk(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await server.prepare(request)
        await server.send_bytes(b"hello")
        await server.send_str("text")
        assert await server.receive_bytes() == b"bye"
        await server.close()
        return server

    known = ("v5.channel.k8s.io", "v4.channel.k8s.io")
    async with asking(talk) as transport, transport.frames(GET, known) as frames:
        assert frames.protocol == "v4.channel.k8s.io"
        received = aiter(frames)
        assert await anext(received) == b"hello"
        assert await anext(received) == b"text"
        await frames.send(b"bye")
        assert [frame async for frame in received] == []
        with pytest.raises(StreamBroken):
            await frames.send(b"too late")


async def test_refused_handshake_says_why() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"code": 403, "reason": "Forbidden", "message": "not you"}, status=403)

    async with asking(refuse) as transport:
        with pytest.raises(Forbidden, match="not you"):
            async with transport.frames(GET, ("v4.channel.k8s.io",)):
                pass


async def test_handshake_is_neither_redirected_nor_repeated() -> None:
    arrived = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await reader.readuntil(b"\r\n\r\n")
        arrived += 1

    async with byte_server(hang_up) as url, HttpTransport(Connection(server=url)) as transport:
        with pytest.raises(Unreachable, match="GET /here"):
            async with transport.frames(GET, ("v4.channel.k8s.io",)):
                pass
    assert arrived == 1


async def test_plain_answer_to_a_handshake_is_an_error() -> None:
    async with asking(echo) as transport:
        with pytest.raises(Unreachable, match="speaks no WebSocket"):
            async with transport.frames(GET, ("v4.channel.k8s.io",)):
                pass


async def test_a_connection_that_the_other_side_has_closed_can_be_left(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load aiohttp closes it twice. Python 3.11.2, as Debian has it, forgets the connection then."""

    def abort_of_3_11_2(self: Any) -> None:
        self._closed = True
        self._ssl_protocol._abort()

    async def end(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse()
        await server.prepare(request)
        await server.send_bytes(b"last")
        await server.close()
        return server

    monkeypatch.setattr("asyncio.sslproto._SSLProtocolTransport.abort", abort_of_3_11_2)
    async with http_server(end, authority.server) as url:
        tls = TLS(ca=authority.pem, client=authority.client("me"))
        async with HttpTransport(Connection(server=url, tls=tls)) as transport, transport.frames(GET, ()) as frames:
            assert [frame async for frame in frames] == [b"last"]
            for _ in range(2):
                frames._socket._tcp_transport.close()  # type: ignore[attr-defined]


async def test_lost_connection_breaks_the_frames() -> None:
    async def vanish(request: web.Request) -> web.WebSocketResponse:
        server = web.WebSocketResponse()
        await server.prepare(request)
        await server.send_bytes(b"hello")
        assert request.transport is not None
        request.transport.abort()
        return server

    async with asking(vanish) as transport, transport.frames(GET, ()) as frames:
        received = aiter(frames)
        assert await anext(received) == b"hello"
        with pytest.raises(StreamBroken, match="GET /here: cut off"):
            await anext(received)
