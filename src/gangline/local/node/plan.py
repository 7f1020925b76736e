"""What the node should do about one pod, given what it knows of the pod's process. Pure."""

from enum import Enum, auto

from gangline.api.core import Pod


class Step(Enum):
    """The next thing to do about a pod."""

    NOTHING = auto()
    START = auto()
    STOP = auto()
    # The process is gone and the API wants the pod gone: let it go.
    RELEASE = auto()


def step(pod: Pod, *, started: bool, alive: bool) -> Step:
    """Decide. The same pod may be asked about any number of times."""
    if pod.metadata.deletion_timestamp is not None:
        return Step.STOP if alive else Step.RELEASE
    if not started and pod.status.phase in ("", "Pending"):
        return Step.START
    return Step.NOTHING
