"""When a recorded fault is due in a replay, and what the node is asked for then. Pure."""

from enum import Enum, auto

import msgspec

from gangline.api.drill import FaultKind, FaultRequest
from gangline.replay.bundle import FaultCause, RecordedFault

OUTSIDE_SIGNALS = frozenset({2, 9, 15})
"""INT, KILL, TERM: somebody sends them. A program gets the others by its own doing, such as SEGV and ABRT."""
OWN_FAILURE_FACTOR, OWN_FAILURE_SECONDS = 1.25, 10.0
"""How much later than recorded a program may fail by itself before the fault is injected."""
HANG_SECONDS = 86_400.0
NODE_LOST_SECONDS = 5.0
REJECTION_SECONDS = 1.0
MAX_LOG_BYTES = 32 * 2**10
"""The most of a recorded log that a request carries: it is an annotation."""


class Cue(Enum):
    """Whether a fault is due."""

    WAIT = auto()
    NOW = auto()


class PlayedProcess(msgspec.Struct, frozen=True):
    """The process of a replica in the replay."""

    # Seconds since its start, and the last step that it reported.
    age: float
    step: float | None = None
    # A stand-in, which never fails by itself.
    is_stand_in: bool = False


def fails_by_itself(fault: RecordedFault) -> bool:
    """Whether the program did it: then the same program does it again, and needs no help."""
    if fault.cause is FaultCause.SIGNAL:
        return fault.signal not in OUTSIDE_SIGNALS
    return fault.cause is FaultCause.EXIT


def cue(fault: RecordedFault, process: PlayedProcess, scale: float = 1.0) -> Cue:
    """Whether the fault is due now. `scale`: how many times faster stand-ins are than the recorded programs.

    A program that failed by itself gets the chance to do it again: only a step that it had not come to, or much more
    time than it took, says that it does not.
    """
    own = fails_by_itself(fault) and not process.is_stand_in
    if fault.step is not None and process.step is not None:
        due = process.step > fault.step if own else process.step >= fault.step
        return Cue.NOW if due else Cue.WAIT
    if fault.step is not None and not own and fault.after_seconds is None:
        return Cue.WAIT
    after = (fault.after_seconds or 0.0) / (scale if process.is_stand_in else 1.0)
    if own:
        after = after * OWN_FAILURE_FACTOR + OWN_FAILURE_SECONDS
    elif fault.step is not None:
        # It will report its steps: until then the time says little.
        after = after * 2 + OWN_FAILURE_SECONDS
    return Cue.NOW if process.age >= after else Cue.WAIT


def fault_request(fault: RecordedFault, request_id: str, log: tuple[str, ...] = ()) -> FaultRequest:
    """The request to the node that makes the same fault."""
    request = FaultRequest(id=request_id, fault=FaultKind.KILL, log=bounded_log(log))
    match fault.cause:
        case FaultCause.EXIT:
            return msgspec.structs.replace(request, fault=FaultKind.EXIT, exit_code=fault.exit_code or 1)
        case FaultCause.SIGNAL:
            return msgspec.structs.replace(request, signal=fault.signal or 9)
        case FaultCause.OOM:
            return msgspec.structs.replace(request, fault=FaultKind.OOM)
        case FaultCause.EVICTED:
            return msgspec.structs.replace(request, fault=FaultKind.EVICT)
        case FaultCause.NODE_LOST:
            return msgspec.structs.replace(request, fault=FaultKind.NODE_LOST, seconds=NODE_LOST_SECONDS)
        case FaultCause.REJECTED:
            return msgspec.structs.replace(request, fault=FaultKind.BAD_NODE, seconds=REJECTION_SECONDS)
        case FaultCause.HANG:
            return msgspec.structs.replace(request, fault=FaultKind.HANG, seconds=HANG_SECONDS)


def bounded_log(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The last lines that fit into a request."""
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        size += len(line.encode(errors="replace")) + 8
        if size > MAX_LOG_BYTES:
            break
        kept.append(line)
    return tuple(reversed(kept))
