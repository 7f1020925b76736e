import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.kube.config.connection import Impersonation, in_cluster_connection, load_connection
from gangline.kube.config.credentials import Anonymous, TokenFile
from gangline.kube.errors import ConfigError
from gangline.testing.clock import FakeClock
from support.builders.kubeconfigs import SERVER_URL, connection_from, kubeconfig_document, write_kubeconfig


def test_current_context_of_the_default_file_is_used(tmp_path: Path) -> None:
    connection = connection_from(tmp_path)
    assert (connection.server, connection.namespace) == (SERVER_URL, "default")
    assert (connection.context, connection.source) == ("dev", "~/.kube/config")
    assert connection.tls is not None
    assert connection.tls.ca is None
    assert isinstance(connection.credentials, Anonymous)


def test_flag_goes_before_the_variable_and_the_variable_before_the_default(tmp_path: Path) -> None:
    for name in ("flag", "variable", ".kube/config"):
        write_kubeconfig(tmp_path, kubeconfig_document({"server": f"https://{Path(name).name}"}), name)
    environ = {"KUBECONFIG": str(tmp_path / "variable")}
    assert load_connection(environ={}, home=tmp_path).server == "https://config"
    assert load_connection(environ=environ, home=tmp_path).server == "https://variable"
    flagged = load_connection(kubeconfig=str(tmp_path / "flag"), environ=environ, home=tmp_path)
    assert flagged.server == "https://flag"


def test_first_file_of_a_list_defines_a_name_whole(tmp_path: Path) -> None:
    first = kubeconfig_document(
        contexts=None,
        users=[{"name": "me", "user": {"token": "first"}}],
        **{"current-context": ""},
    )
    second = kubeconfig_document(
        {"server": "https://second"},
        users=[{"name": "me", "user": {"as": "somebody"}}],
        contexts=[{"name": "dev", "context": {"cluster": "kind", "user": "me", "namespace": "two"}}],
    )
    third = kubeconfig_document({"server": "https://third"}, **{"current-context": "gone"})
    paths = [write_kubeconfig(tmp_path, content, name) for content, name in ((first, "a"), (second, "b"), (third, "c"))]
    listed = os.pathsep.join(["", str(tmp_path / "missing"), *map(str, paths)])
    connection = load_connection(environ={"KUBECONFIG": listed}, home=tmp_path / "home")
    assert (connection.server, connection.namespace) == (SERVER_URL, "two")
    assert connection.impersonate is None  # users of the second file add nothing to those of the first
    assert connection.source == str(tmp_path / "b")


def test_flags_replace_context_cluster_user_and_namespace(tmp_path: Path) -> None:
    content = kubeconfig_document()
    content["clusters"].append({"name": "prod", "cluster": {"server": "http://prod/base/"}})
    content["users"].append({"name": "root", "user": {"as": "admin"}})
    content["contexts"].append({"name": "other", "context": {"cluster": "kind", "namespace": "ns"}})
    write_kubeconfig(tmp_path, content)
    connection = load_connection(context="other", cluster="prod", user="root", environ={}, home=tmp_path)
    assert (connection.context, connection.server, connection.namespace) == (
        "other",
        "http://prod/base",
        "ns",
    )
    assert connection.tls is None
    assert connection.impersonate == Impersonation("admin")
    assert load_connection(namespace="mine", environ={}, home=tmp_path).namespace == "mine"


def test_cluster_flag_needs_no_context(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path, kubeconfig_document(contexts=[], **{"current-context": ""}))
    connection = load_connection(cluster="kind", user="me", environ={}, home=tmp_path)
    assert (connection.server, connection.context) == (SERVER_URL, "")


def test_nulls_are_absent_fields_as_kubectl_writes_them(tmp_path: Path) -> None:
    write_kubeconfig(
        tmp_path,
        kubeconfig_document({"certificate-authority-data": None}, {"token": None, "exec": None}, preferences=None),
    )
    assert isinstance(load_connection(environ={}, home=tmp_path).credentials, Anonymous)


async def test_token_file_goes_before_token_and_resolves_beside_its_kubeconfig(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path, "from-file\n", ".kube/secrets/token")
    connection = connection_from(tmp_path, user={"token": "inline", "tokenFile": "secrets/token"})
    assert await connection.credentials.headers() == {"Authorization": "Bearer from-file"}


async def test_username_and_password_are_sent_as_basic(tmp_path: Path) -> None:
    connection = connection_from(tmp_path, user={"username": "me", "password": "pa:ss"})
    assert await connection.credentials.headers() == {"Authorization": "Basic bWU6cGE6c3M="}
    assert not connection.credentials.invalidate()


def test_server_name_and_insecure_reach_tls(tmp_path: Path) -> None:
    tls = connection_from(tmp_path, {"tls-server-name": "api", "insecure-skip-tls-verify": True}).tls
    assert tls is not None
    assert (tls.server_name, tls.insecure) == ("api", True)


def test_impersonation_becomes_headers_one_per_value(tmp_path: Path) -> None:
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.com/Scopes": ["a", "b"]},
    }
    impersonate = connection_from(tmp_path, user=user).impersonate
    assert impersonate is not None
    assert impersonate.headers() == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2FScopes", "a"),
        ("Impersonate-Extra-example.com%2FScopes", "b"),
    )


def test_proxy_url_goes_before_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://env:1", "NO_PROXY": "*"}
    given = connection_from(tmp_path, {"proxy-url": "http://file:2"}, environ=environ)
    assert given.proxy == "http://file:2"
    assert connection_from(tmp_path, environ={"HTTPS_PROXY": "http://env:1"}).proxy == "http://env:1"
    assert connection_from(tmp_path, environ=environ).proxy is None


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    for name, text in (("token", "pod-token"), ("ca.crt", "pem"), ("namespace", "training\n")):
        write_kubeconfig(tmp_path, text, f"account/{name}")
    return tmp_path / "account"


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_pod_uses_its_service_account_when_there_is_no_file(tmp_path: Path, service_account: Path) -> None:
    connection = load_connection(environ=POD, home=tmp_path, service_account=service_account, clock=FakeClock())
    assert (connection.server, connection.namespace) == ("https://10.96.0.1:443", "training")
    assert (connection.context, connection.source) == ("in-cluster", str(service_account))
    assert connection.tls is not None
    assert connection.tls.ca is not None
    assert connection.tls.ca.read() == b"pem"
    assert isinstance(connection.credentials, TokenFile)
    assert await connection.credentials.headers() == {"Authorization": "Bearer pod-token"}


def test_pod_on_ipv6_has_brackets(service_account: Path) -> None:
    connection = in_cluster_connection(environ={**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, root=service_account)
    assert connection.server == "https://[fd00::1]:443"


def test_default_file_goes_before_the_service_account(tmp_path: Path, service_account: Path) -> None:
    assert connection_from(tmp_path, environ=POD, service_account=service_account).server == SERVER_URL


@pytest.mark.parametrize("lacking", [{}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}])
def test_outside_a_pod_there_is_no_service_account(lacking: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="this is not a pod"):
        in_cluster_connection(environ=lacking)


def test_importing_it_is_cheap() -> None:
    heavy = ("aiohttp", "yaml", "urllib.request", "tempfile")
    code = f"import sys, gangline.kube.config.connection; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
