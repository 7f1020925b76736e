"""The verbs beside kubectl, on a real API server: the same words print the same."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.schema.crds.job_crds import crd
from support.cluster.clients import Kubectl
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets

WORDS = (
    ("get", "pods"),
    ("get", "pods", "-o", "wide"),
    ("get", "pods", "--show-labels"),
    ("get", "pods,cm"),
    ("get", "pod/b", "cm/kube-root-ca.crt"),
    ("get", "pods", "a", "none"),
    ("get", "pods", "-l", "app=x", "--no-headers"),
    ("get", "pods", "--field-selector", "metadata.name=a"),
    ("get", "pods", "-o", "name"),
    ("get", "pods", "-o", "json"),
    ("get", "pod", "a", "-o", "yaml"),
    ("get", "pod", "a", "-o", "yaml", "--show-managed-fields"),
    ("get", "tfjobs", "-o", "yaml"),
    ("get", "tfjob/t", "-o", "json"),
    ("get", "tfjobs", "-o", "jsonpath={range .items[*]}{.metadata.name}{'\\n'}{end}"),
    (
        "get",
        "pods",
        "-o",
        "custom-columns=N:.metadata.name,L:.metadata.labels,C:.spec.containers[*].name,X:.x",
    ),
    ("get", "pods", "--sort-by", "{.metadata.name}"),
    ("get", "leases", "-n", "kube-system"),
    ("get", "roles"),
    ("get", "none"),
    ("get", "pods", "-o", "xml"),
)


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One of its own: elsewhere our kinds are defined, redefined and deleted all the time."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("server")) as running:
        yield running


class Place:
    """The real server, for clients that find it by their environment."""

    def __init__(self, server: RealServer, home: Path) -> None:
        self.environment: Mapping[str, str] = {
            **os.environ,
            "KUBECONFIG": str(server.kubeconfig),
            "HOME": str(home),
        }


def gangline(place: Place, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=place.environment, timeout=60)


def pod(name: str, **labels: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "args": ["- a", "yes", "0644", "a\nb\n", "x: y", "<&>"]}]
    metadata = {"name": name, "labels": labels, "annotations": {"when": "2026-01-02T03:04:05Z", "empty": ""}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def tfjob(name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
    }


def ageless(text: str) -> str:
    """Without ages, which may differ by the second between two looks, and the width they take."""
    return re.sub(r" +(?:AGE|(?:\d+[smhd])+)(?: +|$)", " AGE ", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def defined(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> RealServer:
    """The server with our kinds, applied by ourselves."""
    found = Place(real_server, tmp_path_factory.mktemp("home"))
    bodies = [crd(kind) for kind in TRAINING_KINDS]
    applied = gangline(found, "apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, bodies)))
    assert applied.returncode == 0, applied.stderr
    # Not `kubectl wait`: it fails on a definition that has no conditions yet.
    plurals, end = ",".join(kind.plural for kind in TRAINING_KINDS), time.monotonic() + 60
    while Kubectl(found).run("get", plurals).returncode != 0:  # type: ignore[arg-type]
        assert time.monotonic() < end, f"not all of {plurals} are served"
    return real_server


@pytest.fixture
def place(defined: RealServer, tmp_path: Path) -> Place:
    """That server, for somebody who has nothing cached of it."""
    return Place(defined, tmp_path)


def test_the_same_words_print_what_kubectl_prints(place: Place, real_namespace: str) -> None:
    kubectl = Kubectl(place, real_namespace)  # type: ignore[arg-type]
    files = "\n---\n".join(map(json.dumps, [pod("b"), pod("a", app="x"), tfjob("t")]))
    made = gangline(place, "apply", "-n", real_namespace, "-f", "-", stdin=files)
    assert made.stdout == "pod/b created\npod/a created\ntfjob.kubeflow.org/t created\n", made.stderr
    for words in WORDS:
        own = () if "-n" in words else ("-n", real_namespace)
        theirs, ours = kubectl.run(*words), gangline(place, *words, *own)
        assert ours.returncode == theirs.returncode, words
        assert ageless(ours.stdout) == ageless(theirs.stdout), words
        if words[-1] != "xml":
            assert ours.stderr == theirs.stderr, words


def test_a_job_that_no_operator_sees_is_pending_with_all_of_kubectls_deletion(
    place: Place, real_namespace: str
) -> None:
    there = ("-n", real_namespace)
    assert gangline(place, "create", *there, "-f", "-", stdin=json.dumps(tfjob("t"))).returncode == 0
    again = gangline(place, "create", *there, "-f", "-", stdin=json.dumps(tfjob("t")))
    assert again.returncode == 1
    assert again.stderr == 'Error from server (AlreadyExists): tfjobs.kubeflow.org "t" already exists\n'
    listed = gangline(place, "get", "jobs", *there, "--no-headers").stdout.split()
    assert listed[:4] == ["TFJob", "t", "Pending", "0/2"]
    assert gangline(place, "suspend", "t", *there).stdout == "tfjob.kubeflow.org/t suspended\n"
    assert gangline(place, "scale", "t", "--replicas", "3", *there).returncode == 0
    looked = gangline(place, "get", "tfjob/t", *there, "-o", "jsonpath={.spec.tfReplicaSpecs.Worker.replicas}")
    assert looked.stdout == "3"
    assert gangline(place, "wait", "t", "--timeout", "100ms", *there).returncode == 101
    assert gangline(place, "top", "t", *there).returncode == 1
    told = gangline(place, "doctor", *there)
    assert told.returncode == 1
    assert "no sign of one" in told.stdout
    gone = gangline(place, "delete", "t", *there)
    assert gone.stdout == f'tfjob.kubeflow.org "t" deleted from {real_namespace} namespace\n'


def test_what_the_server_refuses_is_told_with_the_line(place: Place, real_namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    body = tfjob("t")
    body["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = -1
    file.write_text(json.dumps(body, indent=2))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "-1" in text)
    done = gangline(place, "apply", "-n", real_namespace, "-f", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {file}:{line}: spec.tfReplicaSpecs.Worker.replicas")


def test_who_may_not_is_told_so(place: Place, real_namespace: str) -> None:
    done = gangline(place, "get", "pods", "-n", real_namespace, "--as", "nobody")
    assert done.returncode == 1
    assert done.stderr.startswith('Error from server (Forbidden): pods is forbidden: User "nobody" cannot list')


def test_a_field_without_effect_is_told_when_it_is_applied(place: Place, real_namespace: str) -> None:
    body = tfjob("scoped")
    body["spec"]["runPolicy"] = {"restartScope": "Job"}
    made = gangline(place, "apply", "-n", real_namespace, "-f", "-", stdin=json.dumps(body))
    assert made.stdout == "tfjob.kubeflow.org/scoped created\n"
    assert "spec.runPolicy.restartScope: has no effect on failures of every replica" in made.stderr
