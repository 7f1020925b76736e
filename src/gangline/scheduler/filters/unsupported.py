"""What no room in the world would change: members that do not exist, and fields that this way of placing cannot do."""

from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.types.cycle import Ask, Shortage


def refusal(board: Board, ask: Ask) -> Shortage | None:
    """Why it is no use to look for places. None: look."""
    for need in ask.needs:
        problem = _obstacle(board, ask, need.shape) if need.count else ""
        if problem:
            return Shortage(problem, refused=True)
    there = sum(need.count for need in ask.needs)
    if there < ask.least:
        return Shortage(f"{there} of {ask.least} members exist")
    for role, least in sorted(ask.roles.items()):
        there = sum(need.count for need in ask.needs if need.role == role)
        if there < least:
            return Shortage(f"{there} of {least} members of role {role} exist")
    return None


def _obstacle(board: Board, ask: Ask, shape: Shape) -> str:
    if shape.obstacle or not shape.claims:
        return shape.obstacle
    if problem := board.volumes.obstacle(shape):
        return problem
    claim = board.volumes.alone(shape)
    return _in_use(board, ask, shape.namespace, claim) if claim else ""


def _in_use(board: Board, ask: Ask, namespace: str, claim: str) -> str:
    """Whether a claim that only one pod may use at a time has, or would have, more."""

    def uses(shape: Shape) -> bool:
        return shape.namespace == namespace and claim in shape.claims

    ours = sum(need.count for need in ask.needs if uses(need.shape))
    if ours > 1:
        return f'persistentvolumeclaim "{claim}" is for one pod at a time (ReadWriteOncePod), {ours} use it'
    users = board.population.users(namespace, claim).values()
    names = sorted(each.key.name for each in users if each.uid not in board.gone)
    if any(uses(came.shape) for came in board.came):
        names.append("another pod of this round")
    return (
        f'persistentvolumeclaim "{claim}" is for one pod at a time, and {names[0]} uses it' if names else ""
    )
