"""The six kinds of training job (`kubeflow.org/v1`): what is particular to each spec, and the facts of the kind."""

from typing import ClassVar

import msgspec

from gangline.api.kubeflow.training import JobKind, Port, ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
from gangline.api.meta import JSON, ApiStruct
from gangline.api.scheme import CORE_SCHEME, Scheme


class XGBoostJobSpec(ApiStruct, frozen=True):
    xgb_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()


class XGBoostJob(TrainingJob, frozen=True, kw_only=True):
    """XGBoost (and LightGBM): a master that tracks, and workers."""

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


class TFJobSpec(ApiStruct, frozen=True):
    tf_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    success_policy: str = ""
    enable_dynamic_worker: bool = False


class TFJob(TrainingJob, frozen=True, kw_only=True):
    """TensorFlow with parameter servers, a chief, workers and an evaluator."""

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
    """torch.distributed with a master and workers, or elastic with workers alone."""

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
    """PaddlePaddle: collective with workers alone, or parameter servers (masters) and workers."""

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


class MPIJobSpec(ApiStruct, frozen=True):
    mpi_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    slots_per_worker: int | None = None
    main_container: str = ""
    # The older form of runPolicy.cleanPodPolicy, which takes precedence.
    clean_pod_policy: str = ""


class MPIJob(TrainingJob, frozen=True, kw_only=True):
    """MPI: a launcher that starts its ranks in workers."""

    KIND: ClassVar[str] = "MPIJob"
    spec: MPIJobSpec


MPIJOB = JobKind(
    model=MPIJob,
    plural="mpijobs",
    replicas="mpiReplicaSpecs",
    attribute="mpi_replica_specs",
    types=("Launcher", "Worker"),
    container="mpi",
    port=None,
    default_replicas={"Worker": 0},
    single=("Launcher",),
    needed="Launcher",
)


class JAXJobSpec(ApiStruct, frozen=True):
    jax_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()


class JAXJob(TrainingJob, frozen=True, kw_only=True):
    """JAX: equal workers around a coordinator, which is worker 0."""

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


TRAINING_KINDS: tuple[JobKind, ...] = (TFJOB, PYTORCHJOB, XGBOOSTJOB, MPIJOB, PADDLEJOB, JAXJOB)

JOB_SCHEME: Scheme = CORE_SCHEME.with_resources(*(kind.resource for kind in TRAINING_KINDS))
"""Kubernetes' own kinds and the six job kinds."""
