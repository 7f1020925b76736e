"""Restart in place on real kubelets: in Kubernetes 1.35 by a restart rule, before that by new pods.

hack/test-cluster.sh runs with KUBERNETES_VERSION=1.35.4 as well; the tests know what that server offers.
"""

import json
import time
from typing import Any

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.jobs import pods_of, shell_job
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WORKERS = 3
TEAM = """
date +%s.%N
if [ -e /state/again ]; then echo again; exit 0; fi
touch /state/again
case $HOSTNAME in *-1) sleep 5; echo 'the GPU fell off the bus'; exit 42;; esac
sleep 3600
"""
"""In a new process, but not in a new pod, it succeeds. The peers of the one that fails would never notice."""


def offers_in_place(cluster: NodeCluster) -> bool:
    version = json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]
    return int(version["minor"].rstrip("+")) >= 35


def team(name: str) -> Any:
    state = {"name": "state", "mountPath": "/state"}
    job = shell_job(name, TEAM, workers=WORKERS, pod={"volumes": [{"name": "state", "emptyDir": {}}]})
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["volumeMounts"] = [state]
    rule = {"when": {"exitCodes": [42]}, "then": "RestartJob", "limit": 1}
    job["spec"]["runPolicy"] = {"recovery": {"inPlace": True, "rules": [rule]}, "cleanPodPolicy": "None"}
    return job


def status_of(cluster: NodeCluster, namespace: str, name: str) -> Any:
    text = cluster.kubectl("get", "tfjob", name, "--namespace", namespace, "--output=json")
    return json.loads(text).get("status") or {}


def program(pod: Any) -> Any:
    return next(status for status in pod["status"]["containerStatuses"] if status["name"] == "tensorflow")


def test_a_team_restarts_in_place(installed: NodeCluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not offers_in_place(installed):
        pytest.skip("the server is older than 1.35; the test below shows what happens then")
    installed.apply(team("stays"), namespace=namespace)
    installed.wait("tfjob/stays", "Running", namespace)
    before = pods_of(installed, namespace, "stays")
    assert len(before) == WORKERS
    wait_until_blocking(lambda: status_of(installed, namespace, "stays").get("recovery"))
    decided = time.monotonic()
    installed.wait("tfjob/stays", "Succeeded", namespace, seconds=100)
    with capsys.disabled():
        print(f"\nfrom the decision to the end of the second run: {time.monotonic() - decided:.1f} s")
    after, status = pods_of(installed, namespace, "stays"), status_of(installed, namespace, "stays")
    for name, pod in after.items():
        assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert pod["status"]["podIP"] == before[name]["status"]["podIP"]
        assert program(pod)["restartCount"] == 1
        assert program(pod)["containerID"] != program(before[name])["containerID"]
    assert status["restarts"] == 1
    assert (status["firstFailure"]["replica"], status["firstFailure"]["exitCode"]) == ("worker-1", 42)
    assert status["firstFailure"]["log"][-1] == "the GPU fell off the bus"
    assert status["recovery"]["message"].startswith("restarted in place because worker-1")
    ledger = status["goodput"]
    assert sum(ledger["seconds"].values()) > 0
    wait_until_blocking(
        lambda: {pod["status"]["phase"] for pod in pods_of(installed, namespace, "stays").values()} == {"Succeeded"}
    )


def test_where_it_is_not_offered_the_team_gets_new_pods(installed: NodeCluster, namespace: str) -> None:
    if offers_in_place(installed):
        pytest.skip("the server offers it; the test above shows how")
    installed.apply(team("goes"), namespace=namespace)
    installed.wait("tfjob/goes", "Running", namespace)
    before = {pod["metadata"]["uid"] for pod in pods_of(installed, namespace, "goes").values()}
    wait_until_blocking(lambda: status_of(installed, namespace, "goes").get("recovery"))
    message = status_of(installed, namespace, "goes")["recovery"]["message"]
    assert message.endswith("with new pods, because this cluster does not restart pods in place"), message
    wait_until_blocking(
        lambda: not before & {pod["metadata"]["uid"] for pod in pods_of(installed, namespace, "goes").values()}
    )
