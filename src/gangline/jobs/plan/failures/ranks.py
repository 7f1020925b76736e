"""The ranks of a job's replicas."""

from gangline.jobs.framework import Framework, J, Ranked
from gangline.jobs.plan.failures.records import Ranks
from gangline.jobs.plan.observed import ObservedJob


def replica_ranks(framework: Framework[J], observed: ObservedJob[J]) -> Ranks:
    """The rank of each replica that has exactly one. A job of one replica has no ranks to tell apart."""
    if not isinstance(framework, Ranked) or len(observed.gang.seats) == 1:
        return {}
    ranks = {str(member): framework.rank(observed.job, member) for member in observed.gang.seats}
    return {replica: rank for replica, rank in ranks.items() if rank is not None}
