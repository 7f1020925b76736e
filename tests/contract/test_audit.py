"""The audit log, event by event as kube-apiserver writes it: the same requests to both servers."""

import json
import ssl
import uuid
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.api.meta import JSON
from gangline.apiserver.audit.log import AuditSettings
from gangline.apiserver.audit.policy import parse_policy
from gangline.apiserver.audit.rights import UsedRight, read_events, used_rights
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import UserInfo
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets
from support.waiting import wait_until

AGENT = "auditor/1.0"
POLICIES = {
    "RequestResponse": """
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  users: ["system:apiserver"]
- level: RequestResponse
""",
    "by-rule": """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/version*"]
- level: Metadata
  resources: [{group: "", resources: [secrets, "pods/*"]}]
- level: Request
  verbs: [create, patch, update]
- level: RequestResponse
  userGroups: ["system:masters"]
  omitStages: [ResponseStarted]
- level: Metadata
  omitStages: [ResponseComplete]
""",
}

Call = tuple[str, str, Any, Mapping[str, str]]
NS = "/api/v1/namespaces/default"
MERGE = {"Content-Type": "application/merge-patch+json"}
REVIEW = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "unknown": 1}]}}
SECRET = {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
CALLS: tuple[Call, ...] = (
    ("POST", f"{NS}/configmaps?fieldManager=x", {"metadata": {"name": "a"}, "data": {"k": "v"}}, {"Audit-Id": "mine"}),
    ("POST", f"{NS}/configmaps", {"metadata": {"name": "a"}}, {}),
    ("GET", f"{NS}/configmaps/a", None, {}),
    ("GET", f"{NS}/configmaps/missing", None, {}),
    ("GET", f"{NS}/configmaps?fieldSelector=metadata.name%3Da", None, {}),
    ("GET", f"{NS}/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da", None, {}),
    ("GET", f"{NS}/configmaps?watch=1&labelSelector=a%3D%3D%3Db", None, {}),
    ("PATCH", f"{NS}/configmaps/a", {"data": {"k": "<w>"}}, MERGE),
    ("PUT", f"{NS}/configmaps/a", {"metadata": {"name": "a"}, "data": {"k": "x"}}, {}),
    ("GET", f"{NS}/configmaps/a", None, {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}),
    ("DELETE", f"{NS}/configmaps/a", {"propagationPolicy": "Background"}, {}),
    ("DELETE", f"{NS}/configmaps?labelSelector=q%3Dz", None, {}),
    ("POST", f"{NS}/secrets", SECRET, {}),
    ("DELETE", f"{NS}/secrets/s", None, {}),
    ("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "bot"}}, {}),
    ("POST", f"{NS}/serviceaccounts/bot/token", {}, {}),
    ("POST", f"{NS}/pods?dryRun=All", POD, {}),
    ("POST", f"{NS}/pods", {**POD, "metadata": {"name": "P_"}}, {}),
    ("GET", f"{NS}/pods/none/log", None, {}),
    ("GET", f"{NS}/pods", None, {"Authorization": "Bearer nobody-token"}),
    ("GET", f"{NS}/pods", None, {"Authorization": "Bearer bad-token"}),
    ("GET", f"{NS}/pods", None, {"Authorization": ""}),
    ("GET", "/apis/nothing.example", None, {"Authorization": "Bearer nobody-token"}),
    ("GET", "/api/v1/namespaces/nowhere", None, {}),
    ("GET", "/foo?a=b&c=d", None, {}),
    ("GET", f"{NS}/pods", None, {"Impersonate-User": "nobody", "Impersonate-Group": "g1"}),
    ("GET", f"{NS}/pods", None, {"Impersonate-User": "nobody", "Authorization": "Bearer nobody-token"}),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW, {}),
    ("POST", f"{NS}/configmaps", b"[]", {}),
    ("PATCH", "/api/v1", {}, {}),
    ("PUT", f"{NS}/pods", {}, {}),
    ("OPTIONS", f"{NS}/pods", None, {}),
    ("GET", "/apis/example.com/v1/widgets", None, {}),
    ("GET", "/version", None, {"X-Forwarded-For": "192.0.2.1, 192.0.2.2", "User-Agent": AGENT + "x" * 1100}),
)


async def play(url: str, tls: ssl.SSLContext, token: str, log: Path) -> list[JSON]:
    """The events of all calls, normalised."""
    headers = {"Authorization": f"Bearer {token}", "User-Agent": AGENT}
    async with aiohttp.ClientSession(url, headers=headers, connector=aiohttp.TCPConnector(ssl=tls)) as session:
        for method, path, body, extra in CALLS:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            content = {"Content-Type": "application/json"} if data is not None else {}
            async with session.request(method, path, data=data, headers={**content, **extra}) as response:
                await response.read()
                assert response.headers["Audit-Id"] == extra.get("Audit-Id", response.headers["Audit-Id"])
        last = str(uuid.uuid4())
        async with session.get("/readyz", headers={"Audit-Id": last}) as response:
            await response.read()
    await wait_until(lambda: any(event["auditID"] == last for event in read_events(log)))
    events = [event for event in read_events(log) if event.get("userAgent", "").startswith(AGENT)]
    return [normalised(event) for event in events if event["auditID"] != last]


VOLATILE = (
    "uid",
    "time",
    "resourceVersion",
    "creationTimestamp",
    "requestReceivedTimestamp",
    "stageTimestamp",
    "auditID",
    "token",
    "expirationTimestamp",
)


def normalised(event: JSON) -> JSON:
    event = without_volatile(event)
    event["user"].pop("uid", None)
    annotations = event.get("annotations") or {}
    credential = "authentication.kubernetes.io/issued-credential-id"
    if credential in annotations:
        annotations[credential] = annotations[credential][: len("JTI=")]
    return event


def without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_volatile(item) for key, item in value.items() if key not in VOLATILE}
    return [without_volatile(item) for item in value] if isinstance(value, list) else value


@pytest.fixture
def own_real_server(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], RealServer]:
    """Starts a kube-apiserver with an audit policy."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")

    def start(policy: str) -> RealServer:
        file = tmp_path / "policy.yaml"
        file.write_text(policy)
        flags = [f"--audit-policy-file={file}", f"--audit-log-path={tmp_path / 'real.log'}"]
        (tmp_path / "real").mkdir()
        server = RealServer(directory=tmp_path / "real", flags=flags)
        server.start()
        request.addfinalizer(server.stop)
        return server

    return start


async def embedded_events(folder: Path, policy: str) -> list[JSON]:
    users = {"nobody-token": UserInfo("nobody", ("system:authenticated",))}
    log = folder / "audit.log"
    settings = PlaneSettings(
        certificates=folder / "certificates",
        users=users,
        warn_on_inert_kinds=False,
        disabled_admission_plugins=("ServiceAccount",),  # as in the real server of tests
        audit=AuditSettings(log, parse_policy(policy, "policy.yaml")),
    )
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.certificates is not None
        tls = ssl.create_default_context(cafile=plane.certificates.ca)
        return await play(plane.url, tls, plane.token, log)


@pytest.mark.real
@pytest.mark.parametrize("name", POLICIES)
async def test_the_events_are_those_of_kube_apiserver(
    name: str, tmp_path: Path, own_real_server: Callable[[str], RealServer]
) -> None:
    real = own_real_server(POLICIES[name])
    tls = ssl.create_default_context(cafile=real.ca)
    expected = await play(real.url, tls, real.token, tmp_path / "real.log")
    ours = await embedded_events(tmp_path, POLICIES[name])
    differences = [(event, wanted) for event, wanted in zip_longest(ours, expected) if event != wanted]
    assert not differences


async def test_rights_used_are_read_from_the_log(tmp_path: Path) -> None:
    await embedded_events(tmp_path, POLICIES["by-rule"])
    rights = used_rights(read_events(tmp_path / "audit.log"))
    assert UsedRight("admin", "get", "", "configmaps", "", "default", "a") in rights
    assert UsedRight("admin", "create", "", "configmaps", "", "default") in rights
    assert UsedRight("admin", "impersonate", resource="users", resource_name="nobody") in rights
    assert UsedRight("admin", "impersonate", resource="groups", resource_name="g1") in rights
    assert UsedRight("admin", "get", path="/foo") in rights
    assert not [right for right in rights if right.user == "nobody"]


async def test_no_secret_and_no_token_is_in_the_log_below_the_request_level(tmp_path: Path) -> None:
    await embedded_events(tmp_path, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]")
    text = (tmp_path / "audit.log").read_text()
    assert "secrets" in text
    assert not [secret for secret in ("hunter2", "aHVudGVyMg", "-token", "Bearer") if secret in text]
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600
