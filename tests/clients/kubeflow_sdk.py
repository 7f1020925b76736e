"""Kubeflow's own Python SDK, unmodified: a PyTorchJob from objects, its conditions, pods and logs."""

import os
import sys
from pathlib import Path

from kubeflow.training import (  # type: ignore[import-not-found]
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    TrainingClient,
)
from kubernetes import client, config  # type: ignore[import-not-found]

namespace = sys.argv[1]
config.load_kube_config(os.environ["KUBECONFIG"])
client.CoreV1Api().create_namespace({"metadata": {"name": namespace}})
sdk = TrainingClient(config_file=os.environ["KUBECONFIG"], namespace=namespace)


def replicas(count: int, *command: str) -> KubeflowOrgV1ReplicaSpec:
    container = client.V1Container(name="pytorch", image="none", command=list(command))
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    return KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="Never", template=template)


def job(name: str, *command: str) -> KubeflowOrgV1PyTorchJob:
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            pytorch_replica_specs={"Master": replicas(1, *command), "Worker": replicas(2, *command)},
        ),
    )


program = Path(__file__).parents[2] / "examples" / "allreduce.py"
sdk.create_job(job("good", "python", str(program)))
done = sdk.wait_for_job_conditions("good", wait_timeout=60, polling_interval=1)
assert [found.type for found in done.status.conditions if found.status == "True"] == ["Created", "Succeeded"]
assert done.status.replica_statuses["Worker"].succeeded == 2
assert sdk.is_job_succeeded("good")
assert not sdk.is_job_failed("good")
names = sdk.get_job_pod_names("good")
assert sorted(names) == ["good-master-0", "good-worker-0", "good-worker-1"], names
assert sdk.get_job_pod_names("good", is_master=True) == ["good-master-0"]
logs, _ = sdk.get_job_logs("good")
assert "trained: rank 0 of 3" in logs["good-master-0"], logs

sdk.create_job(job("bad", "python", "-c", "raise SystemExit(3)"))
try:
    sdk.wait_for_job_conditions("bad", wait_timeout=60, polling_interval=1)
except RuntimeError:
    assert sdk.is_job_failed("bad")
else:
    raise AssertionError("a job that failed was taken for one that succeeded")

assert sorted(found.metadata.name for found in sdk.list_jobs()) == ["bad", "good"]
sdk.update_job({"metadata": {"labels": {"team": "x"}}}, "good")
assert sdk.get_job("good").metadata.labels == {"team": "x"}
sdk.delete_job("good")
sdk.delete_job("bad")
