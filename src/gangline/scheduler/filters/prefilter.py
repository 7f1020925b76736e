"""Checks before any node is looked at: members that do not exist, and fields or claims that cannot be honoured."""

from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import GangRequest, Shortage
from gangline.scheduler.types.gang_requests import missing_members_message
from gangline.scheduler.types.shape import PodShape


def prefilter_shortage(snapshot: ClusterSnapshot, request: GangRequest) -> Shortage | None:
    """Why the request cannot be placed on any node; None if nodes are worth looking at."""
    for pod_set in request.pod_sets:
        problem = _unsupported_reason(snapshot, request, pod_set.shape) if pod_set.count else ""
        if problem:
            return Shortage(problem, unsupported=True)
    message = missing_members_message(request)
    return Shortage(message) if message else None


def _unsupported_reason(snapshot: ClusterSnapshot, request: GangRequest, shape: PodShape) -> str:
    if shape.unsupported or not shape.claims:
        return shape.unsupported
    if problem := snapshot.volumes.claim_problem(shape):
        return problem
    claim = snapshot.volumes.exclusive_claim(shape)
    return _claim_conflict(snapshot, request, shape.namespace, claim) if claim else ""


def _claim_conflict(snapshot: ClusterSnapshot, request: GangRequest, namespace: str, claim: str) -> str:
    """Why a claim for one pod at a time cannot be used: it has another user, or the gang would be several; else empty."""

    def uses(shape: PodShape) -> bool:
        return shape.namespace == namespace and claim in shape.claims

    count = sum(pod_set.count for pod_set in request.pod_sets if uses(pod_set.shape))
    if count > 1:
        return f'persistentvolumeclaim "{claim}" is for one pod at a time (ReadWriteOncePod), {count} use it'
    users = snapshot.pods.users_of_claim(namespace, claim).values()
    names = sorted(pod.key.name for pod in users if pod.uid not in snapshot.removed_uids)
    if any(uses(assumed.shape) for assumed in snapshot.assumed):
        names.append("another pod of this cycle")
    return f'persistentvolumeclaim "{claim}" is for one pod at a time, and {names[0]} uses it' if names else ""
