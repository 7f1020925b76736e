"""DNS rebinding and smuggled requests."""

import logging

import pytest

from gangline.apiserver.serving.hosts import AllowedHosts
from support.servers.bytes_client import raw_response, status_code
from support.servers.plane import PlaneClient, running_plane

CREATE = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n"
SMUGGLED = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def host_status(plane: PlaneClient, host: str, path: str = "/version") -> int:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer t\r\nConnection: close\r\n\r\n"
    return status_code(await raw_response(plane.url, None, request.encode()))


async def test_a_request_under_a_foreign_name_is_refused_with_one_line() -> None:
    async with running_plane() as plane:
        for host in ("evil.example", "evil.example:8443", "localhost.evil.example", "127.0.0.1.evil.example", "x_y"):
            assert await host_status(plane, host) == 421, host
            assert await host_status(plane, host, "/api/v1/secrets") == 421, host
        request = b"GET http://evil.example/version HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        response = await raw_response(plane.url, None, request)
        assert status_code(response) == 421
        assert b"is not a name of this server; use its address, or start it with --allow-host evil.example" in response


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "my.localhost",
        "127.0.0.1:6443",
        "10.96.0.1",
        "[::1]:6443",
        "[fe80::1%25eth0]",
        "kubernetes.default.svc:443",
        "kubernetes.default.svc.cluster.local.",
        "box.example:6443",
        "",
    ],
)
def test_addresses_and_own_names_are_served(host: str) -> None:
    assert AllowedHosts(["Box.Example."]).problem(host) == ""


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("Content-Length: 5\r\nContent-Length: 0\r\n", SMUGGLED),
        ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", f"0\r\n\r\n{SMUGGLED}"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", f"0\r\n\r\n{SMUGGLED}"),
        ("Transfer-Encoding: xchunked\r\n", f"0\r\n\r\n{SMUGGLED}"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", f"0\r\n\r\n{SMUGGLED}"),
        ("Transfer-Encoding : chunked\r\n", f"0\r\n\r\n{SMUGGLED}"),
        ("Transfer-Encoding: chunked\r\n", f"zz\r\n\r\n{SMUGGLED}"),
    ],
)
async def test_a_request_of_ambiguous_length_smuggles_no_other(
    headers: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_plane() as plane:
        response = await raw_response(plane.url, None, f"{CREATE}{headers}\r\n{body}".encode())
        assert 400 <= status_code(response) < 500
        assert b"emulationMajor" not in response
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_what_is_no_http_is_not_repeated_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running_plane() as plane:
        for text in ("GET / HTTP/1.1\r\nX-A : secret\r\n\r\n", "secret\r\n\r\n", "GET /" + "secret" * 300_000):
            response = await raw_response(plane.url, None, text.encode())
            assert 400 <= status_code(response) < 500
            assert b"secret" not in response
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
