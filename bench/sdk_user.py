"""A user of an SDK, as a process: MODULE with the TrainingClient, NAMESPACE, COUNT and a PREFIX for the names of jobs.

Creates the jobs, one after the other, as such a program does, and prints what that took as JSON. They are suspended:
what is measured is the client, not what follows.
"""

import importlib
import json
import os
import resource
import sys
import time
from typing import Any

from kubeflow.training import (  # type: ignore[import-not-found]
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
)
from kubernetes import client  # type: ignore[import-not-found]


def job(name: str) -> Any:
    container = client.V1Container(name="pytorch", image="none", command=["true"])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    worker = KubeflowOrgV1ReplicaSpec(replicas=1, restart_policy="Never", template=template)
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(suspend=True),
            pytorch_replica_specs={"Master": worker, "Worker": worker},
        ),
    )


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(module: str, namespace: str, count: int, prefix: str) -> None:
    kind = importlib.import_module(module).TrainingClient
    jobs = [job(f"{prefix}-{number}") for number in range(count)]
    # With the making of the client: one reads its configuration then, the other when it is first asked for something.
    began, used = time.perf_counter(), processor()
    sdk = kind(os.environ["KUBECONFIG"], namespace=namespace)
    for each in jobs:
        sdk.create_job(each)
    print(json.dumps({"wall": time.perf_counter() - began, "cpu": processor() - used}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
