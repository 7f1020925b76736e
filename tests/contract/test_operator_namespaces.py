"""`gangline operator --namespace a,b,c` beside a real kube-apiserver, with Roles in these namespaces and no cluster role."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.apiserver.audit.rights import read_events
from support.cluster.installation import installed_rights
from support.cluster.operator_process import (
    apply_object,
    bring_job_to,
    create_object,
    job_conditions,
    job_pods,
    running_operator,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator-namespaces")]

VALUES = {"watchNamespaces": ["team-a", "team-b"]}
ACCOUNT = "system:serviceaccount:team-a:gangline-operator"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
TFJOB, MPIJOB = TRAINING_KINDS[0], next(kind for kind in TRAINING_KINDS if kind.kind == "MPIJob")
OTHERS = [kind for kind in TRAINING_KINDS if kind is not MPIJOB]
LEASE = ("--leader-elect", "--leader-election-namespace=team-a")


def documents(namespace: str) -> list[Any]:
    """The objects of the manifest in a namespace; those of team-b, renamed, for one that it does not have."""
    mpi = [
        one
        for one in installed_rights({**VALUES, "rbac": {"mpiJobs": True}}, "team-a")
        if one["metadata"]["name"].endswith("-mpi") and one["metadata"]["namespace"] == "team-a"
    ]
    listed = [*installed_rights(VALUES, "team-a"), *mpi]
    like = namespace if namespace in ("team-a", "team-b") else "team-b"
    found = [document for document in listed if document["metadata"]["namespace"] == like]
    for document in found:
        document["metadata"]["namespace"] = namespace
    return found


def create_team(server: RealServer, namespace: str) -> None:
    """A namespace, and then the rights in it, one after the other."""
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for document in documents(namespace):
        apply_object(server, document)


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[RealServer]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("server")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"]
    users = {**USERS, ACCOUNT: ()}
    with RealServer(directory=folder, flags=flags, users=users, controller_manager=True) as running:
        if not running.has_controller_manager:
            skip_or_fail("kube-controller-manager not found, which deletes namespaces: run hack/kubernetes.sh")
        install_crds(running, GANGLINE_OPERATOR.crds())
        for name in ("team-a", "team-b"):
            create_team(running, name)
        create_object(running, "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        yield running


def test_it_serves_the_namespaces_of_the_list_and_asks_for_nothing_outside(
    server: RealServer, audit_log: Path, tmp_path: Path
) -> None:
    with running_operator(server, tmp_path, "--namespace=team-a,team-b", *LEASE, context=ACCOUNT) as operator:
        submit_job(server, "elsewhere", TFJOB, "elsewhere")
        submit_job(server, "team-b", MPIJOB, "without-rights")
        for kind in TRAINING_KINDS:
            submit_job(server, "team-a", kind, kind.plural)
        for kind in OTHERS:
            submit_job(server, "team-b", kind, kind.plural)
        for kind in TRAINING_KINDS:
            bring_job_to(server, "team-a", kind, kind.plural, "Succeeded")
        for kind in OTHERS:
            bring_job_to(server, "team-b", kind, kind.plural, "Succeeded")
        assert job_conditions(server, "elsewhere", TFJOB, "elsewhere") == {}
        assert job_conditions(server, "team-b", MPIJOB, "without-rights") == {}
        assert operator.ended(signal.SIGTERM) == 0
    events = [event for event in read_events(audit_log) if event["user"]["username"] == ACCOUNT]
    references = [event["objectRef"] for event in events if "objectRef" in event]
    assert {reference.get("namespace", "") for reference in references} == {"team-a", "team-b"}
    refused = [event for event in events if decision(event) == "forbid"]
    # MPIJobs have no rights in team-b.
    mpi_objects = {("team-b", name) for name in ("configmaps", "serviceaccounts", "roles", "rolebindings")}
    assert {(event["objectRef"]["namespace"], event["objectRef"]["resource"]) for event in refused} == mpi_objects
    leases = {reference["namespace"] for event in events if (reference := written_lease(event)) is not None}
    assert leases == {"team-a"}


def decision(event: Any) -> str:
    """What was decided; empty for the event of a request whose answer has not begun."""
    text: str = (event.get("annotations") or {}).get("authorization.k8s.io/decision", "")
    return text


def written_lease(event: Any) -> Any:
    reference = event.get("objectRef") or {}
    return reference if reference.get("resource") == "leases" and event["verb"] in ("create", "patch") else None


def test_a_namespace_may_come_later_and_go_and_come_again(server: RealServer, tmp_path: Path) -> None:
    with running_operator(server, tmp_path, "--namespace=team-a,team-c", *LEASE, context=ACCOUNT) as operator:
        submit_job(server, "team-a", TFJOB, "meanwhile")
        bring_job_to(server, "team-a", TFJOB, "meanwhile", "Running")
        for _ in range(2):
            create_team(server, "team-c")
            submit_job(server, "team-c", TFJOB, "late")
            bring_job_to(server, "team-c", TFJOB, "late", "Running")
            assert len(job_pods(server, "team-c", "late")) == 2
            for pod in job_pods(server, "team-c", "late"):  # as a kubelet would
                path = f"/api/v1/namespaces/team-c/pods/{pod['metadata']['name']}"
                server.call("DELETE", path, {"gracePeriodSeconds": 0})
            server.call("DELETE", "/api/v1/namespaces/team-c")
            wait_until_blocking(
                lambda: server.call("GET", "/api/v1/namespaces/team-c").status == 404,
                "the namespace stays",
                seconds=120,
            )
        bring_job_to(server, "team-a", TFJOB, "meanwhile", "Succeeded")
        assert operator.ready()
        assert operator.ended(signal.SIGTERM) == 0
    refusals = [line for line in operator.lines() if "forbidden" in json.dumps(line) and line["level"] == "warning"]
    assert refusals
    assert all("team-c" in json.dumps(line) or line.get("resource") in MPI_CACHES for line in refusals)


MPI_CACHES = (
    "configmaps",
    "serviceaccounts",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
)
