"""`gangline operator --metrics-secure` beside both API servers: who may read the metrics, and what the operator needs for it."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gangline.apiserver.audit.rights import read_events, used_rights
from gangline.base.certificates.x509_pem import issue, issue_ca
from support.cluster.installation import installed_rights
from support.cluster.operator_process import OperatorProcess, apply_object, running_operator
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.embedded import embedded_server
from support.servers.real import HOST, USERS, ApiServer, RealServer, find_assets

OPERATOR = "system:serviceaccount:gangline:gangline-operator"
READER, STRANGER = "system:serviceaccount:monitoring:prometheus", "stranger"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
ELECTION = ("--leader-elect", "--leader-election-namespace=gangline", "--enable-scheme=TFJob")


class MetricsCluster(NamedTuple):
    """An API server and its audit log."""

    server: ApiServer
    audit_log: Path

    def token(self, user: str) -> str:
        users = yaml.safe_load(self.server.kubeconfig.read_text())["users"]
        token: str = next(found["user"]["token"] for found in users if found["name"] == user)
        return token


@contextmanager
def real_cluster(folder: Path) -> Iterator[MetricsCluster]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    policy, audit_log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(POLICY)
    (folder / "server").mkdir()
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"]
    users = {**USERS, OPERATOR: (), READER: (), STRANGER: ()}
    with RealServer(directory=folder / "server", flags=flags, users=users) as running:
        yield MetricsCluster(running, audit_log)


@contextmanager
def embedded_cluster(folder: Path) -> Iterator[MetricsCluster]:
    with embedded_server(folder, [OPERATOR, READER, STRANGER]) as running:
        yield MetricsCluster(running, running.audit_log)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(real_cluster, marks=pytest.mark.real, id="real"),
        pytest.param(embedded_cluster, id="embedded"),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsCluster]:
    with request.param(tmp_path_factory.mktemp("cluster")) as found:
        install_crds(found.server, GANGLINE_OPERATOR.crds())
        for document in installed_rights({"namespace": {"create": True}, "metrics": {"secure": {"enabled": True}}}):
            apply_object(found.server, document)
        subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gangline-metrics-reader"}
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        apply_object(found.server, {**head, "metadata": {"name": "scraper"}, "roleRef": role, "subjects": [subject]})
        yield found


def scrape(
    operator: OperatorProcess, token: str | None, *, tls: ssl.SSLContext | None = None, header: str = "Bearer {}"
) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": header.format(token)}
    request = urllib.request.Request(f"https://{HOST}:{operator.metrics}/metrics", headers=headers)
    context = tls or ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_who_may_get_the_path_reads_metrics_and_nobody_else(cluster: MetricsCluster, tmp_path: Path) -> None:
    with running_operator(cluster.server, tmp_path, "--metrics-secure", *ELECTION, context=OPERATOR) as operator:
        status, text = scrape(operator, cluster.token(READER))
        assert status == 200
        assert "gangline_build_info" in text
        assert scrape(operator, cluster.token("admin"))[0] == 200
        assert scrape(operator, cluster.token(STRANGER)) == (403, 'user "stranger" cannot get path "/metrics"\n')
        assert scrape(operator, None) == (401, "a bearer token is needed\n")
        assert scrape(operator, "") == (401, "a bearer token is needed\n")
        assert scrape(operator, "made-up") == (401, "the token is not valid\n")
        assert scrape(operator, cluster.token(READER), header="Basic {}")[0] == 401
        # Nothing but TLS.
        with pytest.raises(OSError, match=r"."):
            urllib.request.urlopen(f"http://{HOST}:{operator.metrics}/metrics", timeout=30)
        log = operator.log.read_text()
    assert cluster.token(READER) not in log
    assert "made-up" not in log


def test_answers_are_kept_so_that_a_scraper_costs_two_reviews_and_no_more(
    cluster: MetricsCluster, tmp_path: Path
) -> None:
    with running_operator(cluster.server, tmp_path, "--metrics-secure", *ELECTION, context=OPERATOR) as operator:
        before = len(reviews(cluster))
        for _ in range(5):
            assert scrape(operator, cluster.token(READER))[0] == 200
        assert reviews(cluster)[before:] == ["tokenreviews", "subjectaccessreviews"]
        for _ in range(5):
            assert scrape(operator, "wrong")[0] == 401
        assert reviews(cluster)[before + 2 :] == ["tokenreviews"]
    used = {right.resource for right in used_rights(read_events(cluster.audit_log)) if right.user == OPERATOR}
    assert {"tokenreviews", "subjectaccessreviews"} <= used


def reviews(cluster: MetricsCluster) -> list[str]:
    """The reviews that the operator has asked for."""
    names = [
        event["objectRef"]["resource"]
        for event in read_events(cluster.audit_log)
        if event["user"]["username"] == OPERATOR and event["stage"] == "ResponseComplete" and "objectRef" in event
    ]
    return [name for name in names if name.endswith("reviews")]


def test_a_certificate_in_a_folder_can_be_verified(cluster: MetricsCluster, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ca = issue_ca(now)
    made = issue(ca, "metrics", now, hosts=(HOST,))
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)
    flags = ("--metrics-secure", f"--metrics-cert-path={folder}", *ELECTION)
    with running_operator(cluster.server, tmp_path, *flags, context=OPERATOR) as operator:
        tls = ssl.create_default_context(cadata=ca.certificate)
        assert scrape(operator, cluster.token(READER), tls=tls)[0] == 200
