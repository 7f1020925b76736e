"""When a recorded fault is due, and what the node is asked for."""

import pytest

from gangline.api.drill import FaultKind
from gangline.replay.bundle import FaultCause, RecordedFault
from gangline.replay.cues import MAX_LOG_BYTES, Cue, PlayedProcess, bounded_log, cue, fault_request

KILLED = RecordedFault("worker-1", FaultCause.SIGNAL, 137, 9, step=10, after_seconds=20)
RAISED = RecordedFault("worker-1", FaultCause.EXIT, 1, step=10, after_seconds=20)


@pytest.mark.parametrize(
    ("fault", "process", "due"),
    [
        (KILLED, PlayedProcess(1, 9), False),
        (KILLED, PlayedProcess(1, 10), True),
        # The program may fail by itself at this step.
        (RAISED, PlayedProcess(100, 10), False),
        (RAISED, PlayedProcess(1, 11), True),
        # A stand-in does not.
        (RAISED, PlayedProcess(1, 10, is_stand_in=True), True),
        # Without steps the time counts.
        (RecordedFault("w", FaultCause.OOM, after_seconds=20), PlayedProcess(19), False),
        (RecordedFault("w", FaultCause.OOM, after_seconds=20), PlayedProcess(20), True),
        (RecordedFault("w", FaultCause.EXIT, 1, after_seconds=20), PlayedProcess(30), False),
        (RecordedFault("w", FaultCause.EXIT, 1, after_seconds=20), PlayedProcess(36), True),
        # A crash of its own is waited for, a signal from outside is not.
        (RecordedFault("w", FaultCause.SIGNAL, 139, 11, after_seconds=20), PlayedProcess(21), False),
        (RecordedFault("w", FaultCause.SIGNAL, 143, 15, after_seconds=20), PlayedProcess(21), True),
        # One that will report its steps is given time to start.
        (KILLED, PlayedProcess(21), False),
        (KILLED, PlayedProcess(51), True),
    ],
)
def test_when_a_fault_is_due(fault: RecordedFault, process: PlayedProcess, due: bool) -> None:
    assert (cue(fault, process) is Cue.NOW) == due


def test_stand_ins_are_faster_than_the_recording() -> None:
    fault = RecordedFault("w", FaultCause.EXIT, 1, after_seconds=3600)
    assert cue(fault, PlayedProcess(31, is_stand_in=True), scale=120.0) is Cue.NOW
    assert cue(fault, PlayedProcess(31), scale=120.0) is Cue.WAIT


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (FaultCause.EXIT, FaultKind.EXIT),
        (FaultCause.SIGNAL, FaultKind.KILL),
        (FaultCause.OOM, FaultKind.OOM),
        (FaultCause.EVICTED, FaultKind.EVICT),
        (FaultCause.NODE_LOST, FaultKind.NODE_LOST),
        (FaultCause.REJECTED, FaultKind.BAD_NODE),
        (FaultCause.HANG, FaultKind.HANG),
    ],
)
def test_every_cause_has_its_fault(cause: FaultCause, kind: FaultKind) -> None:
    request = fault_request(RecordedFault("w", cause, 3, 11), "id", ("a line",))
    assert (request.fault, request.log) == (kind, ("a line",))
    if cause is FaultCause.EXIT:
        assert request.exit_code == 3
    if cause is FaultCause.SIGNAL:
        assert request.signal == 11


def test_only_the_end_of_a_long_log_is_sent() -> None:
    lines = tuple(f"{number} " + "x" * 100 for number in range(1000))
    kept = bounded_log(lines)
    assert kept == lines[-len(kept) :]
    assert 100 < len(kept) < MAX_LOG_BYTES / 100
