"""`gangline operator` receives progress beside both API servers, with the rights of an installation and no more."""

import json
import signal
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.apiserver.audit.rights import read_events, used_rights
from gangline.install.rules import PROGRESS_RULES
from support.cluster.installation import installed_rights
from support.cluster.operator_process import (
    APIS,
    OperatorProcess,
    apply_object,
    create_object,
    job_pods,
    running_operator,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.embedded import embedded_server
from support.servers.real import HOST, USERS, ApiServer, RealServer, find_assets, free_ports
from support.waiting import wait_until_blocking

OPERATOR = "system:serviceaccount:gangline:gangline-operator"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
ELECTION = ("--leader-elect", "--leader-election-namespace=gangline")
WISH = "training.gangline.dev/report-progress"
LAST = {"progressPercentage": 100, "metrics": [{"name": "loss", "value": "0.25"}]}


class ProgressCluster(NamedTuple):
    """An API server, its audit log, and a namespace with an account."""

    server: ApiServer
    audit_log: Path

    def make_namespace(self) -> str:
        name = f"team-{uuid.uuid4().hex[:6]}"
        create_object(self.server, "/api/v1/namespaces", {"metadata": {"name": name}})
        create_object(self.server, f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "trainer"}})
        return name

    def submit(self, namespace: str, name: str, **annotations: str) -> None:
        """A job whose pods nobody places."""
        container = {"name": PYTORCHJOB.container, "image": "none"}
        spec = {"containers": [container], "serviceAccountName": "trainer", "schedulerName": "nobody"}
        replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": spec}}}
        metadata = {"name": name, "annotations": annotations}
        body = {"metadata": metadata, "spec": {PYTORCHJOB.replicas: replicas}}
        body |= {"apiVersion": "kubeflow.org/v1", "kind": PYTORCHJOB.kind}
        create_object(self.server, f"{APIS}/namespaces/{namespace}/{PYTORCHJOB.plural}", body)

    def pod(self, namespace: str, name: str) -> Any:
        wait_until_blocking(lambda: job_pods(self.server, namespace, name), "no pod was created")
        return job_pods(self.server, namespace, name)[0]

    def token(self, pod: Any) -> str:
        """The token that a kubelet would put into the pod's volume."""
        metadata, (volume,) = pod["metadata"], progress_volumes(pod)
        source = volume["projected"]["sources"][0]["serviceAccountToken"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        seconds = source["expirationSeconds"]
        spec = {"audiences": [source["audience"]], "expirationSeconds": seconds, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/trainer/token"
        token: str = create_object(self.server, path, {"spec": spec})["status"]["token"]
        return token

    def progress(self, namespace: str, name: str) -> Any:
        job = self.server.call("GET", f"{APIS}/namespaces/{namespace}/{PYTORCHJOB.plural}/{name}").body
        return (job.get("status") or {}).get("progress")


def progress_volumes(pod: Any) -> list[Any]:
    return [volume for volume in pod["spec"].get("volumes") or [] if volume["name"] == "gangline-progress"]


def variables(pod: Any) -> Mapping[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in pod["spec"]["containers"][0].get("env") or []}


@contextmanager
def real_cluster(folder: Path) -> Iterator[ProgressCluster]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    policy, audit_log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(POLICY)
    (folder / "server").mkdir()
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"]
    with RealServer(directory=folder / "server", flags=flags, users={**USERS, OPERATOR: ()}) as running:
        yield ProgressCluster(running, audit_log)


@contextmanager
def embedded_cluster(folder: Path) -> Iterator[ProgressCluster]:
    with embedded_server(folder, [OPERATOR]) as running:
        yield ProgressCluster(running, running.audit_log)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(real_cluster, marks=pytest.mark.real, id="real"),
        pytest.param(embedded_cluster, id="embedded"),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgressCluster]:
    with request.param(tmp_path_factory.mktemp("cluster")) as found:
        install_crds(found.server, GANGLINE_OPERATOR.crds())
        for document in installed_rights({"namespace": {"create": True}, "progress": {"enabled": True}}):
            apply_object(found.server, document)
        yield found


@contextmanager
def receiving_operator(cluster: ProgressCluster, folder: Path, *flags: str) -> Iterator[tuple[OperatorProcess, int]]:
    """An operator, and the port on which it receives progress."""
    (port,) = free_ports(1)
    address = (f"--progress-bind-address={HOST}:{port}", f"--progress-url=http://{HOST}:{port}")
    flags = ("--enable-scheme=PyTorchJob", "--take-over", *address, *flags)
    with running_operator(cluster.server, folder, *flags, context=OPERATOR) as operator:
        yield operator, port


def post(port: int, pod: Any, token: str, report: Any = LAST) -> int:
    """Report as a program in the pod does, to the operator at a port."""
    url = variables(pod)["KUBEFLOW_TRAINER_SERVER_URL"]
    path = url.partition("://")[2].partition("/")[2]
    data = json.dumps({"trainerStatus": report}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{HOST}:{port}/{path}", data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_report_to_any_replica_is_in_the_status_of_the_job(cluster: ProgressCluster, tmp_path: Path) -> None:
    team = cluster.make_namespace()
    with receiving_operator(cluster, tmp_path, *ELECTION) as (leader, first):
        cluster.submit(team, "bert", **{WISH: "true"})
        pod = cluster.pod(team, "bert")
        token = cluster.token(pod)
        with receiving_operator(cluster, tmp_path, *ELECTION) as (other, second):
            assert post(second, pod, token, {"progressPercentage": 40}) == 200
            found = wait_until_blocking(lambda: cluster.progress(team, "bert"), "the status has no progress")
            assert (found["step"], found["total"], found["replica"]) == (40, 100, "master-0")
            other.counts("gangline_progress_reports_total", 1, code="200")
            assert post(first, pod, token) == 200
        wait_until_blocking(
            lambda: cluster.progress(team, "bert").get("metrics") == {"loss": 0.25},
            "the last report is not in the status",
        )
        leader.counts("gangline_progress_writes_total", 1, result="written")
        logs = leader.log.read_text() + other.log.read_text()
    assert token not in logs
    # The right that is installed for it is used.
    used = {right.resource for right in used_rights(read_events(cluster.audit_log)) if right.user == OPERATOR}
    assert {resource for rule in PROGRESS_RULES for resource in rule.resources} <= used


def test_pods_of_jobs_that_do_not_ask_for_it_are_unchanged(cluster: ProgressCluster, tmp_path: Path) -> None:
    team = cluster.make_namespace()
    with receiving_operator(cluster, tmp_path):
        cluster.submit(team, "plain")
        pod = cluster.pod(team, "plain")
    assert not progress_volumes(pod)
    assert "KUBEFLOW_TRAINER_SERVER_URL" not in variables(pod)


def test_with_a_flag_all_jobs_report_but_those_that_do_not_want_to(cluster: ProgressCluster, tmp_path: Path) -> None:
    team = cluster.make_namespace()
    with receiving_operator(cluster, tmp_path, "--inject-progress"):
        cluster.submit(team, "plain")
        cluster.submit(team, "silent", **{WISH: "false"})
        assert progress_volumes(cluster.pod(team, "plain"))
        assert not progress_volumes(cluster.pod(team, "silent"))


def test_what_waits_is_written_when_the_operator_is_stopped(cluster: ProgressCluster, tmp_path: Path) -> None:
    team = cluster.make_namespace()
    with receiving_operator(cluster, tmp_path) as (operator, port):
        cluster.submit(team, "bert", **{WISH: "true"})
        pod = cluster.pod(team, "bert")
        token = cluster.token(pod)
        for percentage in (10, 20, 30):
            assert post(port, pod, token, {"progressPercentage": percentage}) == 200
        assert operator.ended(signal.SIGTERM) == 0
    annotation = cluster.pod(team, "bert")["metadata"]["annotations"]["training.gangline.dev/progress"]
    assert json.loads(annotation) == {"progress": {"step": 30, "total": 100}}


def test_without_the_right_to_review_tokens_the_program_is_told(cluster: ProgressCluster, tmp_path: Path) -> None:
    team = cluster.make_namespace()
    role = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangline-operator-progress"
    binding = cluster.server.call("GET", role).body
    with receiving_operator(cluster, tmp_path) as (_, port):
        cluster.submit(team, "bert", **{WISH: "true"})
        pod = cluster.pod(team, "bert")
        token = cluster.token(pod)
        assert cluster.server.call("DELETE", role).status == 200
        try:
            wait_until_blocking(lambda: post(port, pod, token) == 503, "the report was accepted")
        finally:
            metadata = {"name": binding["metadata"]["name"]}
            names = ("roleRef", "subjects", "kind", "apiVersion")
            apply_object(cluster.server, {**{name: binding[name] for name in names}, "metadata": metadata})
        wait_until_blocking(lambda: post(port, pod, token) == 200, "the report was not accepted")
