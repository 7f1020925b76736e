"""The real server fixture itself: what later contract tests lean on."""

import json
import ssl
import subprocess
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.servers.real import RealServer, cache_dir, find_assets

KUBERNETES_SH = Path(__file__).parents[2] / "hack" / "kubernetes.sh"


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def create(server: RealServer, namespace: str, name: str) -> str:
    """Make a ConfigMap and return its resourceVersion."""
    answer = server.call("POST", config_maps(namespace), {"metadata": {"name": name}})
    assert answer.status == 201, answer.body
    version: str = answer.body["metadata"]["resourceVersion"]
    return version


def first_event(server: RealServer, namespace: str, version: str) -> dict[str, Any]:
    path = f"{config_maps(namespace)}?watch=1&resourceVersion={version}&timeoutSeconds=10"
    with server.open("GET", path) as stream:
        event: dict[str, Any] = json.loads(stream.readline())
        return event


def test_build_script_and_tests_agree_on_the_folder() -> None:
    done = subprocess.run([KUBERNETES_SH, "--where"], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == cache_dir()


def test_server_says_which_version_it_is(real_server: RealServer) -> None:
    assets = find_assets()
    assert assets is not None
    printed = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    assert f"Kubernetes {real_server.call('GET', '/version').body['gitVersion']}" == printed.stdout.strip()


def test_user_without_rights_is_forbidden_and_stranger_is_unauthorized(real_server: RealServer) -> None:
    pods = "/api/v1/pods"
    assert real_server.call("GET", pods, token="nobody-token").body["reason"] == "Forbidden"
    assert real_server.call("GET", pods, token="made-up").body["reason"] == "Unauthorized"


def test_certificate_is_a_second_way_in(real_server: RealServer) -> None:
    context = ssl.create_default_context(cafile=real_server.ca)
    context.load_cert_chain(real_server.client_certificate, real_server.client_key)
    address = urlsplit(real_server.url)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with closing(HTTPSConnection(address.netloc, context=context, timeout=60)) as connection:
        connection.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json.dumps(review),
            {"Content-Type": "application/json"},
        )
        who = json.load(connection.getresponse())["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("certified", ["system:masters", "system:authenticated"])


def test_killed_server_comes_back_at_the_same_address_with_its_data(
    real_server: RealServer, real_namespace: str
) -> None:
    version = create(real_server, real_namespace, "kept")
    url = real_server.url
    real_server.kill_apiserver()
    with pytest.raises(ConnectionRefusedError):
        real_server.call("GET", "/version")
    real_server.restart_apiserver()
    assert real_server.url == url
    found = real_server.call("GET", f"{config_maps(real_namespace)}/kept")
    assert found.body["metadata"]["resourceVersion"] == version


def test_watch_from_a_recent_version_replays_what_came_after(real_server: RealServer, real_namespace: str) -> None:
    before = create(real_server, real_namespace, "one")
    after = create(real_server, real_namespace, "two")
    event = first_event(real_server, real_namespace, before)
    assert event["type"] == "ADDED"
    assert event["object"]["metadata"]["resourceVersion"] == after


def test_watch_from_before_a_compaction_is_told_that_history_is_gone(
    real_server: RealServer, real_namespace: str
) -> None:
    before = create(real_server, real_namespace, "one")
    create(real_server, real_namespace, "two")
    assert real_server.expire_watches() > int(before)
    event = first_event(real_server, real_namespace, before)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_list_page_from_before_a_compaction_is_told_that_history_is_gone(
    real_server: RealServer, real_namespace: str
) -> None:
    for name in ("one", "two"):
        create(real_server, real_namespace, name)
    page = real_server.call("GET", f"{config_maps(real_namespace)}?limit=1").body
    create(real_server, real_namespace, "three")
    real_server.expire_watches()
    answer = real_server.call("GET", f"{config_maps(real_namespace)}?limit=1&continue={page['metadata']['continue']}")
    assert (answer.status, answer.body["reason"]) == (410, "Expired")


def test_suspended_server_lets_a_request_time_out_and_then_goes_on(real_server: RealServer) -> None:
    with real_server.suspended(), pytest.raises(TimeoutError):
        real_server.call("GET", "/version", timeout=0.3)
    assert real_server.call("GET", "/version").status == 200


def test_revive_undoes_what_a_failed_test_left_behind(real_server: RealServer) -> None:
    real_server.suspend()
    real_server.revive()
    assert real_server.call("GET", "/readyz").status == 200
    real_server.kill_apiserver()
    real_server.revive()
    assert real_server.call("GET", "/readyz").status == 200
