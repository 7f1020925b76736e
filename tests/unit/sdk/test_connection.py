"""Which server the SDK connects to."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gangline.kube.errors import ConfigError
from gangline.sdk.connection import connection_from_configuration, resolve_server
from support.builders import kubeconfigs


def test_nothing_configured_is_no_server(tmp_path: Path) -> None:
    assert resolve_server(None, None, {"GANGLINE_HOME": str(tmp_path / "none")}, tmp_path) is None


def test_the_default_kubeconfig_is_used(tmp_path: Path) -> None:
    kubeconfigs.write_kubeconfig(tmp_path, kubeconfigs.kubeconfig_document())
    connection = resolve_server(None, None, {"GANGLINE_HOME": str(tmp_path / "none")}, tmp_path)
    assert connection is not None
    assert connection.server == kubeconfigs.SERVER_URL


def test_what_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing"):
        resolve_server(str(tmp_path / "missing"), None, {}, tmp_path)
    with pytest.raises(ConfigError):
        resolve_server(None, "other", {}, tmp_path)


def given(**fields: Any) -> Any:
    return SimpleNamespace(**{"host": "https://api.example:6443/", "api_key": {}, **fields})


async def test_a_configuration_of_the_kubernetes_client_is_understood(tmp_path: Path) -> None:
    connection = connection_from_configuration(
        given(api_key={"authorization": "Bearer abc"}, ssl_ca_cert=str(tmp_path / "ca"), verify_ssl=True)
    )
    assert connection.server == "https://api.example:6443"
    assert await connection.credentials.headers() == {"Authorization": "Bearer abc"}
    assert connection.tls is not None
    assert connection.tls.ca is not None
    assert not connection.tls.insecure
    assert "abc" not in repr(connection)


async def test_its_token_may_have_its_word_apart() -> None:
    connection = connection_from_configuration(
        given(api_key={"authorization": "abc"}, api_key_prefix={"authorization": "Bearer"}, verify_ssl=False)
    )
    assert await connection.credentials.headers() == {"Authorization": "Bearer abc"}
    assert connection.tls is not None
    assert connection.tls.insecure


def test_a_configuration_without_host_is_refused() -> None:
    with pytest.raises(ValueError, match="client_configuration: has no host"):
        connection_from_configuration(SimpleNamespace())
