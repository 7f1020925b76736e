"""The six kinds of training job (`kubeflow.org/v1`): what is particular to each spec, and the facts of the kind.

MPIJob has a second API, `kubeflow.org/v2beta1`, which is mpi-operator's: ranks are started by SSH.
"""

from enum import StrEnum
from typing import ClassVar

import msgspec

from gangline.api.kubeflow.training import GROUP, JobKind, Port, ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
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


class SshFields(ApiStruct, frozen=True):
    """The fields of an MPIJob that only v2beta1 has. The schema of v1 keeps them, so that both can share a definition."""

    mpi_implementation: str = ""
    ssh_auth_mount_path: str = msgspec.field(name="sshAuthMountPath", default="")
    launcher_creation_policy: str = ""
    run_launcher_as_worker: bool = False


class MPIJobSpec(SshFields, frozen=True, kw_only=True):
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

    @property
    def is_of_this_api(self) -> bool:
        return not self.spec.mpi_implementation


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


class MpiImplementation(StrEnum):
    OPEN_MPI = "OpenMPI"
    INTEL = "Intel"
    MPICH = "MPICH"


class LauncherCreationPolicy(StrEnum):
    AT_STARTUP = "AtStartup"
    WAIT_FOR_WORKERS_READY = "WaitForWorkersReady"


DEFAULT_SSH_PATH = "/root/.ssh"
"""Where the SSH keys of an MPIJob are mounted."""


class MPIJobV2Spec(SshFields, frozen=True, kw_only=True):
    mpi_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    slots_per_worker: int | None = None


class MPIJobV2(TrainingJob, frozen=True, kw_only=True):
    """MPI with SSH: a launcher, which is a Job of Kubernetes, that starts its ranks in workers."""

    API_VERSION: ClassVar[str] = f"{GROUP}/v2beta1"
    KIND: ClassVar[str] = "MPIJob"
    spec: MPIJobV2Spec

    @property
    def is_of_this_api(self) -> bool:
        # The schema of v2beta1 has a default for this field, and the one of v1 has none.
        return bool(self.spec.mpi_implementation)


MPIJOB_V2 = JobKind(
    model=MPIJobV2,
    plural="mpijobs",
    replicas="mpiReplicaSpecs",
    attribute="mpi_replica_specs",
    types=("Launcher", "Worker"),
    container="mpi",
    port=None,
    default_replicas={"Worker": 0},
    single=("Launcher",),
    needed="Launcher",
    controller_name="mpi-job-controller",
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

JOB_APIS: tuple[JobKind, ...] = (*TRAINING_KINDS, MPIJOB_V2)
"""The six kinds, and the second API of MPIJob."""

JOB_SCHEME: Scheme = CORE_SCHEME.with_resources(*(kind.resource for kind in JOB_APIS))
"""Kubernetes' own kinds and the six job kinds."""


def find_job_api(api_version: object, kind: object) -> JobKind | None:
    """The job kind of an object with this `apiVersion` and `kind`; None if it is no training job."""
    return next((one for one in JOB_APIS if (one.model.API_VERSION, one.kind) == (api_version, kind)), None)
