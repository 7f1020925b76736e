"""A fault on purpose, as it stands on a pod: the order, and what the node answers.

Whoever may change a pod's annotations may order one (`gangline drill` does); only gangline's own node obeys. The order
is JSON under `local.gangline.dev/drill`, the answer under `local.gangline.dev/drilled`.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gangline.api.kubeflow.training import DRILL, DRILLED
from gangline.api.meta import Wire


class Fault(StrEnum):
    """What a node can do to a pod."""

    KILL = "kill"
    OOM = "oom"
    PORT = "port"
    DISK = "disk"
    NODE_LOST = "node-lost"
    SLOW = "slow"


class Order(Wire, frozen=True):
    """One fault, once: the same `id` is not obeyed twice."""

    id: str
    fault: Fault
    # How long it lasts, where it lasts: a node that is away, a port that is taken, a slow replica.
    seconds: float = 10.0
    # Of a slow replica: how long it stands still each time.
    pause: float = 0.0


class Answer(Wire, frozen=True):
    """What the node does, in a few words; or why it does not."""

    id: str
    does: str = ""
    refuses: str = ""


def ordered(annotations: Mapping[str, str]) -> Order | None:
    """The fault that is asked for, answered or not. None for none, and for what cannot be read."""
    try:
        return msgspec.json.decode(annotations.get(DRILL, ""), type=Order)
    except msgspec.MsgspecError:
        return None


def answered(annotations: Mapping[str, str]) -> Answer | None:
    """What the node said last."""
    try:
        return msgspec.json.decode(annotations.get(DRILLED, ""), type=Answer)
    except msgspec.MsgspecError:
        return None
