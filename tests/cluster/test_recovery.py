"""`runPolicy.recovery` on real kubelets: the cause of a failure decides what happens next, and the status says why."""

import json
from typing import Any

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.jobs import IMAGE, pods_of, shell_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NODE = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
PREFERS_N2 = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {
                    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]
                },
            }
        ]
    }
}


def status_of(cluster: NodeCluster, namespace: str, name: str) -> Any:
    return json.loads(cluster.kubectl("get", "tfjob", name, "--namespace", namespace, "--output=json"))["status"]


def pods_created(cluster: NodeCluster, namespace: str) -> int:
    """How many pods were ever created in a namespace."""
    since = json.loads(cluster.kubectl("get", "namespace", namespace, "--output=json"))["metadata"]["creationTimestamp"]
    lines = (json.loads(line) for line in cluster.layout.audit_log.read_text().splitlines())
    return sum(
        line["verb"] == "create"
        and line.get("objectRef", {}).get("resource") == "pods"
        and line["objectRef"].get("namespace") == namespace
        and "subresource" not in line["objectRef"]
        # It has fractions of a second, before the Z.
        and line["requestReceivedTimestamp"] >= since.removesuffix("Z")
        for line in lines
    )


def test_a_bug_is_not_retried(installed: NodeCluster, namespace: str) -> None:
    job = shell_job("bug", "", image=IMAGE)
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["python3", "-c", "rows = {}\nprint(rows['label'])"]
    job["spec"]["runPolicy"] = {"recovery": "auto", "backoffLimit": 3}
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/bug", "Failed", namespace)
    status = status_of(installed, namespace, "bug")
    recovery = status["recovery"]
    assert (recovery["action"], recovery["replica"], status.get("restarts", 0)) == ("Fail", "worker-0", 0)
    assert "KeyError: 'label'" in recovery["message"]
    assert recovery["message"] in next(one["message"] for one in status["conditions"] if one["type"] == "Failed")
    assert status["firstFailure"]["log"][-1] == "KeyError: 'label'"
    assert pods_created(installed, namespace) == 1


def test_what_a_node_kills_is_retried_elsewhere(installed: NodeCluster, namespace: str) -> None:
    # The first process of a container of its own would ignore its own signals.
    script = "echo on $NODE; if [ $NODE = n2 ]; then sleep 3; kill -9 $$$$; fi"
    pod = {"affinity": PREFERS_N2, "shareProcessNamespace": True}
    job = shell_job("bad-node", script, pod=pod, env=[NODE])
    job["spec"]["runPolicy"] = {"recovery": "auto", "cleanPodPolicy": "None"}
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/bad-node", "Succeeded", namespace)
    status = status_of(installed, namespace, "bad-node")
    recovery = status["recovery"]
    assert (recovery["action"], recovery["node"], status["restarts"]) == ("RestartElsewhere", "n2", 1)
    assert [one["name"] for one in recovery["excludedNodes"]] == ["n2"]
    assert recovery["message"].startswith("restarted elsewhere because worker-0 ")
    assert "node n2 is left out for 1h" in recovery["message"]
    (after,) = pods_of(installed, namespace, "bad-node").values()
    assert after["spec"]["nodeName"] == "n1"


def test_what_needs_more_memory_gets_it(installed: NodeCluster, namespace: str) -> None:
    job = shell_job("hungry", "", image=IMAGE, resources={"limits": {"memory": "48Mi"}})
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["python3", "-c", "rows = b'x' * (80 << 20); print('all rows fit')"]
    rule = {"when": {"causes": ["memory"]}, "then": "RaiseMemory", "upTo": "400Mi"}
    job["spec"]["runPolicy"] = {"recovery": {"rules": [rule]}, "cleanPodPolicy": "None"}
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/hungry", "Succeeded", namespace)
    status = status_of(installed, namespace, "hungry")
    (after,) = pods_of(installed, namespace, "hungry").values()
    limit = after["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert (status["recovery"]["action"], status["recovery"]["memory"]) == ("RaiseMemory", {"Worker": limit})
    assert limit != "48Mi"
    assert "because worker-0 was killed for using too much memory" in status["recovery"]["message"]
    assert status["restarts"] == pods_created(installed, namespace) - 1 > 0
