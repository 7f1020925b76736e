"""What no room in the world would change: members that do not exist, and fields that this way of placing cannot do."""

from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import GangRequest, Shortage
from gangline.scheduler.types.gang_requests import missing_members_message
from gangline.scheduler.types.shape import PodShape


def prefilter_shortage(board: ClusterSnapshot, ask: GangRequest) -> Shortage | None:
    """Why it is no use to look for places. None: look."""
    for need in ask.pod_sets:
        problem = _unsupported_reason(board, ask, need.shape) if need.count else ""
        if problem:
            return Shortage(problem, unsupported=True)
    message = missing_members_message(ask)
    return Shortage(message) if message else None


def _unsupported_reason(board: ClusterSnapshot, ask: GangRequest, shape: PodShape) -> str:
    if shape.unsupported or not shape.claims:
        return shape.unsupported
    if problem := board.volumes.claim_problem(shape):
        return problem
    claim = board.volumes.exclusive_claim(shape)
    return _claim_conflict(board, ask, shape.namespace, claim) if claim else ""


def _claim_conflict(board: ClusterSnapshot, ask: GangRequest, namespace: str, claim: str) -> str:
    """Whether a claim that only one pod may use at a time has, or would have, more."""

    def uses(shape: PodShape) -> bool:
        return shape.namespace == namespace and claim in shape.claims

    ours = sum(need.count for need in ask.pod_sets if uses(need.shape))
    if ours > 1:
        return f'persistentvolumeclaim "{claim}" is for one pod at a time (ReadWriteOncePod), {ours} use it'
    users = board.pods.users_of_claim(namespace, claim).values()
    names = sorted(each.key.name for each in users if each.uid not in board.removed_uids)
    if any(uses(came.shape) for came in board.assumed):
        names.append("another pod of this round")
    return f'persistentvolumeclaim "{claim}" is for one pod at a time, and {names[0]} uses it' if names else ""
