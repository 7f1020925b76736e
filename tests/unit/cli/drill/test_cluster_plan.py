"""What a drill does in a cluster, and which rights that needs."""

from typing import Any

import pytest

from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.meta import JSON
from gangline.cli.drill.cluster_plan import cluster_plan, exec_command, helper_pod


def pod(**container: Any) -> JSON:
    return {
        "metadata": {"name": "bert-worker-1", "namespace": "team", "uid": "u"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "pytorch", "image": "bert:1", **container}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "10Mi"}}],
        },
        "status": {
            "containerStatuses": [
                {"name": "pytorch", "state": {"running": {}}, "containerID": "containerd://abc123"},
            ]
        },
    }


def request(fault: FaultKind, **more: Any) -> FaultRequest:
    return FaultRequest(id="x", fault=fault, **more)


@pytest.mark.parametrize(
    ("fault", "rights", "words"),
    [
        (FaultKind.KILL, ["create pods", "get pods", "delete pods"], "SIGKILL"),
        (FaultKind.HANG, ["create pods", "get pods", "delete pods"], "SIGSTOP, and SIGCONT after 10 s"),
        (FaultKind.EVICT, ["create pods/eviction"], "evict pod bert-worker-1"),
        (FaultKind.NODE_LOST, ["patch nodes", "delete pods"], "cordon node n1 for 10 s"),
        (FaultKind.OOM, ["create pods/exec"], "more memory than its limit of 1Gi"),
        (FaultKind.DISK, ["create pods/exec"], "write 11 MiB into volume scratch"),
    ],
)
def test_each_fault_says_what_it_does_and_needs(fault: FaultKind, rights: list[str], words: str) -> None:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    plan = cluster_plan(request(fault), [pod(resources={"limits": {"memory": "1Gi"}}, volumeMounts=mounts)])
    assert not plan.refusal
    assert [str(right).removesuffix(" in namespace team") for right in plan.rights] == rights
    assert words in "\n".join(plan.does)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (FaultKind.PORT, "--kill"),
        (FaultKind.SLOW_NETWORK, "--slow"),
        (FaultKind.BAD_NODE, "--node-lost"),
        (FaultKind.OOM, "has no memory limit"),
        (FaultKind.DISK, "--evict"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line_with_another_way(fault: FaultKind, words: str) -> None:
    refusal = cluster_plan(request(fault), [pod()]).refusal
    assert words in refusal
    assert "\n" not in refusal


def test_the_pod_that_sends_signals_sits_on_the_node_of_the_victim_and_has_few_rights() -> None:
    body = helper_pod(request(FaultKind.KILL), pod())
    spec = body["spec"]
    [container] = spec["containers"]
    assert (spec["nodeName"], spec["hostPID"], container["image"]) == ("n1", True, "bert:1")
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert {"name": "CONTAINER_ID", "value": "abc123"} in container["env"]
    # Kubernetes would expand $(...) in a command.
    assert "$(" not in container["command"][2].replace("$$(", "")


def test_the_command_that_fills_a_volume_writes_more_than_its_limit() -> None:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    command = exec_command(request(FaultKind.DISK), pod(volumeMounts=mounts))
    assert command[-1] == "count=11"
    assert "of=/scratch/.gangline-drill" in command
