"""Who is in a team, and how many of them."""

from collections.abc import Mapping

from gangline.api.kubeflow.training import JOB_ROLE, ReplicaSpec
from gangline.jobs.pods.replicas import Counts, Gang

MASTER, WORKER = "Master", "Worker"
MASTER_ROLE_LABELS = {JOB_ROLE: "master"}
"""Label of the pod that clients ask for the logs of a job."""


def replica_count(replicas: Mapping[str, ReplicaSpec], kind: str) -> int:
    """How many of a replica type are asked for. None of a type is the same as no such type."""
    spec = replicas.get(kind)
    return (spec.replicas or 0) if spec is not None else 0


def total_replicas(replicas: Mapping[str, ReplicaSpec]) -> int:
    return sum(replica_count(replicas, kind) for kind in replicas)


def pod_counts(gang: Gang, kind: str) -> Counts:
    return gang.counts.get(kind, Counts())


def all_succeeded(replicas: Mapping[str, ReplicaSpec], gang: Gang, kind: str) -> bool:
    """Whether there are replicas of a type, and all of them succeeded."""
    return 0 < replica_count(replicas, kind) <= pod_counts(gang, kind).succeeded


def elastic_bounds(low: int | None, high: int | None, workers: int | None) -> dict[str, int | None]:
    """The least and the most replicas: a missing bound is as the other; both missing, the workers asked for."""
    if low is None and high is None:
        return {"min_replicas": workers, "max_replicas": workers}
    return {"min_replicas": high if low is None else low, "max_replicas": low if high is None else high}
