"""A fault on purpose, as it stands on a pod: the order, and what the node answers.

Whoever may change a pod's annotations may order one (`gangline drill` does); only gangline's own node obeys. The order
is JSON under `local.gangline.dev/drill`, the answer under `local.gangline.dev/drilled`.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gangline.api.kubeflow.training import DRILL_ANNOTATION, DRILL_RESULT_ANNOTATION
from gangline.api.meta import ApiStruct


class FaultKind(StrEnum):
    """What a node can do to a pod."""

    KILL = "kill"
    OOM = "oom"
    PORT = "port"
    DISK = "disk"
    NODE_LOST = "node-lost"
    SLOW = "slow"


class FaultRequest(ApiStruct, frozen=True):
    """One fault, once: the same `id` is not obeyed twice."""

    id: str
    fault: FaultKind
    # How long it lasts, where it lasts: a node that is away, a port that is taken, a slow replica.
    seconds: float = 10.0
    # Of a slow replica: how long it stands still each time.
    pause: float = 0.0


class FaultResponse(ApiStruct, frozen=True):
    """What the node does, in a few words; or why it does not."""

    id: str
    does: str = ""
    refuses: str = ""


def fault_request(annotations: Mapping[str, str]) -> FaultRequest | None:
    """The fault that is asked for, answered or not. None for none, and for what cannot be read."""
    try:
        return msgspec.json.decode(annotations.get(DRILL_ANNOTATION, ""), type=FaultRequest)
    except msgspec.MsgspecError:
        return None


def fault_response(annotations: Mapping[str, str]) -> FaultResponse | None:
    """What the node said last."""
    try:
        return msgspec.json.decode(annotations.get(DRILL_RESULT_ANNOTATION, ""), type=FaultResponse)
    except msgspec.MsgspecError:
        return None
