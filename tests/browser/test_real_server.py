"""Every view on a real kube-apiserver, for a viewer who has a Role in one namespace: what is asked is counted from the audit log."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from gangline.apiserver.audit.rights import read_events, used_rights
from support.browser import WIDTHS, OpenedPage, PageOpener
from support.cluster.operator_process import apply_object, create_object, running_operator
from support.requirements import skip_or_fail
from support.servers.real import LoggedProcess, RealServer, find_assets
from support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]
NODE = "node-1"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
READ = ["get", "list", "watch"]
ROLE = [
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": READ},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": READ},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews")
TRAIN = """
import itertools, json, time
for step in itertools.count():
    print(json.dumps({"progress": {"step": step, "total": 100000, "loss": 9 / (step + 1)}}), flush=True)
    time.sleep(0.2)
"""
JOB = "#/job/team-a/pytorchjobs/bert"
VIEWS = {
    "board": ("#/?namespace=team-a", "[data-id='team-a/pytorchjobs/bert'] .badge[data-state=Running]"),
    "all namespaces": ("#/", ".notice"),
    "queues": ("#/?namespace=team-a&layout=lanes", ".card"),
    "job": (JOB, ".timeline-picture .span[data-state=running]"),
    "curves": (f"{JOB}?tab=curves", ".chart canvas"),
    "events": (f"{JOB}?tab=events", ".event"),
    "pods": (f"{JOB}?tab=pods", "#job-panel td"),
    "conditions": (f"{JOB}?tab=conditions", "#job-panel td"),
    "yaml": (f"{JOB}?tab=yaml", ".code-line"),
    "cluster": ("#/cluster", ".notice"),
    "sweeps": ("#/sweeps", "h1"),
    "submit": ("#/submit", "textarea"),
    "another team's job": ("#/job/team-b/pytorchjobs/bert", ".notice"),
}


class RealDashboard(NamedTuple):
    """A dashboard of a real server."""

    url: str
    server: RealServer
    audit_log: Path
    marker: str


def job(marker: str) -> dict[str, Any]:
    """A team of two that report progress; `marker` is on the command line of its processes."""
    container = {"name": "pytorch", "image": "none", "command": [sys.executable, "-c", TRAIN, marker]}
    template = {"spec": {"nodeName": NODE, "containers": [container]}}
    roles = {role: {"replicas": 1, "restartPolicy": "OnFailure", "template": template} for role in ("Master", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def workers(marker: str) -> list[psutil.Process]:
    """The processes with a marker, or one that begins so, at the end of their command line."""
    found = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [process for process in found if process.info["cmdline"][-1].startswith(marker)]


@contextmanager
def program(folder: Path, *arguments: str | Path) -> Iterator[LoggedProcess]:
    """A command of ours, until the block ends."""
    command = [sys.executable, "-m", "gangline", *map(str, arguments)]
    process = LoggedProcess(command, folder / f"{arguments[0]}.log")
    try:
        yield process
    finally:
        process.kill()


def end_processes(marker: str) -> None:
    """Pods outlive a node that is killed."""
    for process in workers(marker):
        with suppress(psutil.Error):
            for each in (process.parent(), process):
                if each is not None:
                    each.kill()


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDashboard]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("real")
    (folder / "policy.yaml").write_text(POLICY)
    log, marker = folder / "audit.log", f"marker-of-{folder.name}"
    flags = [f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={log}"]
    users = {"admin": ("system:masters",), "jane": ()}
    with ExitStack() as stack:
        server = stack.enter_context(RealServer(directory=folder / "server", flags=flags, users=users))
        for file in sorted((ROOT / "manifests" / "crds").glob("kubeflow.org_*.yaml")):
            apply_object(server, yaml.safe_load(file.read_text()))
        state = folder / "node"
        state.mkdir()
        known: list[str | Path] = ["--kubeconfig", server.kubeconfig]
        stack.callback(end_processes, marker)
        stack.enter_context(program(folder, "node", "--name", NODE, "--dir", state, *known))
        stack.enter_context(running_operator(server, folder))
        for team in ("team-a", "team-b"):
            create_object(server, "/api/v1/namespaces", {"metadata": {"name": team}})
            create_object(server, f"/apis/kubeflow.org/v1/namespaces/{team}/pytorchjobs", job(f"{marker}-{team}"))
        grant(server, "jane", "team-a")
        stack.enter_context(program(folder, "dashboard", "--port", "0", "--login", "token", *known))
        printed = folder / "dashboard.log"
        wait_until_blocking(lambda: printed.exists() and "\n" in printed.read_text(), "the dashboard does not start")
        url = printed.read_text().splitlines()[0].removeprefix("dashboard: ").strip()
        yield RealDashboard(url, server, log, marker)


def grant(server: RealServer, user: str, namespace: str) -> None:
    """A Role in one namespace, and nothing else."""
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    group = "rbac.authorization.k8s.io"
    create_object(server, f"{root}/roles", {"metadata": {"name": user}, "rules": ROLE})
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
    }
    create_object(server, f"{root}/rolebindings", binding)


def log_in(dashboard: RealDashboard, open_page: PageOpener) -> OpenedPage:
    """A page of jane's, who typed her token."""
    opened = open_page(dashboard.url)
    opened.page.goto(f"{dashboard.url}/")
    opened.page.fill("input[type=password]", "jane-token")
    assert opened.violations() == []
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("h1:has-text('Jobs')")
    return opened


def test_every_view_opens_for_a_viewer_with_a_role_in_one_namespace(
    dashboard: RealDashboard, open_page: PageOpener, tmp_path: Path
) -> None:
    opened = log_in(dashboard, open_page)
    for view, (address, part) in VIEWS.items():
        opened.go(address)
        for width in WIDTHS:
            opened.resize(width)
            opened.page.wait_for_selector(part)
            opened.settle()
            opened.picture(f"real-{view.replace(' ', '-')}-{width}", tmp_path)
            assert opened.overflow() <= 0, (view, width)
            assert opened.violations() == [], (view, width)
        text = opened.page.inner_text("main")
        assert "team-b/bert" not in text
        match view:
            case "all namespaces":
                assert "jane may not list pytorchjobs, pods, events in all namespaces; shown are team-a" in text
                assert "jane may not list tfjobs, xgboostjobs, mpijobs, paddlejobs, jaxjobs in all namespaces;" in text
            case "cluster":
                assert "jane may not list nodes in the cluster" in text
                assert "Nodes cannot be shown with your rights" in text
            case "another team's job":
                assert "jane may not" in text
            case "curves":
                assert "the cluster has no metrics.k8s.io" in text


def test_lines_and_a_killed_worker_are_shown_as_they_come(dashboard: RealDashboard, open_page: PageOpener) -> None:
    opened = log_in(dashboard, open_page)
    opened.go(JOB)
    opened.page.wait_for_selector(".log-line")

    def last_step() -> int:
        script = "() => [...document.querySelectorAll('.log-line')].map((line) => line.innerText).join('\\n')"
        steps = [part.split(",")[0] for part in str(opened.page.evaluate(script)).split('"step": ')[1:]]
        return max(map(int, steps), default=0)

    before = last_step()
    wait_until_blocking(lambda: last_step() > before + 5, "no new lines")
    followed = [
        event
        for event in read_events(dashboard.audit_log)
        if "follow=true" in event["requestURI"] and event["user"]["username"] == "jane"
    ]
    assert {event["objectRef"]["namespace"] for event in followed} == {"team-a"}
    workers(f"{dashboard.marker}-team-a")[-1].kill()
    opened.page.wait_for_selector(
        ".timeline-picture .mark:is([data-kind=first-failure], [data-kind=failure], [data-kind=restart])"
    )
    opened.settle()
    assert opened.violations() == []


def test_the_server_was_asked_for_nothing_else(dashboard: RealDashboard, open_page: PageOpener) -> None:
    """After the tests above: all requests were jane's, and what was allowed is what her Role allows."""
    log_in(dashboard, open_page)
    events = [
        event
        for event in read_events(dashboard.audit_log)
        if str(event.get("userAgent", "")).startswith("gangline-dashboard/")
    ]
    assert {event["user"]["username"] for event in events} == {"jane"}
    rights = {right for right in used_rights(events) if right.resource and right.resource not in REVIEWS}
    assert rights, "she has read something"
    assert {(right.namespace, right.verb in READ) for right in rights} == {("team-a", True)}
    refused = [event for event in events if (event.get("responseStatus") or {}).get("code") == 403]
    # What she may not read is asked by a review, and not tried: but for the namespaces, the job of another team, and what
    # `why` reads beyond her Role, nodes and the newer events.
    assert {event["objectRef"]["resource"] for event in refused} <= {"namespaces", "pytorchjobs", "nodes", "events"}
    counts: dict[tuple[str, str], int] = {}
    for event in events:
        if event["stage"] == "ResponseComplete" and event["verb"] == "list":
            name = event["objectRef"]["resource"], event["objectRef"].get("namespace", "")
            counts[name] = counts.get(name, 0) + 1
    views = len(VIEWS) + 3
    assert all(count <= 3 * views for count in counts.values()), counts
