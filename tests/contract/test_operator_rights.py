"""The operator on the embedded server, as the service account of its manifest: RBAC refuses it nothing, and the audit log
shows which of its rights it needs."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from support.cluster.accounts import GrantedRight, unused_rights
from support.cluster.operator_process import APIS, TEAMS, apply_object, create_object, job_conditions, running_operator
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.servers.embedded import EmbeddedServer, embedded_server
from support.waiting import wait_until_blocking

MANIFEST = Path(__file__).parents[2] / "manifests" / "rbac.yaml"
OPERATOR = "system:serviceaccount:gangline:gangline-operator"
# No image is pulled here.
NO_IMAGES = ("--mpi-kubectl-delivery-image=", "--pytorch-init-container-image=")
GROUPS = "/apis/scheduling.gangline.dev/v1alpha1/namespaces/default/podgroups"
OTHER_SCHEDULERS = ("scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io")
# Why the manifest grants what these jobs do not need.
NOT_USED_HERE: Mapping[str, Callable[[GrantedRight], bool]] = {
    "gangs of other schedulers": lambda right: right.group in OTHER_SCHEDULERS,
    "servers that check who may block a deletion": lambda right: right.resource.endswith("/finalizers"),
    "nobody may grant what they do not have": lambda right: right.resource == "pods/exec",
    "an object of that name exists, or an orphan is adopted": lambda right: right.verb == "get",
    "adoption, labels of an older version, a changed policy, repeated events": lambda right: right.verb == "patch",
}


@pytest.fixture
def documents() -> list[Any]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


@pytest.fixture
def server(tmp_path: Path, documents: list[Any]) -> Iterator[EmbeddedServer]:
    with embedded_server(tmp_path, [OPERATOR]) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        for document in documents:
            apply_object(running, document)
        yield running


def test_the_operator_needs_the_rights_of_its_manifest(
    server: EmbeddedServer, documents: list[Any], tmp_path: Path
) -> None:
    with running_operator(server, tmp_path, "--leader-elect", *NO_IMAGES, context=OPERATOR) as operator:
        run_every_kind(server)
        scale_and_restart(server)
        assert operator.ended(signal.SIGTERM) == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []
    with running_operator(server, tmp_path, "--gang-scheduler-name=gangline", *NO_IMAGES, context=OPERATOR) as operator:
        run_a_gang(server)
        assert operator.ended(signal.SIGTERM) == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []
    key = ("ClusterRole", "gangline-operator")
    (role,) = [document for document in documents if (document["kind"], document["metadata"]["name"]) == key]
    unused = unused_rights(OPERATOR, [role], server.audit_log)
    assert [right for right in unused if not any(explains(right) for explains in NOT_USED_HERE.values())] == []
    assert [why for why, explains in NOT_USED_HERE.items() if not any(map(explains, unused))] == []


def run_every_kind(server: EmbeddedServer) -> None:
    for kind in TRAINING_KINDS:
        submit(server, kind, kind.plural, "true", cleanPodPolicy="All", ttlSecondsAfterFinished=0)
    for kind in TRAINING_KINDS:
        wait_until_blocking(partial(is_gone, server, job_path(kind, kind.plural)), f"{kind.plural} stays")


def scale_and_restart(server: EmbeddedServer) -> None:
    tfjob, pytorchjob = TRAINING_KINDS[:2]
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": resource}]}
    submit(server, pytorchjob, "elastic", "true", spec={"elasticPolicy": elastic})
    wait_for(server, pytorchjob, "elastic", "Succeeded")
    submit(
        server, tfjob, "again", "test -e again-$HOSTNAME || { touch again-$HOSTNAME; exit 137; }", restart="ExitCode"
    )
    wait_for(server, tfjob, "again", "Succeeded")
    submit(server, tfjob, "broken", "echo what is wrong; exit 1")
    wait_for(server, tfjob, "broken", "Failed")


def run_a_gang(server: EmbeddedServer) -> None:
    kind = TRAINING_KINDS[1]
    submit(server, kind, "gang", "true")
    wait_until_blocking(lambda: server.call("GET", GROUPS).body["items"], "no group")
    suspension = {"spec": {"runPolicy": {"suspend": True}}}
    server.call("PATCH", job_path(kind, "gang"), suspension, content_type="application/merge-patch+json")
    wait_until_blocking(lambda: server.call("GET", GROUPS).body["items"] == [], "the group stays")


def submit(
    server: EmbeddedServer,
    kind: JobKind,
    name: str,
    script: str,
    *,
    restart: str = "Never",
    spec: Any = None,
    **policy: Any,
) -> None:
    container = {"name": kind.container, "image": "local", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container]}}
    replicas = {
        replica: {"replicas": count, "restartPolicy": restart, "template": template}
        for replica, count in TEAMS[kind.kind].items()
    }
    body: JSON = {"metadata": {"name": name}, "spec": {kind.replicas: replicas, "runPolicy": policy, **(spec or {})}}
    body |= {"apiVersion": "kubeflow.org/v1", "kind": kind.kind}
    create_object(server, f"{APIS}/namespaces/default/{kind.plural}", body)


def job_path(kind: JobKind, name: str) -> str:
    return f"{APIS}/namespaces/default/{kind.plural}/{name}"


def is_gone(server: EmbeddedServer, path: str) -> bool:
    return server.call("GET", path).status == 404


def wait_for(server: EmbeddedServer, kind: JobKind, name: str, condition: str) -> None:
    def has_condition() -> bool:
        return job_conditions(server, "default", kind, name).get(condition) == "True"

    wait_until_blocking(has_condition, f"{kind.kind} {name} did not become {condition}")
