"""gangline in a cluster with nodes: how tests install it."""

from pathlib import Path
from typing import Any

import yaml

from support.nodes.inside import NodeCluster

MANIFESTS = Path(__file__).parents[3] / "manifests"
NAMESPACE = "gangline"


def install_manifests(cluster: NodeCluster) -> None:
    """Apply manifests/ as docs/operator.md says: two operators, and the gang scheduler for all jobs."""
    cluster.kubectl("apply", "--server-side", "--kustomize", str(MANIFESTS / "crds"))
    for name in ("rbac", "operator", "scheduler"):
        bodies: list[Any] = list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))
        for body in bodies:
            if name == "operator" and body["kind"] == "Deployment":
                body["spec"]["replicas"] = 2
                body["spec"]["template"]["spec"]["containers"][0]["args"].append("--gang-scheduler-name=gangline")
            cluster.kubectl("apply", "--filename", "-", body=body)
    wait_for_installation(cluster)


def wait_for_installation(cluster: NodeCluster) -> None:
    """Return when all replicas of the operator and the scheduler are ready."""
    for deployment in cluster.objects("deployments", NAMESPACE):
        name = f"deployment/{deployment['metadata']['name']}"
        cluster.kubectl("rollout", "status", name, "--namespace", NAMESPACE, "--timeout=120s")
