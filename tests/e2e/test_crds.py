"""The definitions of the training jobs under the real kubectl, on a real kube-apiserver and on `gangline up`."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import TFJOB, TRAINING_KINDS
from gangline.schema.crds.gang_crds import GANG_RESOURCES
from support.cases.invalid_jobs import job_body, job_spec
from support.cluster.clients import DetachedPlane, Kubectl, find_kubectl, run_gangline
from support.servers.real import RealServer

DEFINED = (*TRAINING_KINDS, *GANG_RESOURCES)
MANIFESTS = Path(__file__).parents[2] / "manifests" / "crds"
REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("crds-real")])
EMBEDDED = pytest.param("embedded", marks=pytest.mark.xdist_group("crds-embedded"))


@pytest.fixture(scope="module", params=[REAL, EMBEDDED])
def kubectl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a server of this module's own, which has our definitions."""
    find_kubectl()
    plane = DetachedPlane(tmp_path_factory.mktemp("plane"))
    if request.param == "real":
        with RealServer() as server:
            shutil.copy(server.kubeconfig, plane.kubeconfig)
            yield _defined(Kubectl(plane))
    else:
        plane.up()
        yield _defined(Kubectl(plane))
        plane.down()


def _defined(kubectl: Kubectl) -> Kubectl:
    """Plain apply: the definitions fit the annotation in which kubectl remembers what it applied."""
    kubectl("apply", "--kustomize", str(MANIFESTS))
    # Not `kubectl wait`: it fails on a definition that has no conditions yet.
    deadline = time.monotonic() + 60
    plurals = ",".join(kind.plural for kind in TRAINING_KINDS)
    while kubectl.run("get", plurals).returncode != 0:
        assert time.monotonic() < deadline, f"not all of {plurals} are served"
    return kubectl


def test_definitions_are_printed_as_they_are_in_the_manifests(kubectl: Kubectl) -> None:
    printed = run_gangline("crds")
    assert printed.returncode == 0, printed.stderr
    told = kubectl("apply", "--filename", "-", stdin=printed.stdout)
    assert [line.rpartition(" ")[2] for line in told.splitlines()] == ["unchanged"] * len(DEFINED)


def test_described_definitions_are_applied_by_the_server_and_explained(kubectl: Kubectl) -> None:
    printed = run_gangline("crds", "--described")
    told = kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=printed.stdout)
    assert told.count("serverside-applied") == len(DEFINED)
    explained = _explained(kubectl, "tfjob.spec", "How the job runs")
    assert "tfReplicaSpecs\t<map[string]Object> -required-" in explained
    assert "runPolicy\t<Object>" in explained
    inside = "tfjob.spec.tfReplicaSpecs.template.spec.containers.image"
    assert "Container image name" in kubectl("explain", inside)


def _explained(kubectl: Kubectl, what: str, wanted: str) -> str:
    """What kubectl explains, once the server publishes the new schema: it does so a moment after taking it."""
    deadline = time.monotonic() + 60
    while wanted not in (found := kubectl("explain", what)):
        assert time.monotonic() < deadline, found
    return found


def test_person_sees_the_state_of_jobs_and_what_is_wrong_with_one(kubectl: Kubectl) -> None:
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", **job_body(TFJOB, job_spec(TFJOB), "seen")}
    # Nobody's operator touches it.
    body["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    assert kubectl("apply", "--filename", "-", stdin=body) == "tfjob.kubeflow.org/seen created\n"
    assert kubectl("get", "tfjobs").splitlines()[0].split() == ["NAME", "STATE", "AGE"]
    wide = kubectl("get", "tfjobs", "--output", "wide").splitlines()[0]
    assert wide.split() == ["NAME", "STATE", "AGE", "PHASE", "RESTARTS"]
    body["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 0
    refused = kubectl.run_failing("apply", "--filename", "-", stdin=body)
    where = "spec.tfReplicaSpecs.Worker.replicas"
    assert f"{where}: Invalid value: 0: {where} in body should be greater than or equal to 1" in refused


def test_worker_is_scaled_by_kubectl_within_limits(kubectl: Kubectl) -> None:
    body = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "scaled"}}
    container = {"name": "jax", "image": "i"}
    worker = {"template": {"spec": {"containers": [container]}}}
    policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
    body["spec"] = {"jaxReplicaSpecs": {"Worker": worker}, "runPolicy": policy}
    kubectl("create", "--filename", "-", stdin=body)
    kubectl("scale", "jaxjob", "scaled", "--replicas=3")
    assert kubectl.get("jaxjob", "scaled")["spec"]["jaxReplicaSpecs"]["Worker"]["replicas"] == 3
    assert "greater than or equal to 1" in kubectl.run_failing("scale", "jaxjob", "scaled", "--replicas=0")
