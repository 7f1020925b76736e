"""XGBoostJob: XGBoost (and LightGBM) with a master that tracks, and workers."""

from typing import ClassVar

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RunPolicy, TrainingJob
from gangline.api.meta import ApiStruct


class XGBoostJobSpec(ApiStruct, frozen=True):
    xgb_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()


class XGBoostJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "XGBoostJob"
    spec: XGBoostJobSpec


XGBOOSTJOB = JobKind(
    model=XGBoostJob,
    plural="xgboostjobs",
    replicas="xgbReplicaSpecs",
    attribute="xgb_replica_specs",
    types=("Master", "Worker"),
    container="xgboost",
    port=Port("xgboostjob-port", 9999),
    single=("Master",),
    needed="Master",
)
