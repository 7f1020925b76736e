"""A folder that an earlier gangline left, before RBAC, service accounts and the checked store: `gangline up` continues it.

tests/data/planes/before-rbac.tar.xz was made with commit 15db998: `gangline up`, a few objects and two jobs by kubectl,
`gangline down`. Its CA and certificates are valid for ten years.
"""

import sys
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from support.cluster.clients import DetachedPlane, Kubectl
from support.servers.real import free_ports

ARCHIVE = Path(__file__).parents[1] / "data" / "planes" / "before-rbac.tar.xz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder as it was left, with a port that is free now, and the kubeconfig of before beside it."""
    where = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(where, filter="data")
    port = str(free_ports(1)[0])
    text = (where / "plane/kubeconfig").read_text().replace("/tmp/gangline-earlier", str(where))
    (where / "kubeconfig").write_text(text.replace((where / "plane/port").read_text().strip(), port))
    (where / "plane/port").write_text(port)
    (where / "ca.crt").write_bytes((where / "plane/certificates/ca.crt").read_bytes())
    return where


@pytest.fixture(scope="module")
def plane(folder: Path) -> Iterator[DetachedPlane]:
    found = DetachedPlane(folder / "plane")
    found.up()
    # Clients go on with the kubeconfig that they have.
    found.kubeconfig = folder / "kubeconfig"
    yield found
    found.down()


@pytest.fixture(scope="module")
def kubectl(plane: DetachedPlane) -> Kubectl:
    return Kubectl(plane)


def test_objects_and_the_administrators_token_stay(kubectl: Kubectl) -> None:
    assert kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.k}") == "v"
    assert kubectl("get", "secret", "s", "-o", "name") == "secret/s\n"
    assert kubectl("get", "clusterrole", "reader", "-o", "name") == "clusterrole.rbac.authorization.k8s.io/reader\n"
    assert kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}").startswith('["system:masters"')
    assert "condition met" in kubectl("wait", "--for=condition=Succeeded", "pytorchjob/ended", "--timeout=30s")


def test_definitions_are_brought_to_this_version(kubectl: Kubectl) -> None:
    assert kubectl("get", "mpijobs.v2beta1.kubeflow.org", "-o", "name") == ""


def test_certificates_of_ten_years_are_replaced(plane: DetachedPlane, folder: Path) -> None:
    now = datetime.now(UTC)
    earlier = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    assert earlier.not_valid_after_utc - earlier.not_valid_before_utc > timedelta(days=3000)
    for name, days in (("ca", 365), ("server", 31), ("admin", 31)):
        certificate = x509.load_pem_x509_certificate((plane.folder / f"certificates/{name}.crt").read_bytes())
        assert now < certificate.not_valid_after_utc <= now + timedelta(days=days), name


def test_a_job_that_ran_continues(kubectl: Kubectl) -> None:
    ready = ("wait", "--for=condition=Ready", "pod/lasting-master-0", "--timeout=60s")
    assert "condition met" in kubectl(*ready, timeout=90)
    assert (
        kubectl("get", "pod", "lasting-master-0", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") == "1"
    )


def test_a_pod_that_continues_has_no_administrators_token(kubectl: Kubectl, plane: DetachedPlane) -> None:
    kubectl("wait", "--for=condition=Ready", "pod/lasting-master-0", "--timeout=60s", timeout=90)
    token = (plane.folder / "token").read_bytes().strip()
    (folder,) = (plane.folder / "pods/pods").glob("default_lasting-master-0_*")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if token in path.read_bytes()] == []


def test_rbac_is_enforced_and_its_roles_are_there(kubectl: Kubectl) -> None:
    assert "cannot list resource" in kubectl.run_failing("get", "pods", "--as", "jane")
    assert kubectl("get", "clusterrole", "view", "edit", "admin", "cluster-admin", "gangline:pods", "-o", "name")
    account = "system:serviceaccount:team:bot"
    assert kubectl("auth", "can-i", "create", "pytorchjobs", "-n", "team", "--as", account) == "yes\n"
    assert kubectl("auth", "can-i", "get", "secrets", "-n", "team", "--as", account, code=1) == "no\n"


def test_new_pods_have_their_service_accounts_rights(kubectl: Kubectl, folder: Path) -> None:
    code = "from gangline import TrainingClient as C; print(C().list_jobs())"
    container = {"name": "pytorch", "image": "python", "command": [sys.executable, "-c", code]}
    replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "new"}}
    kubectl("create", "-f", "-", stdin={**job, "spec": {"pytorchReplicaSpecs": replicas}})
    done = kubectl.run("wait", "--for=condition=Succeeded", "pytorchjob/new", "--timeout=60s", timeout=90)
    assert done.returncode == 0, kubectl("logs", "new-master-0")
    listed = kubectl("logs", "new-master-0")
    assert all(f"default/{name}:" in listed for name in ("lasting", "ended", "new")), listed
    assert "Traceback" not in (folder / "plane/log").read_text()
