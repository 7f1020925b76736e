"""Jobs that really train in containers, across nodes, through cluster DNS."""

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.jobs import example, pods_of, replica_specs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NODES = {"n1", "n2"}


def spread(job: object) -> object:
    """The job, its replicas of each type on different nodes."""
    for name, replicas in replica_specs(job).items():
        replicas["template"]["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"training.kubeflow.org/replica-type": name.lower()}},
            }
        ]
    return job


def test_a_parameter_server_and_its_workers_train_across_nodes(installed: NodeCluster, namespace: str) -> None:
    job = spread(example(installed, namespace, "tfjob-numpy.yaml", ["linear.py"]))
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/linear", "Succeeded", namespace)
    pods = pods_of(installed, namespace, "linear")
    workers = {name: pod for name, pod in pods.items() if "worker" in name}
    assert len(workers) == 3
    assert {pod["spec"]["nodeName"] for pod in workers.values()} == NODES
    assert {pod["spec"]["schedulerName"] for pod in workers.values()} == {"gangline"}
    log = installed.kubectl("logs", "linear-worker-0", "--namespace", namespace)
    assert "step 200" in log or "loss" in log, log
