"""PaddleJob: PaddlePaddle, collective with workers alone, or parameter servers (masters) and workers."""

from typing import ClassVar

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
from gangline.api.meta import JSON, ApiStruct


class PaddleElasticPolicy(ApiStruct, frozen=True):
    """Decoded and defaulted, as in v1. Nothing acts on it."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    max_restarts: int | None = None
    metrics: tuple[JSON, ...] = ()


class PaddleJobSpec(ApiStruct, frozen=True):
    paddle_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: PaddleElasticPolicy | None = None


class PaddleJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "PaddleJob"
    spec: PaddleJobSpec


PADDLEJOB = JobKind(
    model=PaddleJob,
    plural="paddlejobs",
    replicas="paddleReplicaSpecs",
    attribute="paddle_replica_specs",
    types=("Master", "Worker"),
    container="paddle",
    port=Port("master", 36543),
    restart_policy=RestartPolicy.ON_FAILURE,
    scalable=True,
)
