"""MPIJobs of kubeflow.org/v1 in containers: the launcher reaches its workers by the agent in gangline's image."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.installation import install, is_installed
from support.nodes.jobs import IMAGE, pods_of
from support.yaml_files import load_all_yaml

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "operator.md"
OPEN_MPI = "gangline-test/openmpi:1"
PROGRAM = """
from mpi4py import MPI
import socket
world = MPI.COMM_WORLD
print("rank", world.rank, "on", socket.gethostname(), "sum", world.allreduce(world.rank + 1), flush=True)
"""
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
APART = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
}


def ring(*options: str, env: dict[str, str] | None = None, workers: int = 2, **container: Any) -> Any:
    """A job whose ranks add their numbers, one rank in each worker."""
    words = ["mpirun", *options, "-np", str(workers), "python3", "-m", "mpi4py", "-c", PROGRAM]
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    launcher = {"name": "mpi", "image": OPEN_MPI, "command": words, "env": variables, **container}
    worker = {"name": "mpi", "image": OPEN_MPI, **container}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "ring"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {
                    "replicas": workers,
                    "template": {"spec": {"containers": [worker], "topologySpreadConstraints": [APART]}},
                },
            },
        },
    }


@pytest.fixture(scope="module")
def launching(cluster: NodeCluster) -> Iterator[NodeCluster]:
    """The cluster with an operator that may create the roles of launchers, as other tests expect it, too."""
    if not is_installed(cluster):
        install(cluster)
    yield cluster
    set_value(cluster, "rbac.mpiJobs=true", "mpiLauncherServiceAccount=")


def set_value(cluster: NodeCluster, *values: str) -> None:
    done = cluster.gangline("upgrade", *(word for value in values for word in ("--set", value)), seconds=330)
    assert done.code == 0, done


def ranks(cluster: NodeCluster, namespace: str) -> list[str]:
    log = cluster.kubectl("logs", "ring-launcher", "--container=mpi", "--namespace", namespace)
    return sorted(line for line in log.splitlines() if line.startswith("rank "))


def test_ranks_run_on_both_nodes_and_no_helper_image_is_pulled(launching: NodeCluster, namespace: str) -> None:
    launching.apply(ring("--allow-run-as-root"), namespace=namespace)
    launching.wait("mpijob/ring", "Succeeded", namespace)
    assert ranks(launching, namespace) == ["rank 0 on ring-worker-0 sum 3", "rank 1 on ring-worker-1 sum 3"]
    pods = pods_of(launching, namespace, "ring")
    assert {pods[f"ring-worker-{index}"]["spec"]["nodeName"] for index in range(2)} == {"n1", "n2"}
    specs = [pod["spec"] for pod in pods.values()]
    images = {one["image"] for spec in specs for one in [*spec["containers"], *spec.get("initContainers", [])]}
    assert images == {OPEN_MPI, IMAGE}


def test_a_restricted_namespace_is_enough(launching: NodeCluster, namespace: str) -> None:
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    launching.kubectl("label", "namespace", namespace, enforced)
    launching.apply(ring(securityContext=RESTRICTED), namespace=namespace)
    launching.wait("mpijob/ring", "Succeeded", namespace)
    assert len(ranks(launching, namespace)) == 2


def test_workers_without_an_agent_start_no_daemons(launching: NodeCluster, namespace: str) -> None:
    """With this radix Open MPI would start every daemon from the one before, as it does with more than 64 hosts."""
    job = ring("--allow-run-as-root", env={"OMPI_MCA_routed_radix": "1"}, workers=4)
    launching.apply(job, namespace=namespace)
    launching.wait("mpijob/ring", "Succeeded", namespace)
    assert len(ranks(launching, namespace)) == 4


def test_an_account_of_the_administrator_is_enough(launching: NodeCluster, namespace: str) -> None:
    """With the objects on docs/operator.md, and an operator that may create no roles."""
    set_value(launching, "rbac.mpiJobs=false", "mpiLauncherServiceAccount=mpi-launcher")
    (text,) = re.findall(r"```yaml\n(apiVersion: v1\nkind: ServiceAccount\n.*?)```", PAGE.read_text(), re.DOTALL)
    launching.apply(*load_all_yaml(text.encode()), namespace=namespace)
    launching.apply(ring("--allow-run-as-root"), namespace=namespace)
    launching.wait("mpijob/ring", "Succeeded", namespace)
    assert len(ranks(launching, namespace)) == 2
    assert launching.objects("serviceaccounts,roles,rolebindings", namespace, selector="app=ring") == []
