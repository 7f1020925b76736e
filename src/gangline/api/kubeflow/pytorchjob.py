"""PyTorchJob: torch.distributed with a master and workers, or elastic with workers alone."""

from typing import ClassVar

import msgspec

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
from gangline.api.meta import JSON, ApiStruct


class RDZVConf(ApiStruct, frozen=True):
    key: str = ""
    value: str = ""


class ElasticPolicy(ApiStruct, frozen=True):
    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str = ""
    rdzv_port: int | None = None
    rdzv_host: str = ""
    rdzv_id: str = ""
    rdzv_conf: tuple[RDZVConf, ...] = ()
    standalone: bool = False
    # Deprecated in favour of the field of the job.
    nproc_per_node: int | None = msgspec.field(name="nProcPerNode", default=None)
    max_restarts: int | None = None
    # Metrics of autoscaling/v2, passed on unchanged. If the list is present but empty, the server uses its default
    # metrics.
    metrics: tuple[JSON, ...] | None = None


class PyTorchJobSpec(ApiStruct, frozen=True):
    pytorch_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    nproc_per_node: str | None = None
    elastic_policy: ElasticPolicy | None = None


class PyTorchJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "PyTorchJob"
    spec: PyTorchJobSpec


PYTORCHJOB = JobKind(
    model=PyTorchJob,
    plural="pytorchjobs",
    replicas="pytorchReplicaSpecs",
    attribute="pytorch_replica_specs",
    types=("Master", "Worker"),
    container="pytorch",
    port=Port("pytorchjob-port", 23456),
    restart_policy=RestartPolicy.ON_FAILURE,
    scalable=True,
    single=("Master",),
)
