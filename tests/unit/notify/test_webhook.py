"""Requests of a webhook against a real server: what is sent, what a response means, and what is never said."""

import asyncio
import base64
import hashlib
import hmac
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gangline.base.certificates.serving import tls_of_our_own
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.notify.channels.webhook import Webhook, check_files
from gangline.notify.plan.retries import Attempt, Delivered, Rejected, RetryLater
from gangline.notify.plan.routes import NotificationRoute
from gangline.notify.plan.transitions import Transition, transition_of
from support.builders.notified_jobs import NOW, JobHistory
from support.servers.http import http_server

SECRET = "hunter2-not-to-be-logged"
KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


def transition() -> Transition:
    return transition_of(JobHistory().create().fail().job, f"failed-{int(NOW.timestamp()) + 1}")


class Endpoint:
    def __init__(self, status: int = 204, **headers: str) -> None:
        self.status, self.headers = status, headers
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path_qs, headers, await request.read()))
        return web.Response(status=self.status, headers=self.headers)


async def deliver(**fields: Any) -> Attempt:
    async with Webhook(NotificationRoute(name="a", **fields), SystemClock()) as webhook:
        return await webhook.deliver(transition())


async def test_a_request_has_the_body_the_id_the_time_and_no_signature_without_a_key() -> None:
    endpoint = Endpoint()
    async with http_server(endpoint.handle) as url:
        assert await deliver(url=f"{url}/hook?a=b") == Delivered()
    path, headers, body = endpoint.requests[0]
    assert path == "/hook?a=b"
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == transition().id
    assert headers["user-agent"].startswith("gangline/")
    assert abs(int(headers["webhook-timestamp"]) - SystemClock().now().timestamp()) < 60
    assert "webhook-signature" not in headers
    assert b'"state":"failed"' in body


async def test_secrets_come_from_files_which_are_read_for_every_request(tmp_path: Path) -> None:
    key, token, address = tmp_path / "key", tmp_path / "token", tmp_path / "url"
    key.write_text(f"whsec_{KEY}\n")
    token.write_text(f"Bearer {SECRET}\n")
    endpoint = Endpoint()
    async with http_server(endpoint.handle) as url:
        address.write_text(f"{url}/first\n")
        route = NotificationRoute(
            name="a", url_file=str(address), signing_key_file=str(key), authorization_file=str(token)
        )
        async with Webhook(route, SystemClock()) as webhook:
            await webhook.deliver(transition())
            address.write_text(f"{url}/second\n")
            token.write_text("Bearer other\n")
            await webhook.deliver(transition())
    (first, headers, body), (second, later, _) = endpoint.requests
    assert (first, second) == ("/first", "/second")
    assert (headers["authorization"], later["authorization"]) == (f"Bearer {SECRET}", "Bearer other")
    message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(base64.b64decode(KEY), message, hashlib.sha256)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("status", "headers", "result"),
    [
        (500, {}, RetryLater("HTTP status 500")),
        (400, {}, Rejected("HTTP status 400")),
        (302, {"Location": "/elsewhere"}, RetryLater("HTTP status 302: redirects are not followed")),
    ],
)
async def test_what_a_response_means(status: int, headers: dict[str, str], result: Attempt) -> None:
    endpoint = Endpoint(status, **headers)
    async with http_server(endpoint.handle) as url:
        assert await deliver(url=url) == result
    assert len(endpoint.requests) == 1


async def test_a_receiver_that_does_not_answer_is_left_after_the_time_limit() -> None:
    async def silent(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with http_server(silent) as url:
        assert await deliver(url=url, timeout_seconds=0.1) == RetryLater("no response within 0.1 s")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"http://127.0.0.1:1/{SECRET}", "no connection: Connection refused"),
        (f"https://127.0.0.1:1/{SECRET}", "no connection: Connection refused"),
        (f"http://no-such-host.invalid/{SECRET}", "the host name of the receiver is not known"),
    ],
)
async def test_a_failure_is_described_without_the_url(url: str, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await deliver(url=url) == RetryLater(problem)
    assert SECRET not in caplog.text


@asynccontextmanager
async def tls_endpoint(endpoint: Endpoint) -> AsyncIterator[tuple[str, str]]:
    """A server with a certificate of its own, and its URL with the name in the certificate."""
    async with http_server(endpoint.handle, tls_of_our_own(("localhost",))) as url:
        yield url, url.replace("127.0.0.1", "localhost")


async def test_a_certificate_that_is_not_trusted_gets_nothing() -> None:
    endpoint = Endpoint()
    async with tls_endpoint(endpoint) as (_, url):
        assert await deliver(url=url) == RetryLater("the certificate of the receiver is not trusted")
    assert endpoint.requests == []


async def test_a_certificate_that_a_file_vouches_for_is_trusted(tmp_path: Path) -> None:
    endpoint, roots = Endpoint(), tmp_path / "ca.crt"
    async with tls_endpoint(endpoint) as (_, url):
        port = int(url.rpartition(":")[2])
        roots.write_text(await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)))
        assert await deliver(url=url, ca_file=str(roots)) == Delivered()
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        (b"", "is empty"),
        (b"\xff\xfe", "is not text"),
        (b"x" * 70_000, "is too long"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: bytes | None, problem: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_bytes(text)
    route = NotificationRoute(name="a", url="http://127.0.0.1:1/", authorization_file=str(file))
    with pytest.raises(InputError, match=problem):
        check_files(route)
    async with Webhook(route, SystemClock()) as webhook:
        assert await webhook.deliver(transition()) == RetryLater(f"authorizationFile {file}: {problem}")


@pytest.mark.parametrize(
    ("field", "text"),
    [("url_file", f"ftp://{SECRET}"), ("signing_key_file", SECRET), ("ca_file", SECRET)],
)
async def test_a_bad_secret_is_not_repeated(tmp_path: Path, field: str, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    fields: dict[str, Any] = {"url": "https://127.0.0.1:1/", field: str(file)}
    if field == "url_file":
        del fields["url"]
    with pytest.raises(InputError) as error:
        check_files(NotificationRoute(name="a", **fields))
    assert SECRET not in str(error.value)
    result = await deliver(**fields)
    assert isinstance(result, RetryLater)
    assert SECRET not in result.problem
