"""The dashboard on a real API server and on ours: a viewer sees what the viewer's Role allows, counted from the audit log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.audit.rights import read_events, used_rights
from gangline.base.clock import SystemClock
from gangline.dashboard.settings import DashboardSettings, LoginMethod
from gangline.frameworks.pytorch import PyTorch
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.operator.definitions import create_crds
from gangline.summary.objects import JOB_KINDS, NAMESPACES
from support.requirements import skip_or_fail
from support.servers.dashboard import DashboardPlane, dashboard_plane, job_body, served_dashboard, user_token
from support.servers.real import RealServer, find_assets

REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real")])
PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
READ = ["get", "list", "watch"]
RULES: tuple[JSON, ...] = (
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": READ},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": READ},
)
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews")


@pytest.fixture(params=[REAL, "embedded"])
async def plane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DashboardPlane]:
    if request.param == "embedded":
        async with dashboard_plane(tmp_path, ("jane",), login=LoginMethod.TOKEN) as embedded:
            yield embedded
        return
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "real").mkdir()
    log = tmp_path / "audit.log"
    flags = [f"--audit-policy-file={tmp_path / 'policy.yaml'}", f"--audit-log-path={log}"]
    users = {"admin": ("system:masters",), "jane": ()}
    with RealServer(directory=tmp_path / "real", flags=flags, users=users) as server:
        connection = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=tmp_path)
        settings = DashboardSettings(connection=connection, login=LoginMethod.TOKEN)
        async with HttpTransport(connection) as transport, served_dashboard(settings) as (address, dashboard):
            client = Client(transport)
            await create_crds(client, SystemClock(), [PyTorch().facts])
            yield DashboardPlane(client, address, dashboard, log)


async def test_a_viewer_with_a_role_sees_exactly_that(plane: DashboardPlane, request: pytest.FixtureRequest) -> None:
    for namespace in ("team-a", "team-b"):
        await plane.client.create(NAMESPACES, {"metadata": {"name": namespace}})
        for number in range(3):
            body = job_body(f"bert-{number}", ["sleep", "60"], workers=0)
            body["spec"]["runPolicy"] = {"suspend": True}
            await plane.client.create(PYTORCHJOBS, body, namespace=namespace)
    await plane.allow("jane", "team-a", *RULES)
    token = "jane-token" if plane.cluster is None else user_token("jane")
    shown: set[str] = set()
    async with plane.logged_in(token) as browser:
        session = await browser.get("/api/session")
        assert (session["user"], session["namespaces"], session["canSeeAllNamespaces"]) == ("jane", None, False)
        for namespace in ("team-a", "team-b", ""):
            async with browser.stream(f"view=board&namespace={namespace}") as events:
                snapshot = await anext(events)
            shown |= {row["id"] for row in snapshot.data["rows"]}
            assert bool(snapshot.data["refused"]) or namespace == "team-a"
        shown |= {row["id"] for row in (await browser.get("/api/jobs?namespace=team-b"))["rows"]}
        detail = await browser.get("/api/jobs/team-a/pytorchjobs/bert-1")
        assert detail["row"]["name"] == "bert-1"
        assert not any(detail["allowed"].values())
        for path in ("", "/logs", "/why", "/curves"):
            status, answer = await browser.call("GET", f"/api/jobs/team-b/pytorchjobs/bert-1{path}")
            assert status == 403, (path, answer)
        status, answer = await browser.call("POST", "/api/jobs/team-a/pytorchjobs/bert-1/actions/delete", {})
        assert (status, answer["error"]["resource"], answer["error"]["namespace"]) == (403, "pytorchjobs", "team-a")
        assert "kubectl create rolebinding" in answer["error"]["message"]
        curves = await browser.get("/api/jobs/team-a/pytorchjobs/bert-1/curves")
        # Who may not read the metrics of pods is told so; a server that has none is not asked for them.
        missing = "no metrics.k8s.io" if plane.cluster is None else "jane may not list pods.metrics.k8s.io"
        assert missing in curves["usage"]["note"]
        cluster = await browser.get("/api/cluster")
        assert (cluster["nodes"], {item["resource"] for item in cluster["refused"]}) == ([], {"nodes", "pods"})
    assert shown == {f"team-a/pytorchjobs/bert-{number}" for number in range(3)}

    events_of_viewer = [event for event in read_events(plane.audit_log) if _is_dashboards(event)]
    assert {event["user"]["username"] for event in events_of_viewer} == {"jane"}
    rights = {right for right in used_rights(events_of_viewer) if right.resource and right.resource not in REVIEWS}
    assert {(right.namespace, right.verb in READ) for right in rights} == {("team-a", True)}
    assert {right.resource for right in rights} == {"pytorchjobs", "pods", "events"}
    ended = [event for event in events_of_viewer if event["stage"] == "ResponseComplete"]
    changed = [event for event in ended if event["verb"] not in (*READ, "create")]
    assert {(event["verb"], event["responseStatus"]["code"]) for event in changed} == {("delete", 403)}


def _is_dashboards(event: JSON) -> bool:
    return str(event.get("userAgent", "")).startswith("gangline-dashboard/")
