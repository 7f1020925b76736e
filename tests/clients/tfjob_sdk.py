"""The TFJob SDK of 2020, unmodified: a job from its models, awaited by polling and by watching, its pods and logs."""

import logging
import os
import sys

from kubeflow.tfjob import (  # type: ignore[import-not-found]
    TFJobClient,
    V1ReplicaSpec,
    V1TFJob,
    V1TFJobSpec,
)
from kubernetes import client, config  # type: ignore[import-not-found]

namespace = sys.argv[1]
config.load_kube_config(os.environ["KUBECONFIG"])
core = client.CoreV1Api()
if namespace not in [found.metadata.name for found in core.list_namespace().items]:
    core.create_namespace({"metadata": {"name": namespace}})
sdk = TFJobClient(config_file=os.environ["KUBECONFIG"])

# It says what pods said through the log, and nowhere else.
told: list[str] = []


class Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        told.append(record.getMessage())


logging.getLogger().addHandler(Listener())


def replicas(count: int, code: str) -> V1ReplicaSpec:
    container = client.V1Container(name="tensorflow", image="none", command=["python", "-c", code])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    return V1ReplicaSpec(replicas=count, restart_policy="Never", template=template)


def job(name: str, code: str) -> V1TFJob:
    specs = {"Chief": replicas(1, code), "PS": replicas(1, code), "Worker": replicas(2, code)}
    return V1TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=client.V1ObjectMeta(name=name, namespace=namespace),
        spec=V1TFJobSpec(clean_pod_policy="None", tf_replica_specs=specs),
    )


HELLO = "import json, os; task = json.loads(os.environ['TF_CONFIG'])['task']; print(task['type'], task['index'])"
made = sdk.create(job("good", HELLO))
assert made["metadata"]["name"] == "good"
states: list[object] = []
done = sdk.wait_for_job(
    "good", namespace=namespace, timeout_seconds=60, polling_interval=1, status_callback=states.append
)
assert states
assert done["status"]["conditions"][-1]["type"] == "Succeeded", done["status"]
assert sdk.get_job_status("good", namespace=namespace) == "Succeeded"
assert sdk.is_job_succeeded("good", namespace=namespace)
assert not sdk.is_job_running("good", namespace=namespace)
sdk.wait_for_job("good", namespace=namespace, timeout_seconds=60, watch=True)

everybody = {"good-chief-0", "good-ps-0", "good-worker-0", "good-worker-1"}
assert sdk.get_pod_names("good", namespace=namespace) == everybody
assert sdk.get_pod_names("good", namespace=namespace, master=True) == {"good-chief-0"}
workers = {"good-worker-0", "good-worker-1"}
assert sdk.get_pod_names("good", namespace=namespace, replica_type="worker") == workers
second = sdk.get_pod_names("good", namespace=namespace, replica_type="worker", replica_index="1")
assert second == {"good-worker-1"}

sdk.get_logs("good", namespace=namespace)
assert told[-1] == "The logs of Pod good-chief-0:\n chief 0\n", told
sdk.get_logs("good", namespace=namespace, master=False, replica_type="worker", replica_index="1", follow=True)
assert told[-1] == "The logs of Pod good-worker-1:\n worker 1\n", told

sdk.patch("good", {"metadata": {"labels": {"team": "x"}}}, namespace=namespace)
assert sdk.get("good", namespace=namespace)["metadata"]["labels"] == {"team": "x"}

sdk.create(job("bad", "raise SystemExit(3)"))
sdk.wait_for_condition("bad", ["Failed"], namespace=namespace, timeout_seconds=60, polling_interval=1)
assert sdk.get_job_status("bad", namespace=namespace) == "Failed"

names = sorted(found["metadata"]["name"] for found in sdk.get(namespace=namespace)["items"])
assert names == ["bad", "good"], names
sdk.delete("good", namespace=namespace)
sdk.delete("bad", namespace=namespace)
assert sdk.get(namespace=namespace)["items"] == []
