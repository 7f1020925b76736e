"""Jobs that really train in containers, across nodes, through cluster DNS."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.operator_process import TEAMS
from support.nodes.inside import NodeCluster
from support.nodes.jobs import example, pods_of, spread
from support.nodes.node import BUSYBOX
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

TORCH, OPENMPI = "gangline-test/python-torch:1", "gangline-test/openmpi:1"


def train(cluster: NodeCluster, namespace: str, job: Any, reporter: str, *, workers: int) -> str:
    """Run a job to its end, its workers on both nodes. Returns the log of the replica that reports."""
    kind, name = job["kind"].lower(), job["metadata"]["name"]
    cluster.apply(spread(job), namespace=namespace)
    cluster.wait(f"{kind}/{name}", "Running", namespace)
    pods = {pod: body for pod, body in pods_of(cluster, namespace, name).items() if "-worker-" in pod}
    assert len(pods) == workers
    assert {body["spec"]["nodeName"] for body in pods.values()} == {"n1", "n2"}
    assert {body["spec"]["schedulerName"] for body in pods.values()} == {"gangline"}
    cluster.wait(f"{kind}/{name}", "Succeeded", namespace, seconds=200)
    return cluster.kubectl("logs", reporter, "--namespace", namespace)


def test_a_parameter_server_and_its_workers_train(installed: NodeCluster, namespace: str) -> None:
    job = example(installed, namespace, "tfjob-numpy.yaml", "linear.py")
    log = train(installed, namespace, job, "linear-worker-0", workers=3)
    assert "step=200" in log, log


@pytest.mark.slow
def test_torch_trains_with_ddp_over_gloo(installed: NodeCluster, namespace: str) -> None:
    job = example(installed, namespace, "frameworks/pytorchjob-ddp.yaml", "frameworks/torch_ddp.py", image=TORCH)
    log = train(installed, namespace, job, "ddp-master-0", workers=2)
    assert "trained: largest error of a weight" in log, log
    images = {
        container["image"]
        for pod in pods_of(installed, namespace, "ddp").values()
        for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
    }
    assert not any("alpine" in image for image in images), images


@pytest.mark.slow
def test_open_mpi_trains_by_the_exec_agent(installed: NodeCluster, namespace: str) -> None:
    job = example(installed, namespace, "frameworks/mpijob.yaml", "frameworks/mpi_linear.py", image=OPENMPI)
    log = train(installed, namespace, job, "mpi-launcher", workers=2)
    assert "trained: rank 1 of 2" in log, log


@pytest.mark.slow
def test_open_mpi_trains_by_ssh(installed: NodeCluster, namespace: str) -> None:
    job = example(installed, namespace, "mpijob-v2beta1.yaml", "frameworks/mpi_linear.py", image=OPENMPI)
    train_command = ["mpirun", "--allow-run-as-root", "-np", "2", "python", "-m", "mpi4py", "mpi_linear.py"]
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"] = train_command
    name = job["metadata"]["name"]
    installed.apply(spread(job), namespace=namespace)
    installed.wait(f"mpijobs.v2beta1.kubeflow.org/{name}", "Succeeded", namespace, seconds=240)
    launchers = [
        pod["metadata"]["name"] for pod in installed.objects("pods", namespace) if "launcher" in pod["metadata"]["name"]
    ]
    log = installed.kubectl("logs", launchers[-1], "--namespace", namespace)
    assert "trained: rank 1 of 2" in log, log


@pytest.mark.slow
def test_every_kind_succeeds_and_is_deleted_when_its_time_is_over(installed: NodeCluster, namespace: str) -> None:
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    elastic = {"minReplicas": 1, "maxReplicas": 2, "metrics": [{"type": "Resource", "resource": resource}]}
    for kind in TRAINING_KINDS:
        container = {"name": kind.container, "image": BUSYBOX, "command": ["sh", "-c", "sleep 2"]}
        replicas = {
            name: {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
            for name, count in TEAMS[kind.kind].items()
        }
        spec = {kind.replicas: replicas, "runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}}
        if kind.kind == "PyTorchJob":
            spec["elasticPolicy"] = elastic
        job = {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, "metadata": {"name": "short"}, "spec": spec}
        installed.apply(job, namespace=namespace)
    names = ",".join(f"{kind.plural}.kubeflow.org" for kind in TRAINING_KINDS)
    wait_until_blocking(lambda: installed.objects(names, namespace) == [], "jobs stay", seconds=120)
    wait_until_blocking(lambda: installed.objects("pods", namespace) == [], "pods stay", seconds=60)

    def succeeded() -> set[str]:
        events = installed.objects("events", namespace)
        return {one["involvedObject"]["kind"] for one in events if one["reason"].endswith("JobSucceeded")}

    wait_until_blocking(lambda: succeeded() == {kind.kind for kind in TRAINING_KINDS}, "no event says how it ended")
