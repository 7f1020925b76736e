"""The PyTorchJob SDK of 2020, unmodified: a job from its models, awaited, its pods and logs. As tfjob_sdk.py."""

import logging
import os
import sys

from kubeflow.pytorchjob import (  # type: ignore[import-not-found]
    PyTorchJobClient,
    V1PyTorchJob,
    V1PyTorchJobSpec,
    V1ReplicaSpec,
)
from kubernetes import client, config  # type: ignore[import-not-found]

namespace = sys.argv[1]
config.load_kube_config(os.environ["KUBECONFIG"])
core = client.CoreV1Api()
if namespace not in [found.metadata.name for found in core.list_namespace().items]:
    core.create_namespace({"metadata": {"name": namespace}})
sdk = PyTorchJobClient(config_file=os.environ["KUBECONFIG"])

# It says what pods said through the log, and nowhere else.
told: list[str] = []


class Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        told.append(record.getMessage())


logging.getLogger().addHandler(Listener())


def replicas(count: int) -> V1ReplicaSpec:
    code = "import os; print('rank', os.environ['RANK'])"
    container = client.V1Container(name="pytorch", image="none", command=["python", "-c", code])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    return V1ReplicaSpec(replicas=count, restart_policy="Never", template=template)


sdk.create(
    V1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name="torch", namespace=namespace),
        spec=V1PyTorchJobSpec(pytorch_replica_specs={"Master": replicas(1), "Worker": replicas(2)}),
    )
)
sdk.wait_for_job("torch", namespace=namespace, timeout_seconds=60, polling_interval=1)
assert sdk.is_job_succeeded("torch", namespace=namespace)
assert sdk.get_pod_names("torch", namespace=namespace, master=True) == {"torch-master-0"}
second = {"replica_type": "worker", "replica_index": "1"}
assert sdk.get_pod_names("torch", namespace=namespace, **second) == {"torch-worker-1"}
sdk.get_logs("torch", namespace=namespace)
assert told[-1] == "The logs of Pod torch-master-0:\n rank 0\n", told
sdk.delete("torch", namespace=namespace)
assert sdk.get(namespace=namespace)["items"] == []
