"""A pod gets the token of its service account, and never the administrator's.

Processes of pods run as the same user as the plane and could read its files: that is no sandbox, and documented. These
tests are about what is handed out.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Namespace, Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME, Resource
from gangline.base.clock import SystemClock
from gangline.kube.errors import NotFound
from gangline.kube.pods import PodSubresources
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.local.plane import PlaneSettings
from support.builders.objects import pod_body
from support.waiting import wait_until

ADMIN_TOKEN = "the-administrators-token-0123456789"
SECRETS: Resource[JSON] = Resource("", "v1", "Secret", "secrets", dict[str, Any])

DUMP = """
import json, os, pathlib
files = {}
def read(path):
    path = pathlib.Path(path)
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            files[str(file)] = file.read_text(errors="replace")
config = json.load(open(os.environ["KUBECONFIG"]))
token_file = pathlib.Path(config["users"][0]["user"]["tokenFile"])
for path in (os.environ["KUBECONFIG"], token_file.parent):
    read(path)
print(json.dumps({"env": dict(os.environ), "files": files, "config": config, "mode": os.stat(os.environ["KUBECONFIG"]).st_mode}))
"""
"""Prints everything that the pod was given: its environment, its kubeconfig, its mounted files."""

CALLS = """
import json, os, ssl, urllib.error, urllib.request
config = json.load(open(os.environ["KUBECONFIG"]))
cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
token = open(user["tokenFile"]).read()
tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
def call(method, path, body=None):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(cluster["server"] + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, context=tls) as response:
            return [response.status, json.load(response)]
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)]
print(json.dumps([call(*words) for words in json.loads(os.environ["CALLS"])]))
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    plane = PlaneSettings(certificates=tmp_path / "certificates", token=ADMIN_TOKEN)
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "state", plane=plane)
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as running:
        yield running


async def output_of(cluster: LocalCluster, script: str, env: dict[str, str] | None = None, **spec: object) -> Any:
    """What a pod prints that runs this script."""
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    command = [sys.executable, "-c", script]
    container = {"name": "main", "image": "none", "command": command, "env": variables}
    await cluster.client.create(
        Pod, pod_body("attacker", "default", restartPolicy="Never", containers=[container], **spec)
    )
    key = Key("default", "attacker")

    async def ended() -> Pod | None:
        pod = await cluster.client.get(Pod, key)
        return pod if pod.status.phase in ("Succeeded", "Failed") else None

    pod = await wait_until(ended)
    lines = [line.decode() async for line in PodSubresources(cluster.client).logs(key)]
    assert pod.status.phase == "Succeeded", "\n".join(lines)
    return json.loads("".join(lines))


async def calls_of(cluster: LocalCluster, *calls: tuple[object, ...]) -> Any:
    """What a pod gets as answers to requests with its own token."""
    return await output_of(cluster, CALLS, {"CALLS": json.dumps(calls)})


async def test_nothing_that_a_pod_is_given_has_the_administrators_token(cluster: LocalCluster) -> None:
    given = await output_of(cluster, DUMP)
    text = json.dumps(given)
    assert ADMIN_TOKEN not in text
    assert set(given["config"]["users"][0]["user"]) == {"tokenFile"}
    assert given["mode"] & 0o077 == 0
    names = {Path(file).name for file in given["files"]}
    assert {"token", "ca.crt", "namespace"} <= names


async def test_pod_without_automount_gets_no_credentials(cluster: LocalCluster) -> None:
    script = "import json, os; print(json.dumps([json.load(open(os.environ['KUBECONFIG'])), dict(os.environ)]))"
    config, env = await output_of(cluster, script, automountServiceAccountToken=False)
    assert config["users"][0]["user"] == {}
    assert ADMIN_TOKEN not in json.dumps([config, env])


async def test_pod_is_its_service_account(cluster: LocalCluster) -> None:
    ((code, review),) = await calls_of(cluster, ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}))
    user = review["status"]["userInfo"]
    assert (code, user["username"]) == (201, "system:serviceaccount:default:default")
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["attacker"]


async def test_pod_may_do_in_its_namespace_what_programs_need_and_no_more(cluster: LocalCluster) -> None:
    await cluster.client.create(Namespace, {"metadata": {"name": "other"}})
    for namespace in ("default", "other"):
        await cluster.client.create(SECRETS, {"metadata": {"name": "s", "namespace": namespace}})
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    allowed = [
        ("GET", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "made"}}),
    ]
    refused = [
        ("GET", "/api/v1/namespaces/other/secrets"),
        ("GET", "/api/v1/namespaces/other/secrets/s"),
        ("GET", "/api/v1/namespaces/default/secrets/s"),
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/other/pods"),
        ("POST", "/api/v1/namespaces/other/pods", pod_body("x")),
        ("POST", f"{rbac}/clusterrolebindings", binding),
        ("POST", f"{rbac}/namespaces/default/rolebindings", binding),
        ("PATCH", "/api/v1/nodes/local", {"metadata": {"labels": {"a": "b"}}}),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {}),
        ("DELETE", "/api/v1/namespaces/default"),
    ]
    answers = await calls_of(cluster, *allowed, *refused)
    codes = [code for code, _ in answers]
    assert codes == [200, 201, *[403] * len(refused)], [answer for _, answer in answers]


async def test_token_of_a_deleted_pod_is_worth_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    script = f"""
import json, os, shutil
config = json.load(open(os.environ["KUBECONFIG"]))
shutil.copy(config["users"][0]["user"]["tokenFile"], {str(kept)!r})
print("{{}}")
"""
    await output_of(cluster, script)
    reviews: Resource[JSON] = Resource(
        "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", dict[str, Any], namespaced=False
    )
    body = {"spec": {"token": kept.read_text()}}
    assert (await cluster.client.create(reviews, body))["status"]["authenticated"]
    await cluster.client.delete(Pod, Key("default", "attacker"))
    await wait_until(lambda: _is_gone(cluster))
    status = (await cluster.client.create(reviews, body))["status"]
    assert status["error"] == "[invalid bearer token, service account token has been invalidated]"


async def _is_gone(cluster: LocalCluster) -> bool:
    try:
        await cluster.client.get(Pod, Key("default", "attacker"))
    except NotFound:
        return True
    return False
