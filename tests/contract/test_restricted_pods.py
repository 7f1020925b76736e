"""All pods of ours pass the real admission of Pod Security at its strictest level, `enforce: restricted`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.install.objects import install_objects
from gangline.install.values import InstallValues, SchedulerValues
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.manifests import Shipment, ShipmentForm, job_with_folder, loader_pod
from support.cluster.operator_process import APIS, TEAMS, create_object, job_pods, running_operator, set_phase
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("restricted-pods")]

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "restricted"
SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("server")) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        create_object(running, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        yield running


def admission_problem(server: RealServer, pod: Any) -> str:
    """Why the server refuses a pod; empty if it takes it. The pod is not created."""
    body = {"metadata": {"generateName": "try-"}, "spec": pod["spec"]}
    # Priority classes and image pull secrets are no matter of security.
    body["spec"] = {name: value for name, value in body["spec"].items() if name != "priorityClassName"}
    answer = server.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", body)
    return "" if answer.status == 201 else str(answer.body["message"])


def pod_templates(objects: list[Any]) -> dict[str, Any]:
    kinds = ("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod")
    found = {f"{one['kind']} {one['metadata']['name']}": one for one in objects if one["kind"] in kinds}
    return {name: one if one["kind"] == "Pod" else one["spec"]["template"] for name, one in found.items()}


def test_the_server_would_refuse_a_pod_that_is_not_restricted(server: RealServer) -> None:
    lax = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    assert "violates PodSecurity" in admission_problem(server, lax)


def test_manifests(server: RealServer) -> None:
    files = sorted((MANIFESTS / "base").glob("*.yaml")) + sorted((MANIFESTS / "components").rglob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]
    whole = [document for document in documents if document.get("kind") and "metadata" in document]
    templates = pod_templates(whole)
    assert len(templates) >= 2
    assert {what: admission_problem(server, pod) for what, pod in templates.items()} == dict.fromkeys(templates, "")


def test_everything_that_is_installed(server: RealServer) -> None:
    values = InstallValues(scheduler=SchedulerValues(enabled=True))
    templates = pod_templates(install_objects(values))
    assert len(templates) >= 2
    assert {what: admission_problem(server, pod) for what, pod in templates.items()} == dict.fromkeys(templates, "")


def restricted_job(kind: JobKind, name: str) -> Any:
    container = {"name": kind.container, "image": "i", "command": ["true"], "securityContext": SECURITY}
    template = {"spec": {"containers": [container]}}
    replicas = {replica: {"replicas": count, "template": template} for replica, count in TEAMS[kind.kind].items()}
    body = {"metadata": {"name": name}, "spec": {kind.replicas: replicas}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, **body}


def test_what_the_operator_adds_to_pods_of_restricted_jobs(server: RealServer, tmp_path: Path) -> None:
    """With the image that every installation names; v1's own helper images run as root."""
    with running_operator(server, tmp_path, "--agent-image=gangline:test", f"--namespace={NAMESPACE}"):
        for kind in TRAINING_KINDS:
            body = restricted_job(kind, kind.plural)
            create_object(server, f"{APIS}/namespaces/{NAMESPACE}/{kind.plural}", body)
        for kind in TRAINING_KINDS:
            wait_until_blocking(partial(has_all_pods, server, kind), f"{kind.plural}: pods are missing")


def has_all_pods(server: RealServer, kind: JobKind) -> bool:
    """Whether all pods were admitted. They run at once: the launcher of an MPIJob waits for that."""
    pods = job_pods(server, NAMESPACE, kind.plural)
    for pod in pods:
        if pod["status"].get("phase") != "Running":
            set_phase(server, pod, "Running")
    return len(pods) == sum(TEAMS[kind.kind].values())


@pytest.mark.parametrize("form", list(ShipmentForm))
def test_pods_that_carry_a_folder(server: RealServer, tmp_path: Path, form: ShipmentForm) -> None:
    (tmp_path / "train.py").write_text("")
    kind = TRAINING_KINDS[0]
    shipment = Shipment(list_files(tmp_path), form)
    body = job_with_folder(restricted_job(kind, "folder"), kind, shipment, "carrier")
    template = body["spec"][kind.replicas]["Worker"]["template"]
    assert [container["name"] for container in template["spec"]["initContainers"]] == ["gangline-unpack"]
    assert admission_problem(server, template) == ""
    assert admission_problem(server, loader_pod("claim", "folder", restricted_job(kind, "folder"), kind)) == ""
