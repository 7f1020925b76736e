"""The annotations by which `gangline drill` asks a node for a fault, and by which the node answers.

Anybody who may change a pod's annotations can ask for a fault; only gangline's own node acts on it. The request is
JSON
under `local.gangline.dev/drill`, the response under `local.gangline.dev/drilled`.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gangline.api.kubeflow.training import DRILL_ANNOTATION, DRILL_RESULT_ANNOTATION
from gangline.api.meta import ApiStruct


class FaultKind(StrEnum):
    """The faults that a node can provoke in a pod."""

    KILL = "kill"
    OOM = "oom"
    PORT = "port"
    DISK = "disk"
    NODE_LOST = "node-lost"
    SLOW = "slow"
    HANG = "hang"
    SLOW_NETWORK = "slow-network"
    BAD_NODE = "bad-node"
    EVICT = "evict"
    # Ends with an exit code, as a program does that fails by itself.
    EXIT = "exit"


class FaultRequest(ApiStruct, frozen=True):
    """One fault. The node acts on an `id` once."""

    id: str
    fault: FaultKind
    # How long the fault lasts, for faults that last: a lost or bad node, a taken port, a slow or hanging replica.
    seconds: float = 10.0
    # For a slow replica: how long each pause is.
    pause: float = 0.0
    # For a slow network: how many bits a second the replica can send.
    bits_per_second: int = 0
    # For a kill: the signal.
    signal: int = 9
    # For an exit: the code, and lines that the log gets before it.
    exit_code: int = 1
    log: tuple[str, ...] = ()


class FaultResponse(ApiStruct, frozen=True):
    """What the node does about a request, in a few words, or why it does nothing."""

    id: str
    does: str = ""
    refuses: str = ""


def fault_request(annotations: Mapping[str, str]) -> FaultRequest | None:
    """The fault that the annotations ask for, answered or not. None if there is none or it cannot be decoded."""
    try:
        return msgspec.json.decode(annotations.get(DRILL_ANNOTATION, ""), type=FaultRequest)
    except msgspec.MsgspecError:
        return None


def fault_response(annotations: Mapping[str, str]) -> FaultResponse | None:
    """The node's last response. None if there is none."""
    try:
        return msgspec.json.decode(annotations.get(DRILL_RESULT_ANNOTATION, ""), type=FaultResponse)
    except msgspec.MsgspecError:
        return None
