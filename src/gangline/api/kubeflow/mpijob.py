"""MPIJob: a launcher that starts its ranks in workers."""

from typing import ClassVar

from gangline.api.kubeflow.training import JobKind, ReplicaSpec, RunPolicy, TrainingJob
from gangline.api.meta import ApiStruct


class MPIJobSpec(ApiStruct, frozen=True):
    mpi_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    slots_per_worker: int | None = None
    main_container: str = ""
    # The older form of runPolicy.cleanPodPolicy, which takes precedence.
    clean_pod_policy: str = ""


class MPIJob(TrainingJob, frozen=True, kw_only=True):
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
