"""A kubeconfig that cannot be used: one line that names file, field and remedy, no traceback, exit code 1."""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml


class Version(http.server.BaseHTTPRequestHandler):
    """Answers every GET with a version."""

    def do_GET(self) -> None:
        body = json.dumps({"gitVersion": "v1.34.4"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Version) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def kubeconfig(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
        "current-context": "prod",
    }
    file.write_text(yaml.safe_dump(config))
    return file


def version(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", "version", *arguments]
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def the_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


def test_a_good_kubeconfig_answers(tmp_path: Path, server: str, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    done = version("--kubeconfig", str(kubeconfig(tmp_path, server, {"certificate-authority": "ca.crt"}, {})))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split() == ["server", "v1.34.4"]


def test_missing_context_is_named_with_the_known_ones(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "https://127.0.0.1:1", {}, {})
    line = the_line(version("--kubeconfig", str(file), "--context", "prdo"))
    assert str(file) in line
    assert '"prdo"' in line
    assert "known: prod" in line


def test_a_server_whose_certificate_is_not_trusted(tmp_path: Path, server: str) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    file = kubeconfig(tmp_path, server, {"certificate-authority": "ca.crt"}, {})
    line = the_line(version("--kubeconfig", str(file)))
    assert str(file) in line
    assert "certificate-authority" in line


def test_a_client_certificate_that_is_none(tmp_path: Path, server: str, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "me.crt").write_text("not a certificate")
    (tmp_path / "me.key").write_text("not a key")
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    file = kubeconfig(tmp_path, server, {"certificate-authority": "ca.crt"}, user)
    line = the_line(version("--kubeconfig", str(file)))
    assert str(file) in line
    assert "client-certificate" in line
    assert "not a key" not in line


def test_a_broken_exec_plugin(tmp_path: Path, server: str, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    plugin = tmp_path / "login"
    plugin.write_text("#!/bin/sh\necho token-that-must-not-be-shown\necho 'please log in first' >&2\nexit 3\n")
    plugin.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./login",
            "interactiveMode": "Never",
        }
    }
    file = kubeconfig(tmp_path, server, {"certificate-authority": "ca.crt"}, user)
    line = the_line(version("--kubeconfig", str(file)))
    assert str(file) in line
    assert "exec" in line
    assert "please log in first" in line
    assert "must-not-be-shown" not in line


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    line = the_line(version("--kubeconfig", str(kubeconfig(tmp_path, "http://127.0.0.1:1", {}, {}))))
    assert "127.0.0.1:1" in line or "127.0.0.1" in line
