"""Jobs on real nodes while their operator or a node goes away."""

from datetime import UTC, datetime

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE
from support.nodes.jobs import example, pods_of, release, replica_specs, spread, uids, waiting_job
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

LEASE = "1ca428e5.training-operator.kubeflow.org"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def leader(cluster: NodeCluster) -> str:
    """The pod that acts."""
    holder = cluster.kubectl(
        "get", f"lease/{LEASE}", "--namespace", NAMESPACE, "--output=jsonpath={.spec.holderIdentity}"
    )
    return holder.partition("_")[0]


def test_the_leader_is_killed_in_the_middle_and_no_pod_is_lost_or_doubled(
    installed: NodeCluster, namespace: str
) -> None:
    began = datetime.now(UTC)
    names = [f"job-{number}" for number in range(6)]
    installed.apply(*(waiting_job(name, workers=2) for name in names[:3]), namespace=namespace)
    for name in names[:3]:
        installed.wait(f"tfjob/{name}", "Running", namespace)
    killed = leader(installed)
    installed.apply(*(waiting_job(name, workers=2) for name in names[3:]), namespace=namespace)
    installed.kubectl("delete", f"pod/{killed}", "--namespace", NAMESPACE, "--grace-period=0", "--force")
    wait_until_blocking(lambda: leader(installed) not in ("", killed))
    for name in names:
        installed.wait(f"tfjob/{name}", "Running", namespace)
    release(installed, namespace)
    for name in names:
        installed.wait(f"tfjob/{name}", "Succeeded", namespace)

    created = [line for line in installed.audit(began, ["create"], "pods") if _of(line, namespace)]
    made = [line["objectRef"]["name"] for line in created if line["responseStatus"]["code"] == 201]
    assert sorted(made) == sorted(f"{name}-worker-{index}" for name in names for index in range(2))
    restarts = {name: restarts for name in names for restarts in uids(pods_of(installed, namespace, name)).values()}
    assert {count for _, count in restarts.values()} == {0}


@pytest.mark.slow
def test_a_team_heals_when_a_node_loses_its_power(installed: NodeCluster, namespace: str) -> None:
    job = spread(example(installed, namespace, "tfjob-numpy.yaml", "linear.py"))
    specs = replica_specs(job)
    specs["PS"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    specs["Worker"]["template"]["spec"]["containers"][0]["command"] = [
        "python",
        "linear.py",
        "--steps",
        "300",
        "--pace",
        "0.1",
    ]
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/linear", "Running", namespace)
    wait_until_blocking(lambda: "step" in installed.kubectl("logs", "linear-worker-0", "-n", namespace, check=False))
    before = pods_of(installed, namespace, "linear")
    lost = {name for name, pod in before.items() if pod["spec"]["nodeName"] == "n2"}
    assert lost, uids(before)
    installed.power_off("n2")
    try:
        installed.wait("node/n2", "Ready=Unknown")
        # The administrator knows that the node is off, and says so: its pods go, and come back elsewhere.
        installed.kubectl("taint", "node", "n2", f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
        installed.wait("tfjob/linear", "Succeeded", namespace, seconds=240)
        after = pods_of(installed, namespace, "linear")
        assert {after[name]["spec"]["nodeName"] for name in lost & set(after)} <= {"n1"}
        kept = set(before) & set(after) - lost
        assert {name: uids(before)[name] for name in kept} == {name: uids(after)[name] for name in kept}
    finally:
        installed.kubectl("taint", "node", "n2", f"{OUT_OF_SERVICE}-", check=False)
        installed.power_on("n2")


def _of(line: dict[str, object], namespace: str) -> bool:
    reference = line["objectRef"]
    return isinstance(reference, dict) and reference.get("namespace") == namespace and "subresource" not in reference
