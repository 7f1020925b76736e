"""No credential appears in a repr, an error, a log or a chained traceback."""

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.kube.config.connection import load_connection
from gangline.kube.config.tls import ssl_context
from gangline.testing.clock import FakeClock
from support.builders.kubeconfigs import base64_text, kubeconfig_document, write_kubeconfig

SECRET = "s3cr3tMARKER"
BASE64 = base64_text(SECRET.encode())

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "./login",
    "interactiveMode": "Never",
    "args": ["--client-secret", SECRET, f"--id-token={SECRET}"],
    "env": [{"name": "LOGIN_PASSWORD", "value": SECRET}],
}
ANSWER = {"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential"}
PROXY = {"proxy-url": f"http://me:{SECRET}@proxy:1"}


def text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def plugin(stdout: Any, ending: str = "") -> str:
    return f"#!/bin/sh\ncat <<'END'\n{text(stdout)}\nEND\n{ending}\n"


GOOD = [
    ({}, {"token": SECRET}),
    ({}, {"tokenFile": "token"}),
    ({}, {"username": "me", "password": SECRET}),
    ({}, {"client-certificate-data": BASE64, "client-key-data": BASE64}),
    ({}, {"exec": EXEC}),
    (PROXY, {}),
]

USERS: list[dict[str, Any]] = [
    {"token": f"{SECRET}\nx"},
    {"token": [SECRET]},
    {"token": {SECRET: SECRET}},
    {"tokenFile": "bad-token"},
    {"token": SECRET, "password": SECRET},
    {"password": [SECRET]},
    {"username": {"x": SECRET}},
    {"client-key-data": f"%{SECRET}"},
    {"client-key-data": BASE64},
    {"client-certificate-data": BASE64, "client-key-data": BASE64},
    {"client-certificate": "token", "client-key": "token"},
    {"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}},
    {"auth-provider": SECRET},
    {"exec": {**EXEC, "apiVersion": "v0"}},
    {"exec": {**EXEC, "command": ""}},
    {"exec": {**EXEC, "command": "./gone"}},
    {"exec": {**EXEC, "interactiveMode": "Always"}},
    {"exec": {**EXEC, "env": {"LOGIN_PASSWORD": SECRET}}},
    {"exec": {**EXEC, "args": SECRET}},
]

CLUSTERS: list[dict[str, Any]] = [
    {"proxy-url": f"socks5://me:{SECRET}@proxy:1"},
    {"proxy-url": f"http://me:{SECRET}@proxy:port"},
    {"proxy-url": f"me:{SECRET}@proxy"},
    {"proxy-url": [SECRET]},
    {"server": f"https://me:{SECRET}@api"},
    {"server": f"https://me:{SECRET}@api:port"},
]

PLUGINS = [
    plugin(SECRET),
    plugin(SECRET, "exit 1"),
    plugin("", f"echo 'login failed for {SECRET}' >&2; exit 1"),
    plugin("", 'echo "$LOGIN_PASSWORD $2 $3" >&2; exit 1'),
    plugin({"status": {"token": SECRET}}),
    plugin({**ANSWER, "apiVersion": SECRET}),
    plugin({**ANSWER, "kind": SECRET}),
    plugin({**ANSWER, "status": {"token": f"{SECRET} x"}}),
    plugin({**ANSWER, "status": {"token": [SECRET]}}),
    plugin({**ANSWER, "status": {"token": SECRET, "expirationTimestamp": SECRET}}),
    plugin({**ANSWER, "status": {"clientKeyData": SECRET}}),
    plugin({**ANSWER, "status": {"clientCertificateData": SECRET, "clientKeyData": SECRET}}),
]

# Text that PyYAML quotes in its errors.
BROKEN = [
    f"users: [{{name: me, user: {{password: *{SECRET}}}}}]",
    f"users: [{{name: me, user: {{password: !{SECRET} x}}}}]",
    f'users: [{{name: me, user: {{password: "{SECRET}\n',
    f"users: [{{name: me, user: {{password: {SECRET}: x: y}}}}]",
    f"password: {SECRET}\n\ttoken: {SECRET}",
]


def cases() -> Iterator[Any]:
    for user in USERS:
        yield pytest.param(kubeconfig_document({}, user), plugin(""), id=f"user {list(user)}")
    for cluster in CLUSTERS:
        yield pytest.param(kubeconfig_document(cluster), plugin(""), id=f"cluster {list(cluster)}")
    for index, script in enumerate(PLUGINS):
        yield pytest.param(kubeconfig_document({}, {"exec": EXEC}), script, id=f"plugin {index}")
    for index, broken in enumerate(BROKEN):
        yield pytest.param(broken, plugin(""), id=f"broken {index}")


def prepare(home: Path, content: Any, script: str) -> None:
    write_kubeconfig(home, content)
    write_kubeconfig(home, SECRET, ".kube/token")
    write_kubeconfig(home, f"{SECRET} {SECRET}", ".kube/bad-token")
    write_kubeconfig(home, script, ".kube/login").chmod(0o755)


async def use(home: Path) -> None:
    """Everything that a transport does with a connection before its first request."""
    connection = load_connection(environ={"PATH": "/usr/bin:/bin"}, home=home, interactive=False, clock=FakeClock())
    await connection.credentials.headers()
    certificate = await connection.credentials.client_certificate()
    if connection.tls is not None:
        ssl_context(connection.tls, certificate)


def leaks(shown: str) -> bool:
    return SECRET in shown or BASE64 in shown


@pytest.mark.parametrize(("content", "script"), list(cases()))
async def test_errors_never_show_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Any, script: str
) -> None:
    prepare(tmp_path, content, script)
    with pytest.raises(InputError) as caught:
        await use(tmp_path)
    assert not leaks(str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    # The last lines of each chained error, as a traceback would print them, without the source of this test.
    error: BaseException | None = caught.value
    while error is not None:
        assert not leaks("".join(traceback.format_exception_only(error)))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert not leaks(caplog.text)


@pytest.mark.parametrize(("cluster", "user"), GOOD)
async def test_reprs_never_show_a_secret(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> None:
    prepare(tmp_path, kubeconfig_document(cluster, user), plugin({**ANSWER, "status": {"token": SECRET}}))
    connection = load_connection(environ={"PATH": "/usr/bin:/bin"}, home=tmp_path, interactive=False)
    await connection.credentials.headers()
    assert not leaks(repr(connection))
    assert not leaks(str(connection))
    assert "api.example" in repr(connection)
