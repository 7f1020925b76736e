"""TFJob: TensorFlow with parameter servers, a chief, workers and an evaluator."""

from typing import ClassVar

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RunPolicy, TrainingJob
from gangline.api.meta import ApiStruct


class TFJobSpec(ApiStruct, frozen=True):
    tf_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    success_policy: str = ""
    enable_dynamic_worker: bool = False


class TFJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "TFJob"
    spec: TFJobSpec


TFJOB = JobKind(
    model=TFJob,
    plural="tfjobs",
    replicas="tfReplicaSpecs",
    attribute="tf_replica_specs",
    types=("Chief", "Evaluator", "Master", "PS", "Worker"),
    container="tensorflow",
    port=Port("tfjob-port", 2222),
    single=("Chief", "Master"),
)
