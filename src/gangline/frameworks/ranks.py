"""The rank that a framework gives to a replica, so that messages of a program and names of replicas can be matched."""

from collections.abc import Mapping

from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, PYTORCHJOB, XGBOOSTJOB
from gangline.frameworks.replica_counts import MASTER, WORKER

_RANKED_TYPES = {
    PYTORCHJOB.kind: (MASTER, WORKER),
    XGBOOSTJOB.kind: (MASTER, WORKER),
    JAXJOB.kind: (WORKER,),
    MPIJOB.kind: (WORKER,),
}
"""By kind, the replica types that are counted through, in this order.

TensorFlow has task indices instead, and the launcher of Paddle hands out ranks in no fixed order. MPI's launcher starts
the ranks, and has none itself.
"""


def rank_of(kind: str, replica_counts: Mapping[str, int], replica: str, *, processes: int = 1) -> int | None:
    """The global rank of a replica such as `worker-1`; None if the framework has no ranks, or decides them itself.

    `replica_counts` has the number of replicas by type, as in the job's spec. If each replica runs several `processes`
    (torchrun's nprocPerNode, MPI's slotsPerWorker), the result is the first of its ranks.
    """
    name, _, index = replica.rpartition("-")
    if not index.isascii() or not index.isdigit():
        return None
    first = 0
    for one in _RANKED_TYPES.get(kind, ()):
        count = replica_counts.get(one, 0)
        if one.lower() == name:
            return (first + int(index)) * processes if int(index) < count else None
        first += count
    return None


def ranks_per_replica(elastic_policy: object, processes: object) -> int | None:
    """How many ranks each replica has; None where torchrun hands them out when its processes meet.

    `processes` is the job's nprocPerNode or slotsPerWorker. Words such as `auto` count as one, as for the operator.
    """
    if elastic_policy:
        return None
    return int(str(processes)) if str(processes).isascii() and str(processes).isdigit() else 1


def single_rank(kind: str, spec: object, replica_counts: Mapping[str, int], replica: str) -> int | None:
    """The rank of a replica of a job with this spec; None if it has several, or none that is known before."""
    count = getattr(spec, "nproc_per_node", None) or getattr(spec, "slots_per_worker", None)
    processes = ranks_per_replica(getattr(spec, "elastic_policy", None), count)
    return rank_of(kind, replica_counts, replica) if processes == 1 else None


def replica_with_rank(kind: str, replica_counts: Mapping[str, int], replica: str, *, processes: int = 1) -> str:
    """The replica as people see it: `worker-1 (rank 2)`, `worker-1 (ranks 8-11)`, or its name if it has no rank."""
    first = rank_of(kind, replica_counts, replica, processes=processes)
    if first is None:
        return replica
    if processes > 1:
        return f"{replica} (ranks {first}-{first + processes - 1})"
    return f"{replica} (rank {first})"
