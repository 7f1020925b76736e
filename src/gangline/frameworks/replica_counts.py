"""How many replicas of each type a job asks for, and how many of them run or have ended."""

from collections.abc import Mapping

from gangline.api.kubeflow.training import JOB_ROLE, ReplicaSpec
from gangline.jobs.pods.replicas import Counts, Gang

MASTER, WORKER = "Master", "Worker"
MASTER_ROLE_LABELS = {JOB_ROLE: "master"}
"""Label of the pod whose log clients show as the log of the job."""


def replica_count(replicas: Mapping[str, ReplicaSpec], kind: str) -> int:
    """How many replicas of a type the job asks for; 0 if the job does not have the type."""
    spec = replicas.get(kind)
    return (spec.replicas or 0) if spec is not None else 0


def total_replicas(replicas: Mapping[str, ReplicaSpec]) -> int:
    return sum(replica_count(replicas, kind) for kind in replicas)


def pod_counts(gang: Gang, kind: str) -> Counts:
    """The counters of a replica type; zero if the job does not have the type."""
    return gang.counts.get(kind, Counts())


def all_succeeded(replicas: Mapping[str, ReplicaSpec], gang: Gang, kind: str) -> bool:
    """Whether the job has replicas of a type, and all of them have succeeded."""
    return 0 < replica_count(replicas, kind) <= pod_counts(gang, kind).succeeded


def elastic_bounds(low: int | None, high: int | None, workers: int | None) -> dict[str, int | None]:
    """The least and the most replicas of an elastic job.

    A bound that is left out equals the other one; if both are, they equal the number of workers.
    """
    if low is None and high is None:
        return {"min_replicas": workers, "max_replicas": workers}
    return {"min_replicas": high if low is None else low, "max_replicas": low if high is None else high}
