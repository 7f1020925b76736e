"""`gangline install`, `upgrade` and `uninstall` on a real API server with kube-controller-manager.

No container runs here: the operators' pods are processes beside the server, or nothing at all (operator_pods.py).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.install.record import RECORD_NAME
from support.cluster.operator_pods import OperatorKubelet, OperatorStarter, own_environment
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.terminal import PtyTerminal
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("install"), pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
OWNER, TEAM = "owner", "team-a"
ACCOUNTS = tuple(f"system:serviceaccount:{namespace}:gangline-operator" for namespace in ("gangline", TEAM))
DEPLOYMENT = "/apis/apps/v1/namespaces/gangline/deployments/gangline-operator"
RECORD = f"/api/v1/namespaces/gangline/configmaps/{RECORD_NAME}"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = f"/apis/kubeflow.org/v1/namespaces/{TEAM}/jaxjobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
MERGE = "application/merge-patch+json"


class Done:
    """What a command printed, and how it ended."""

    def __init__(self, process: "subprocess.CompletedProcess[str]") -> None:
        self.code, self.out, self.error = process.returncode, process.stdout, process.stderr

    @property
    def error_line(self) -> str:
        """The one line of an error."""
        assert self.code, self.out
        lines = [line for line in self.error.splitlines() if line]
        assert len(lines) == 1, self.error
        return lines[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    assets = find_assets()
    if assets is None or not (assets / "kube-controller-manager").exists():
        skip_or_fail("real Kubernetes is missing: run hack/kubernetes.sh")
    users = {**USERS, OWNER: (), **dict.fromkeys(ACCOUNTS, ())}
    with (
        RealServer(directory=tmp_path / "server", users=users, controller_manager=True) as running,
        OperatorKubelet(running, OperatorStarter(running, tmp_path)).running(),
    ):
        yield running


def gangline(server: RealServer, *words: str) -> Done:
    command = [sys.executable, "-m", "gangline", *words]
    environ = own_environment(server)
    return Done(
        subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False, input="")
    )


def succeed(server: RealServer, *words: str) -> str:
    done = gangline(server, *words)
    assert done.code == 0, f"{done.out}\n{done.error}"
    return done.out


def test_from_nothing_to_an_operator_and_back_to_nothing(server: RealServer) -> None:
    before = inventory(server)
    printed = succeed(server, "install", "--dry-run")
    assert "deployment.apps/gangline-operator created (server dry run)" in printed
    assert inventory(server) == before

    printed = succeed(server, "install", "--with", "scheduler", "--set", "scheduler.replicaCount=0", "--timeout", "90s")
    assert "deployment.apps/gangline-operator created" in printed
    assert "gangline-operator: 2/2 ready" in printed
    assert "ok       operator" in printed
    assert "jobs can run" in printed.splitlines()[-1]

    # Again: nothing changes, and nothing is written.
    versions = resource_versions(server)
    printed = succeed(server, "install", "--with", "scheduler", "--set", "scheduler.replicaCount=0")
    assert "nothing had to be changed" in printed
    assert resource_versions(server) == versions
    assert "with other values" in gangline(server, "install").error_line

    # An upgrade needs no flags; what is no longer part of the installation goes.
    assert "configured" not in succeed(server, "upgrade", "--dry-run")
    shown = succeed(server, "upgrade", "--set", "logLevel=debug", "--dry-run")
    assert "-        - --log-level=info\n+        - --log-level=debug\n" in shown
    printed = succeed(server, "upgrade", "--set", "scheduler.enabled=false")
    assert "deployment.apps/gangline-scheduler deleted" in printed
    assert not [name for name in inventory(server) if "gangline-scheduler" in name]
    assert json.loads(server.call("GET", RECORD).body["data"]["values"])["scheduler"]["replicaCount"] == 0

    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    assert server.call("POST", JOBS, jax_job("kept")).status == 201
    refused = gangline(server, "uninstall", "--delete-crds").error_line
    assert "8 definitions (CRDs) and with them 1 jobs, of which 1 have not ended" in refused
    printed = succeed(server, "uninstall")
    assert "kept: 8 definitions (CRDs) and 1 jobs (1 have not ended" in printed.splitlines()[-1]
    wait_until_blocking(lambda: server.call("GET", "/api/v1/namespaces/gangline").status == 404, "the namespace stays")
    assert server.call("GET", f"{JOBS}/kept").status == 200
    left = {name for name in inventory(server) - before if TEAM not in name}
    assert {name.split("/")[0] for name in left} == {"customresourcedefinitions"}
    assert "nothing is installed in namespace gangline" in gangline(server, "uninstall").error_line

    # The definitions are taken up by the next installation, and go with --delete-crds.
    succeed(server, "install", "--timeout", "90s")
    assert "kept" not in succeed(server, "uninstall", "--delete-crds", "--yes")
    wait_until_blocking(lambda: not server.call("GET", CRDS).body["items"], "CRDs stay")


def jax_job(name: str) -> Any:
    template = {"spec": {"containers": [{"name": "jax", "image": "train:1"}]}}
    spec = {"jaxReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": name}, "spec": spec}


def test_an_image_that_cannot_be_pulled_is_reported_before_the_time_is_over(server: RealServer) -> None:
    done = gangline(server, "install", "--image", "registry.example/broken:1", "--timeout", "10m")
    assert done.code == 1
    assert "ImagePullBackOff registry.example/broken:1: Failed to pull image" in done.error_line
    # It is recorded all the same: an upgrade mends it.
    assert "1/1 ready" in succeed(server, "upgrade", "--image", "gangline:1", "--set", "replicaCount=1")
    stopped = succeed(server, "upgrade", "--set", "replicaCount=0")
    assert "the operator has no replicas" in stopped
    assert "jobs can run" not in stopped


def test_what_does_not_become_ready_in_time_ends_with_101(server: RealServer) -> None:
    done = gangline(server, "install", "--image", "slow:1", "--timeout", "3s")
    assert done.code == 101, done.error
    assert "gangline-operator: 0/2 ready; not ready after 3 s, longer with --timeout" in done.error_line


def test_rights_in_one_namespace_are_enough_where_the_definitions_are(server: RealServer) -> None:
    assert "in the whole cluster" not in gangline(server, "install", "--context", OWNER).out
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    refused = gangline(server, "install", "--context", OWNER).error_line
    assert "gangline install --scope namespace=NAMESPACE" in refused
    subject = {"kind": "User", "name": OWNER, "apiGroup": "rbac.authorization.k8s.io"}
    bind(server, "admin", [subject])
    scoped = ("install", "--context", OWNER, "--scope", f"namespace={TEAM}")
    refused = gangline(server, *scoped).error_line
    assert "gangline crds | kubectl apply --server-side -f -" in refused
    # As an administrator does it.
    install_crds(server, GANGLINE_OPERATOR.crds())
    refused = gangline(server, *scoped).error_line
    assert f"--clusterrole cluster-admin --user {OWNER} -n {TEAM}" in refused
    bind(server, "cluster-admin", [subject])
    printed = succeed(server, *scoped, "--timeout", "90s")
    assert "tfjobs.kubeflow.org left as it is" in printed
    assert "ok       operator" in printed
    assert "clusterrole" not in printed
    namespace = server.call("GET", f"/api/v1/namespaces/{TEAM}").body
    assert not [label for label in namespace["metadata"]["labels"] if "pod-security" in label]
    printed = succeed(server, "uninstall", "--context", OWNER, "--namespace", TEAM)
    assert f"kept: namespace {TEAM}, which was there before" in printed
    left = server.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{TEAM}/leases").body["items"]
    assert left == []


def bind(server: RealServer, role: str, subjects: Sequence[Any]) -> None:
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": f"{role}-binding"}, "roleRef": reference, "subjects": subjects}
    assert server.call("POST", f"{RBAC}/namespaces/{TEAM}/rolebindings", body).status == 201


def test_what_belongs_to_others_is_not_changed(server: RealServer) -> None:
    succeed(server, "install", "--set", "replicaCount=0", "--no-wait")
    scaled = {"spec": {"replicas": 3}}
    path = f"{DEPLOYMENT}?fieldManager=somebody"
    assert server.call("PATCH", path, scaled, content_type=MERGE).status == 200
    refused = gangline(server, "upgrade").error_line
    assert "somebody has set other values of .spec.replicas" in refused
    assert "--force-conflicts" in refused
    succeed(server, "upgrade", "--force-conflicts", "--no-wait")
    assert server.call("GET", DEPLOYMENT).body["spec"]["replicas"] == 0

    helm = {"meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "ml"}
    annotations = {"metadata": {"annotations": helm}}
    assert server.call("PATCH", f"{DEPLOYMENT}?fieldManager=helm", annotations, content_type=MERGE).status == 200
    assert "helm uninstall ours -n ml" in gangline(server, "upgrade", "--set", "logLevel=warn").error_line

    older = {"data": {"version": "0.3.0"}}
    assert server.call("PATCH", RECORD, older, content_type=MERGE).status == 200
    assert "more than one minor version" in gangline(server, "upgrade").error_line


def test_a_deployment_that_selects_other_pods_must_go_first(server: RealServer) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "gangline"}})
    labels = {"app": "by-hand"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "gangline:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    path = DEPLOYMENT.rpartition("/")[0]
    assert server.call("POST", path, {"metadata": {"name": "gangline-operator"}, "spec": spec}).status == 201
    refused = gangline(server, "install", "--force-conflicts").error_line
    assert refused.endswith("kubectl delete deployments.apps gangline-operator -n gangline")


def test_one_minor_version_back_is_possible(server: RealServer) -> None:
    succeed(server, "install", "--set", "replicaCount=0", "--no-wait")
    assert server.call("PATCH", RECORD, {"data": {"version": "0.2.0"}}, content_type=MERGE).status == 200
    assert "is installed in namespace gangline" in succeed(server, "upgrade", "--no-wait")
    assert server.call("GET", RECORD).body["data"]["version"] == "0.1.0"


def test_another_operator_is_named_with_the_command_for_it(server: RealServer) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kubeflow"}})
    labels = {"app": "other"}
    containers = [{"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "training-operator"}, "spec": spec}
    assert server.call("POST", "/apis/apps/v1/namespaces/kubeflow/deployments", body).status == 201
    refused = gangline(server, "install").error_line
    assert "deployment kubeflow/training-operator with image" in refused
    assert "gangline handover" in refused
    assert server.call("GET", "/api/v1/namespaces/gangline").status == 404


def test_jobs_come_back_from_a_backup_as_the_page_says(server: RealServer, tmp_path: Path) -> None:
    succeed(server, "install", "--set", "replicaCount=0", "--no-wait")
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    for name in ("ended", "running"):
        assert server.call("POST", JOBS, jax_job(name)).status == 201
    now = "2026-01-02T03:04:05Z"
    conditions = [{"type": "Succeeded", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": now}]
    status = {"conditions": conditions, "completionTime": now, "startTime": now, "replicaStatuses": {}}
    assert server.call("PATCH", f"{JOBS}/ended/status", {"status": status}, content_type=MERGE).status == 200
    before = crd_specs(server)

    back_up, restore = page_commands("Back up, restore")[:2], page_commands("Back up, restore")[2:]
    for command in back_up:
        run_shell(server, command, tmp_path)
    succeed(server, "uninstall", "--delete-crds", "--yes")
    wait_until_blocking(lambda: not server.call("GET", CRDS).body["items"], "CRDs stay")
    for command in restore:
        if command.startswith("kubectl create"):
            wait_until_blocking(lambda: server.call("GET", JOBS).status == 200, "the kind is not served")
        run_shell(server, command, tmp_path)
    assert crd_specs(server) == before
    assert server.call("GET", f"{JOBS}/ended").body["status"]["conditions"] == conditions

    succeed(server, "install", "--set", "replicaCount=1", "--timeout", "90s")
    pods = f"/api/v1/namespaces/{TEAM}/pods"
    wait_until_blocking(lambda: server.call("GET", pods).body["items"], "the job has no pods")
    names = {pod["metadata"]["name"] for pod in server.call("GET", pods).body["items"]}
    assert names == {"running-worker-0"}


def test_the_images_are_those_that_the_page_prints(server: RealServer, tmp_path: Path) -> None:
    (command,) = page_commands("Without a network")
    assert run_shell(server, command, tmp_path).split() == ["image:", "gangline:0.1.0"]


def page_commands(heading: str) -> list[str]:
    """What docs/install.md says to type, below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.+)$", section, re.MULTILINE)


def run_shell(server: RealServer, command: str, folder: Path) -> str:
    assets = find_assets()
    path = os.pathsep.join([str(assets), str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**own_environment(server), "PATH": path}
    words = ["bash", "-c", f"set -o pipefail; {command}"]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def crd_specs(server: RealServer) -> dict[str, Any]:
    return {body["metadata"]["name"]: body["spec"] for body in server.call("GET", CRDS).body["items"]}


def test_a_terminal_shows_a_list_that_is_redrawn(server: RealServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gangline", "install", "--set", "replicaCount=1", "--timeout", "90s"]
    with PtyTerminal(command, cwd=tmp_path, env=own_environment(server), size=(30, 120)) as terminal:
        assert terminal.wait_for_exit() == 0, terminal.screen.text
    lines = terminal.screen.text.splitlines()
    assert "✓ definitions (CRDs)  8 created" in lines
    assert "✓ gangline-operator  1/1 ready" in lines
    assert not [line for line in lines if "gangline-operator  0/1" in line]
    assert terminal.screen.text.count("deployments") == 1


def test_a_plane_of_this_machine_needs_no_installation(tmp_path: Path) -> None:
    environ = {**os.environ, "GANGLINE_HOME": str(tmp_path / "home")}
    environ.pop("KUBECONFIG", None)

    def run(*words: str) -> Done:
        command = [sys.executable, "-m", "gangline", *words]
        return Done(subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False))

    assert run("up", "--detach").code == 0
    try:
        done = run("install")
        assert done.code == 0
        assert done.error.splitlines()[-1].startswith("nothing needs to be installed on this machine")
    finally:
        run("down")


def inventory(server: RealServer) -> set[str]:
    """The objects that an installation may have: `resource/namespace/name`."""
    roots = {
        "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
        "namespaces": "/api/v1",
        "configmaps": "/api/v1",
        "serviceaccounts": "/api/v1",
        "services": "/api/v1",
        "secrets": "/api/v1",
        "deployments": "/apis/apps/v1",
        "replicasets": "/apis/apps/v1",
        "leases": "/apis/coordination.k8s.io/v1",
        "poddisruptionbudgets": "/apis/policy/v1",
        "roles": RBAC,
        "rolebindings": RBAC,
        "clusterroles": RBAC,
        "clusterrolebindings": RBAC,
    }
    return {
        f"{resource}/{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for resource, root in roots.items()
        for item in server.call("GET", f"{root}/{resource}").body["items"]
        if item["metadata"].get("namespace") not in SYSTEM_NAMESPACES
    }


def resource_versions(server: RealServer) -> dict[str, str]:
    paths = [DEPLOYMENT, RECORD, f"{CRDS}/tfjobs.kubeflow.org", f"{RBAC}/clusterroles/gangline-operator"]
    return {path: server.call("GET", path).body["metadata"]["resourceVersion"] for path in paths}
