"""`runPolicy.recovery` with an operator process beside a real kube-apiserver, with no more rights than it is installed with.

There is no kubelet and no scheduler: the test binds pods to nodes, and says what becomes of them.
"""

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import JAXJOB
from support.cluster.installation import installed_rights
from support.cluster.operator_process import (
    APIS,
    apply_object,
    create_object,
    job_pods,
    running_operator,
    set_phase,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("recovery")]

OPERATOR = "system:serviceaccount:gangline:gangline-operator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("server"), users={**USERS, OPERATOR: ()}) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        for document in installed_rights({"namespace": {"create": True}}):
            apply_object(running, document)
        yield running


def new_namespace(server: RealServer) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def started_pods(server: RealServer, namespace: str, node: str) -> list[Any]:
    """The pods of the namespace's job, bound to a node and running."""
    pods = wait_until_blocking(lambda: fresh_pods(server, namespace), "no pods were created")
    for pod in pods:
        bind(server, pod, node)
        set_phase(server, pod, "Running")
    return pods


def fresh_pods(server: RealServer, namespace: str) -> list[Any] | None:
    """The pods of the namespace's job if all are new. Those that are being deleted go at once, as if a kubelet had ended them."""
    pods = job_pods(server, namespace, "job")
    for pod in pods:
        if "deletionTimestamp" in pod["metadata"]:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            server.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
    pending = [pod for pod in pods if pod["status"]["phase"] == "Pending" and "nodeName" not in pod["spec"]]
    return pods if len(pods) == len(pending) == 2 else None


def bind(server: RealServer, pod: Any, node: str) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}, "target": {"name": node}}
    answer = server.call("POST", path, body)
    assert answer.status == 201, answer.body


def excluded(pod: Any) -> list[str]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [field["values"][0] for term in terms for field in term.get("matchFields", [])]


def disliked(pod: Any) -> list[str]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [field["values"][0] for term in preferred for field in term["preference"]["matchFields"]]


def job_status(server: RealServer, namespace: str) -> Any:
    return server.call("GET", f"{APIS}/namespaces/{namespace}/{JAXJOB.plural}/job").body.get("status") or {}


def test_a_node_is_left_by_the_job_and_then_by_others(server: RealServer, tmp_path: Path) -> None:
    with running_operator(server, tmp_path, context=OPERATOR) as operator:
        # Four nodes are known by the pods on them.
        others = [new_namespace(server) for _ in range(3)]
        for number, namespace in enumerate(others):
            submit_job(server, namespace, JAXJOB, "job")
            started_pods(server, namespace, f"good-{number}")
        teams = [new_namespace(server) for _ in range(3)]
        for number, namespace in enumerate(teams):
            submit_job(server, namespace, JAXJOB, "job", recovery="auto", cleanPodPolicy="All")
            pods = started_pods(server, namespace, "bad")
            # Two owners are enough to dislike a node.
            assert disliked(pods[0]) == (["bad"] if number == 2 else [])
            set_phase(server, pods[1], "Failed", 137)
            replaced = wait_until_blocking(partial(fresh_pods, server, namespace), "the team did not restart")
            assert [excluded(pod)[:1] for pod in replaced] == [["bad"], ["bad"]]
            status = job_status(server, namespace)
            assert (status["restarts"], status["recovery"]["action"]) == (1, "RestartElsewhere")
            assert (status["recovery"]["cause"], status["recovery"]["node"]) == ("killed", "bad")
            assert "worker-1 (rank 1) was killed from outside" in status["recovery"]["message"]
        fourth = new_namespace(server)
        submit_job(server, fourth, JAXJOB, "job", recovery="auto")
        pods = wait_until_blocking(lambda: fresh_pods(server, fourth), "no pods were created")
        assert [excluded(pod) for pod in pods] == [["bad"], ["bad"]]
        wait_until_blocking(lambda: has_event(server, fourth, "NodeAvoided"), "no event says so")
        operator.counts("gangline_bad_nodes", 3, node="bad", level="required")
        plain = new_namespace(server)
        submit_job(server, plain, JAXJOB, "job")
        pods = wait_until_blocking(lambda: fresh_pods(server, plain), "no pods were created")
        assert all("affinity" not in pod["spec"] for pod in pods)
    # What an operator has learnt is in the statuses of jobs.
    with running_operator(server, tmp_path, context=OPERATOR):
        fifth = new_namespace(server)
        submit_job(server, fifth, JAXJOB, "job", recovery="auto")
        pods = wait_until_blocking(lambda: fresh_pods(server, fifth), "no pods were created")
        assert [excluded(pod) for pod in pods] == [["bad"], ["bad"]]


def has_event(server: RealServer, namespace: str, reason: str) -> bool:
    events = server.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    return any(event["reason"] == reason for event in events)


def test_a_node_is_forgiven_by_pods_that_wait(server: RealServer, tmp_path: Path) -> None:
    policy = {"rules": [{"when": {"causes": ["killed"]}, "then": "RestartElsewhere", "for": "5s"}]}
    with running_operator(server, tmp_path, "--bad-node-share=0", context=OPERATOR):
        namespace = new_namespace(server)
        submit_job(server, namespace, JAXJOB, "job", recovery=policy)
        pods = started_pods(server, namespace, "only")
        set_phase(server, pods[0], "Failed", 137)
        waiting = wait_until_blocking(lambda: fresh_pods(server, namespace), "the team did not restart")
        assert [excluded(pod) for pod in waiting] == [["only"], ["only"]]
        wait_until_blocking(
            lambda: (found := fresh_pods(server, namespace)) and not any(map(excluded, found)), "it was not forgiven"
        )
        assert job_status(server, namespace)["restarts"] == 1
