"""Passes one HTTP request on over a connection, and the response back: bodies as they come, upgrades included."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gangline.apiserver.errors import StatusError
from gangline.apiserver.proxy.targets import service_unavailable
from gangline.apiserver.streaming.byte_streams import UpgradedStream
from gangline.base.tasks import background_tasks, run_until_first
from gangline.kube.transport.http1 import ResponseParser

CHUNK_BYTES = 2**16
HEAD_END = b"\r\n\r\n"
HOP_HEADERS = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers of one connection, which are not passed on."""
OWN_HEADERS = frozenset(("authorization", "host", "content-length", "expect"))
"""Headers for the server itself. What it proxies to learns no token."""
IMPERSONATION_PREFIX = "impersonate-"


class Upstream(msgspec.Struct, frozen=True):
    """An open connection to which a request is passed on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    authority: str
    """For the Host header."""
    secure: bool = False


class ResponseHead(msgspec.Struct, frozen=True):
    """The first part of a response."""

    code: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    raw: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


async def forward_request(
    http: web.BaseRequest, upstream: Upstream, target: str, *, prefix: str = "", extra: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Pass a request on for the path and query `target`, and return the response, which has been sent.

    `prefix` is the path that stands for the root of the other server: redirections are rewritten with it. Raises
    `StatusError` (503) if there is no response.
    """
    upgrade = http.headers.get("Upgrade", "") if "upgrade" in http.headers.get("Connection", "").lower() else ""
    try:
        upstream.writer.write(_request_head(http, upstream, target, upgrade, extra or {}))
        # Who has answered reads no more.
        async with background_tasks(_send_body(http, upstream.writer)):
            head = await _read_head(upstream.reader)
            if head.code == 101:
                return await _join(http, upstream, head)
            return await _copy_response(http, upstream.reader, head, prefix)
    finally:
        upstream.writer.close()


def _request_head(
    http: web.BaseRequest, upstream: Upstream, target: str, upgrade: str, extra: Mapping[str, str]
) -> bytes:
    headers = [
        (name, value)
        for name, value in http.headers.items()
        if name.lower() not in HOP_HEADERS | OWN_HEADERS and not name.lower().startswith(IMPERSONATION_PREFIX)
    ]
    if upgrade:
        headers += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
    else:
        headers.append(("Connection", "close"))
    if _is_chunked(http):
        headers.append(("Transfer-Encoding", "chunked"))
    elif http.content_length is not None:
        headers.append(("Content-Length", str(http.content_length)))
    lines = [f"{http.method} {target} HTTP/1.1", f"Host: {upstream.authority}"]
    lines += [f"{name}: {value}" for name, value in (*headers, *extra.items())]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + HEAD_END


def _is_chunked(http: web.BaseRequest) -> bool:
    return "chunked" in http.headers.get("Transfer-Encoding", "").lower()


async def _send_body(http: web.BaseRequest, writer: asyncio.StreamWriter) -> None:
    # Who answers before the end of the body may close the connection.
    with suppress(ConnectionError):
        if http.body_exists:
            chunked = _is_chunked(http)
            async for data in http.content.iter_chunked(CHUNK_BYTES):
                writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
                await writer.drain()
            if chunked:
                writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _read_head(reader: asyncio.StreamReader) -> ResponseHead:
    """The head of the response. Interim responses are skipped."""
    while True:
        try:
            raw = await reader.readuntil(HEAD_END)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            raise unreachable("EOF" if isinstance(error, asyncio.IncompleteReadError) else str(error)) from error
        first, *lines = raw[: -len(HEAD_END)].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise unreachable(f"malformed HTTP response {first[:80]!r}")
        if int(code) >= 200 or int(code) == 101:
            pairs = (line.partition(":") for line in lines)
            headers = tuple((name.strip(), value.strip()) for name, _, value in pairs)
            return ResponseHead(int(code), reason, headers, raw)


async def _copy_response(
    http: web.BaseRequest, reader: asyncio.StreamReader, head: ResponseHead, prefix: str
) -> web.StreamResponse:
    response = web.StreamResponse(status=head.code, reason=head.reason)
    # aiohttp sets its own otherwise.
    response.headers.clear()
    for name, value in head.headers:
        if name.lower() not in HOP_HEADERS:
            response.headers.add(name, redirected(value, prefix) if name.lower() == "location" else value)
    try:
        await response.prepare(http)
        async for data in _body(http, reader, head):
            await response.write(data)
        await response.write_eof()
    except (ConnectionError, ValueError):
        # The client has disconnected, or the response breaks off: so does ours.
        response.force_close()
        if http.transport is not None:
            http.transport.abort()
    return response


async def _body(http: web.BaseRequest, reader: asyncio.StreamReader, head: ResponseHead) -> AsyncIterator[bytes]:
    """The body, without its framing. Raises ValueError if it breaks off."""
    if http.method == "HEAD":
        return
    parser = ResponseParser()
    parser.feed(head.raw)
    while not parser.complete:
        data = await reader.read(CHUNK_BYTES)
        if data:
            parser.feed(data)
        elif not parser.close():
            raise ValueError("the response breaks off")
        if body := parser.take_body():
            yield body


async def _join(http: web.BaseRequest, upstream: Upstream, head: ResponseHead) -> web.StreamResponse:
    """Join both connections after an upgrade, until one of them ends."""
    client = await UpgradedStream.accept(http, dict(_upgrade_headers(head.headers)))

    async def copy_to_client() -> None:
        with suppress(ConnectionError):
            while data := await upstream.reader.read(CHUNK_BYTES):
                await client.write(data)

    async def copy_from_client() -> None:
        with suppress(ConnectionError):
            while data := await client.read():
                upstream.writer.write(data)
                await upstream.writer.drain()

    await run_until_first(copy_to_client(), copy_from_client())
    return client.response


def _upgrade_headers(headers: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((name, value) for name, value in headers if name.lower() not in HOP_HEADERS - {"upgrade"})


def redirected(location: str, prefix: str) -> str:
    """Where a redirection of a proxied server leads on ours. One to another server stays as it is."""
    parts = urlsplit(location)
    if parts.netloc or not parts.path.startswith("/"):
        return location
    return f"{prefix}{location}"


def unreachable(problem: str) -> StatusError:
    """The response when the other server cannot be reached, or does not answer."""
    return service_unavailable(f"error trying to reach service: {problem}")
