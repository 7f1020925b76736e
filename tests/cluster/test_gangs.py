"""The gang scheduler beside kube-scheduler, on real nodes."""

import pytest

from gangline.api.quantity import Quantity
from support.nodes.inside import NodeCluster
from support.nodes.jobs import phases, pods_of, shell_job
from support.nodes.node import BUSYBOX
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_gang_waits_whole_until_another_leaves(installed: NodeCluster, namespace: str) -> None:
    millis = min(Quantity.parse(node["status"]["allocatable"]["cpu"]).milli() for node in installed.objects("nodes"))
    # One on each node, and no second.
    resources = {"requests": {"cpu": f"{millis * 6 // 10}m"}}
    first = shell_job("first", "exec sleep 1000", workers=2, resources=resources)
    second = shell_job("second", "true", workers=2, resources=resources)
    installed.apply(first, namespace=namespace)
    installed.wait("tfjob/first", "Running", namespace)
    assert {pod["spec"]["nodeName"] for pod in pods_of(installed, namespace, "first").values()} == {"n1", "n2"}

    installed.apply(second, namespace=namespace)
    group = "podgroups.scheduling.gangline.dev/second"
    wait_until_blocking(lambda: len(pods_of(installed, namespace, "second")) == 2)
    # While the gang waits, pods of others are placed by kube-scheduler.
    plain = {"containers": [{"name": "main", "image": BUSYBOX, "command": ["true"]}], "restartPolicy": "Never"}
    installed.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": plain}, namespace=namespace
    )
    installed.kubectl("wait", "pod/plain", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "-n", namespace)
    waiting = pods_of(installed, namespace, "second")
    assert phases(waiting) == ["Pending", "Pending"]
    assert not any(pod["spec"].get("nodeName") for pod in waiting.values())
    installed.kubectl(
        "wait", group, "--for=jsonpath={.status.state.phase}=Pending", "--timeout=60s", "--namespace", namespace
    )

    installed.kubectl("delete", "tfjob/first", "--namespace", namespace)
    installed.wait("tfjob/second", "Succeeded", namespace)


@pytest.mark.slow
def test_an_urgent_gang_takes_the_place_of_another(installed: NodeCluster, namespace: str) -> None:
    millis = min(Quantity.parse(node["status"]["allocatable"]["cpu"]).milli() for node in installed.objects("nodes"))
    resources = {"requests": {"cpu": f"{millis * 6 // 10}m"}}
    urgent_class = f"urgent-{namespace}"
    installed.kubectl("create", "priorityclass", urgent_class, "--value=1000")
    try:
        patient = shell_job("patient", "exec sleep 1000", workers=2, resources=resources)
        installed.apply(patient, namespace=namespace)
        installed.wait("tfjob/patient", "Running", namespace)
        urgent = shell_job("urgent", "true", workers=2, resources=resources)
        urgent["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": urgent_class}}
        installed.apply(urgent, namespace=namespace)
        installed.wait("tfjob/urgent", "Succeeded", namespace)
        # The other one comes back as soon as there is room.
        wait_until_blocking(lambda: phases(pods_of(installed, namespace, "patient")) == ["Running", "Running"])
    finally:
        installed.kubectl("delete", "priorityclass", urgent_class)
