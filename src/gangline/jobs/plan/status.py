"""Conditions, counts and the life cycle: how a job's state is written down."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import (
    PROGRESS_ANNOTATION,
    ConditionType,
    JobPhase,
    JobProgress,
    JobStatus,
    ReplicaSpec,
    ReplicaStatus,
    RunState,
)
from gangline.api.meta import Condition
from gangline.jobs.plan.restarts import is_permanent
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Gang, Member, is_active
from gangline.progress.line import bounded_progress, parse_progress

# A condition that is set takes the place of these.
_SUPERSEDES = {
    ConditionType.RUNNING: ConditionType.RESTARTING,
    ConditionType.RESTARTING: ConditionType.RUNNING,
}
_TERMINAL_CONDITIONS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_LEADER_TYPES = ("Chief", "Master", UNINDEXED_TYPE)


def with_condition(
    conditions: Iterable[Condition],
    kind: ConditionType,
    reason: str,
    message: str,
    now: datetime,
    *,
    status: str = "True",
) -> tuple[Condition, ...]:
    """The condition last; the same one with the same status and reason is left as it is.

    Running and Restarting take each other's place. An end turns both False, where they are.
    """
    kept = tuple(conditions)
    before = next((found for found in kept if found.type == kind), None)
    if before is not None and before.status == status and before.reason == reason:
        return kept
    stamp = now.replace(microsecond=0)
    same = before is not None and before.status == status
    fresh = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_update_time=stamp,
        last_transition_time=before.last_transition_time if before is not None and same else stamp,
    )
    gone = {kind, _SUPERSEDES[kind] if status == "True" and kind in _SUPERSEDES else kind}
    others: Iterable[Condition] = (found for found in kept if found.type not in gone)
    if kind in _TERMINAL_CONDITIONS:
        others = (condition_after_end(found, stamp) for found in others)
    return (*others, fresh)


def without_condition(conditions: Iterable[Condition], kind: ConditionType) -> tuple[Condition, ...]:
    return tuple(found for found in conditions if found.type != kind)


def condition_after_end(found: Condition, stamp: datetime) -> Condition:
    """What is no longer so once the job has ended."""
    over = (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.BLOCKED)
    if found.type in over and found.status == "True":
        return msgspec.structs.replace(found, status="False", last_update_time=stamp, last_transition_time=stamp)
    return found


def replica_statuses(
    gang: Gang,
    replicas: Mapping[str, ReplicaSpec],
    container: str,
    selectors: Mapping[str, str],
) -> dict[str, ReplicaStatus]:
    """Counters, state and states of every replica type."""
    return {
        kind: _replica_status(gang, kind, spec, container, selectors.get(kind, "")) for kind, spec in replicas.items()
    }


def _replica_status(gang: Gang, kind: str, spec: ReplicaSpec, container: str, selector: str) -> ReplicaStatus:
    counts = gang.counts[kind]
    wanted = spec.replicas or 0
    for_good = 0
    if counts.failed:
        for_good = sum(
            pod.status.phase == PodPhase.FAILED and is_permanent(pod, spec.restart_policy, container)
            for _, pod in gang.of_type(kind)
        )
    states = {
        RunState.UNKNOWN: wanted - counts.active - counts.succeeded - for_good,
        RunState.RUNNING: counts.active,
        RunState.FAILED: for_good,
        RunState.SUCCEEDED: counts.succeeded,
    }
    return ReplicaStatus(
        active=counts.active,
        succeeded=counts.succeeded,
        failed=counts.failed,
        selector=selector,
        state=_replica_state(states, wanted),
        states={state.value: number for state, number in states.items() if number},
    )


def _replica_state(states: Mapping[RunState, int], wanted: int) -> str:
    if states[RunState.FAILED]:
        return RunState.FAILED.value
    if states[RunState.RUNNING]:
        return RunState.RUNNING.value
    if wanted and states[RunState.SUCCEEDED] == wanted:
        return RunState.SUCCEEDED.value
    return RunState.UNKNOWN.value


def succeeded_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """As v1 has it: when the job has succeeded, what is still running counts as succeeded."""
    return {
        kind: msgspec.structs.replace(found, active=0, succeeded=found.succeeded + found.active)
        for kind, found in statuses.items()
    }


def idle_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """Nothing runs; what was counted otherwise stays."""
    return {kind: _idle_status(found) for kind, found in statuses.items()}


def suspended_counters(
    statuses: Mapping[str, ReplicaStatus], replicas: Mapping[str, ReplicaSpec]
) -> dict[str, ReplicaStatus]:
    """As v1 has it, nothing is active and the other counters stay; no replica is in any state."""
    made: dict[str, ReplicaStatus] = {}
    for kind, found in statuses.items():
        wanted = replicas[kind].replicas if kind in replicas else 0
        states = {RunState.UNKNOWN.value: wanted} if wanted else {}
        made[kind] = msgspec.structs.replace(found, active=0, state=RunState.UNKNOWN.value, states=states)
    return made


def _idle_status(found: ReplicaStatus) -> ReplicaStatus:
    running = found.states.get(RunState.RUNNING, 0)
    states = {state: number for state, number in found.states.items() if state != RunState.RUNNING}
    if running:
        states[RunState.UNKNOWN.value] = states.get(RunState.UNKNOWN, 0) + running
    state = RunState.UNKNOWN.value if found.state == RunState.RUNNING else found.state
    return msgspec.structs.replace(found, active=0, state=state, states=states)


def status_with_phase(status: JobStatus, phase: JobPhase, gang: Gang) -> JobStatus:
    """The status with its phase, and the state that follows from it."""
    return msgspec.structs.replace(status, phase=phase.value, state=_job_state(status, phase, gang).value)


def _job_state(status: JobStatus, phase: JobPhase, gang: Gang) -> RunState:
    if status.holds(ConditionType.FAILED):
        return RunState.FAILED
    if status.holds(ConditionType.SUCCEEDED):
        return RunState.SUCCEEDED
    if phase in (JobPhase.CREATING, JobPhase.RUNNING) and any(map(is_active, gang.pods.values())):
        return RunState.RUNNING
    return RunState.UNKNOWN


def current_condition(status: JobStatus) -> str:
    """The state in one word: the newest condition that is True."""
    return next((found.type for found in reversed(status.conditions) if found.status == "True"), "Pending")


def training_progress(gang: Gang, before: JobProgress | None, now: datetime) -> JobProgress | None:
    """How far the training is: what the team's lead reports, and if it does not, whoever comes after it.

    While nobody reports it is what it was, and so it is when what is reported is the same. Whatever is no report is
    passed over.
    """
    reporting = (seat for seat, pod in gang.pods.items() if PROGRESS_ANNOTATION in pod.metadata.annotations)
    for seat in sorted(reporting, key=_reporter_rank):
        said = parse_progress(gang.pods[seat].metadata.annotations[PROGRESS_ANNOTATION])
        if said is None:
            continue
        found = bounded_progress(said)
        stamp = before.updated if before is not None else None
        same = JobProgress(
            step=found.step,
            total=found.total,
            metrics=dict(found.metrics),
            replica=str(seat),
            updated=stamp,
        )
        return same if same == before else msgspec.structs.replace(same, updated=now.replace(microsecond=0))
    return before


def _reporter_rank(seat: Member) -> tuple[int, int]:
    """Chief, master or launcher first, then workers by number, then everyone else."""
    return (0 if seat.type in _LEADER_TYPES else 1 if seat.type == "Worker" else 2), seat.index
