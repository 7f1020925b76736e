"""Jobs for a cluster with nodes, and what happens to their pods."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gangline import __version__
from support.nodes.inside import NodeCluster
from support.nodes.node import BUSYBOX

IMAGE = f"gangline:{__version__}"
EXAMPLES = Path(__file__).parents[3] / "examples"
JOB_LABEL = "training.kubeflow.org/job-name"


def shell_job(
    name: str, script: str, *, workers: int = 1, pod: Mapping[str, Any] | None = None, **container: Any
) -> Any:
    """A TFJob whose workers run a shell script. More fields of the container and of the pod may be given."""
    worker = {"name": "tensorflow", "image": BUSYBOX, "command": ["sh", "-c", script], **container}
    template = {"spec": {"containers": [worker], "terminationGracePeriodSeconds": 1, **(pod or {})}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "successPolicy": "AllWorkers",
            "tfReplicaSpecs": {"Worker": {"replicas": workers, "restartPolicy": "Never", "template": template}},
        },
    }


def example(cluster: NodeCluster, namespace: str, file: str, script: str, *, image: str = IMAGE) -> Any:
    """An example, its image one that the nodes have, its script in a ConfigMap that is its working folder."""
    job = yaml.safe_load((EXAMPLES / file).read_text())
    data = {Path(script).name: (EXAMPLES / script).read_text()}
    scripts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data}
    cluster.apply(scripts, namespace=namespace)
    for replicas in replica_specs(job).values():
        pod = replicas["template"]["spec"]
        pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
        for container in pod["containers"]:
            container |= {
                "image": image,
                "workingDir": "/scripts",
                "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
            }
    return job


def spread(job: Any) -> Any:
    """The job, its replicas of each type on different nodes. Nodes that are lost do not count."""
    for name, replicas in replica_specs(job).items():
        replicas["template"]["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"training.kubeflow.org/replica-type": name.lower()}},
            }
        ]
    return job


def replica_specs(job: Any) -> dict[str, Any]:
    """The replicas of a job of any kind, by type."""
    specs: dict[str, Any] = next(value for field, value in job["spec"].items() if field.endswith("ReplicaSpecs"))
    return specs


def pods_of(cluster: NodeCluster, namespace: str, job: str) -> dict[str, Any]:
    """The pods of a job, by name."""
    pods = cluster.objects("pods", namespace, selector=f"{JOB_LABEL}={job}")
    return {pod["metadata"]["name"]: pod for pod in pods}


def phases(pods: Mapping[str, Any]) -> list[str]:
    return sorted(pod["status"].get("phase", "") for pod in pods.values())


# Ends as soon as there is a service of this name in the namespace: `release` makes it.
WAIT_FOR_RELEASE = (
    "until nslookup release.$NAMESPACE.svc.cluster.local > /dev/null 2>&1; do sleep 1; done; echo released"
)


def waiting_job(name: str, *, workers: int = 1, pod: Mapping[str, Any] | None = None, **container: Any) -> Any:
    """A job that runs until `release`."""
    env = [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
    return shell_job(name, WAIT_FOR_RELEASE, workers=workers, pod=pod, env=env, **container)


def release(cluster: NodeCluster, namespace: str) -> None:
    """Let the waiting jobs of a namespace succeed."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "release"},
        "spec": {"ports": [{"port": 80}]},
    }
    cluster.apply(service, namespace=namespace)


def uids(pods: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Each pod's identity and how often its container was started again: both stay unless something restarted it."""
    return {
        name: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"].get("containerStatuses", [])),
        )
        for name, pod in pods.items()
    }
