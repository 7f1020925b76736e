"""JAXJob: equal workers around a coordinator, which is worker 0."""

from typing import ClassVar

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RunPolicy, TrainingJob
from gangline.api.meta import ApiStruct


class JAXJobSpec(ApiStruct, frozen=True):
    jax_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()


class JAXJob(TrainingJob, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "JAXJob"
    spec: JAXJobSpec


JAXJOB = JobKind(
    model=JAXJob,
    plural="jaxjobs",
    replicas="jaxReplicaSpecs",
    attribute="jax_replica_specs",
    types=("Worker",),
    container="jax",
    port=Port("jaxjob-port", 6666),
    scalable=True,
)
