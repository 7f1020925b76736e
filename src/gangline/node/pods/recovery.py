"""Runs of a container as its files and its status record them: how a run ended, and which runs an earlier node left."""

from datetime import UTC, datetime
from enum import Enum, auto

import msgspec

from gangline.base.clock import Clock
from gangline.node.checkpoint import KillReason, RunFiles, RunRecord
from gangline.node.logs import tail_text
from gangline.node.pod_types import RunContainerStatus
from gangline.node.pods.plan import ContainerExit, ContainerRun
from gangline.node.runtime.process import SupervisedProcess, adopt

OOM_KILLED = "OOMKilled"
LOST_CONTAINER = KillReason("ContainerStatusUnknown", "The container could not be located when the node was started")


class RunPhase(Enum):
    """How far a run of an earlier node is."""

    # Its shim lives and has not started the process yet.
    STARTING = auto()
    RUNNING = auto()
    ENDED = auto()
    # The process never started: the files of the run are removed, and the run does not count.
    DISCARDED = auto()


class RecoveredRun(msgspec.Struct, frozen=True):
    """A run that an earlier node started."""

    phase: RunPhase
    run: ContainerRun
    record: RunRecord
    # Set while the run is RUNNING.
    process: SupervisedProcess | None = None


def recover_run(files: RunFiles, record: RunRecord, message_policy: str, clock: Clock) -> RecoveredRun:
    """The state of a run of an earlier node. A living process is adopted; a lost one is marked as such on disk."""
    # The shim records the exit before it releases its lock: what is read without the lock is final.
    process = adopt(files, clock)
    is_starting = process is None and files.lock.is_held()
    exit_record, start = files.exit_record(), files.start_record()
    run = ContainerRun(attempt=record.attempt, id=record.id, streak=record.streak)
    if start is not None:
        run = msgspec.structs.replace(run, started_at=datetime.fromtimestamp(start.at, UTC))
    if process is not None:
        return RecoveredRun(RunPhase.RUNNING, run, record, process)
    if is_starting:
        return RecoveredRun(RunPhase.STARTING, run, record)
    if exit_record is not None:
        return RecoveredRun(RunPhase.ENDED, ended_run(run, files, message_policy, exit_record.finished_at), record)
    if start is None:
        files.remove()
        return RecoveredRun(RunPhase.DISCARDED, run, record)
    files.write_kill_reason(LOST_CONTAINER)
    files.remove_scratch()
    return RecoveredRun(RunPhase.ENDED, ended_run(run, files, message_policy, clock.now()), record)


def ended_run(run: ContainerRun, files: RunFiles, message_policy: str, finished_at: datetime) -> ContainerRun:
    """The run with its exit, from what shim and node recorded."""
    exit_record, kill_reason = files.exit_record(), files.kill_reason()
    if exit_record is not None and exit_record.failed:
        exit_ = ContainerExit(128, finished_at, 0, "StartError", f"exec: {exit_record.failed}")
        return msgspec.structs.replace(run, exit=exit_)
    # A shim that recorded no exit was killed, and the process with it.
    code = exit_record.code if exit_record is not None else -9
    signal_number = -code if code < 0 else 0
    code = 128 + signal_number if signal_number else code
    if kill_reason is not None and kill_reason.reason == OOM_KILLED:
        code, signal_number = 137, 9
    elif kill_reason is not None and kill_reason.exit_code is not None:
        code, signal_number = kill_reason.exit_code, 0
    reason = kill_reason.reason if kill_reason is not None else ("Completed" if code == 0 else "Error")
    message = files.termination_message() or (kill_reason.message if kill_reason is not None else "")
    if not message and code and message_policy == "FallbackToLogsOnError":
        message = tail_text(files.log_file)
    return msgspec.structs.replace(run, exit=ContainerExit(code, finished_at, signal_number, reason, message))


def runs_from_status(status: RunContainerStatus, now: datetime) -> list[ContainerRun]:
    """The runs in the status of a container whose files are lost. A run that the status calls running is lost too."""
    runs: list[ContainerRun] = []
    for state, attempt in ((status.last_state, status.restart_count - 1), (status.state, status.restart_count)):
        run_id = status.container_id.removeprefix("process://")
        if state.terminated is not None:
            end = state.terminated
            exit_ = ContainerExit(end.exit_code, end.finished_at or now, end.signal, end.reason, end.message)
            runs.append(ContainerRun(max(attempt, 0), run_id, attempt, end.started_at, exit_))
        elif state.running is not None:
            exit_ = ContainerExit(137, now, 0, LOST_CONTAINER.reason, LOST_CONTAINER.message)
            runs.append(ContainerRun(attempt, run_id, attempt, state.running.started_at or now, exit_))
    return runs
