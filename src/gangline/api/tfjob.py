"""TFJob: TensorFlow with parameter servers, a chief, workers and an evaluator."""

from typing import ClassVar

from gangline.api.meta import Wire
from gangline.api.scheme import Resource
from gangline.api.training import GROUP, VERSION, ReplicaSpec, RunPolicy, TrainingJob

CONTAINER = "tensorflow"
PORT_NAME = "tfjob-port"
PORT = 2222


class TFJobSpec(Wire, frozen=True):
    tf_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    success_policy: str = ""
    enable_dynamic_worker: bool = False


class TFJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "TFJob"
    spec: TFJobSpec


TFJOBS = Resource(GROUP, VERSION, "TFJob", "tfjobs", TFJob)
