"""Conditions, counts and the life cycle: how a job's state is written down."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import (
    PROGRESS,
    ConditionType,
    JobProgress,
    JobStatus,
    Phase,
    ReplicaSpec,
    ReplicaStatus,
    State,
)
from gangline.api.meta import Condition
from gangline.jobs.plan.restarts import permanent
from gangline.jobs.pods.replicas import UNNUMBERED, Gang, Member, active
from gangline.progress.line import bounded, progress

# A condition that is set takes the place of these.
_INSTEAD_OF = {
    ConditionType.RUNNING: ConditionType.RESTARTING,
    ConditionType.RESTARTING: ConditionType.RUNNING,
}
_ENDS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_LEADS = ("Chief", "Master", UNNUMBERED)


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
    gone = {kind, _INSTEAD_OF[kind] if status == "True" and kind in _INSTEAD_OF else kind}
    others: Iterable[Condition] = (found for found in kept if found.type not in gone)
    if kind in _ENDS:
        others = (ended(found, stamp) for found in others)
    return (*others, fresh)


def without_condition(conditions: Iterable[Condition], kind: ConditionType) -> tuple[Condition, ...]:
    return tuple(found for found in conditions if found.type != kind)


def ended(found: Condition, stamp: datetime) -> Condition:
    """What is no longer so once the job has ended."""
    over = (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.BLOCKED)
    if found.type in over and found.status == "True":
        return msgspec.structs.replace(
            found, status="False", last_update_time=stamp, last_transition_time=stamp
        )
    return found


def replica_statuses(
    gang: Gang,
    replicas: Mapping[str, ReplicaSpec],
    container: str,
    selectors: Mapping[str, str],
) -> dict[str, ReplicaStatus]:
    """Counters, state and states of every replica type."""
    return {
        kind: _replica_status(gang, kind, spec, container, selectors.get(kind, ""))
        for kind, spec in replicas.items()
    }


def _replica_status(gang: Gang, kind: str, spec: ReplicaSpec, container: str, selector: str) -> ReplicaStatus:
    counts = gang.counts[kind]
    wanted = spec.replicas or 0
    for_good = 0
    if counts.failed:
        for_good = sum(
            pod.status.phase == PodPhase.FAILED and permanent(pod, spec.restart_policy, container)
            for _, pod in gang.of_type(kind)
        )
    states = {
        State.UNKNOWN: wanted - counts.active - counts.succeeded - for_good,
        State.RUNNING: counts.active,
        State.FAILED: for_good,
        State.SUCCEEDED: counts.succeeded,
    }
    return ReplicaStatus(
        active=counts.active,
        succeeded=counts.succeeded,
        failed=counts.failed,
        selector=selector,
        state=_state(states, wanted),
        states={state.value: number for state, number in states.items() if number},
    )


def _state(states: Mapping[State, int], wanted: int) -> str:
    if states[State.FAILED]:
        return State.FAILED.value
    if states[State.RUNNING]:
        return State.RUNNING.value
    if wanted and states[State.SUCCEEDED] == wanted:
        return State.SUCCEEDED.value
    return State.UNKNOWN.value


def succeeded_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """As v1 has it: when the job has succeeded, what is still running counts as succeeded."""
    return {
        kind: msgspec.structs.replace(found, active=0, succeeded=found.succeeded + found.active)
        for kind, found in statuses.items()
    }


def idle_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """Nothing runs; what was counted otherwise stays."""
    return {kind: _idle(found) for kind, found in statuses.items()}


def suspended_counters(
    statuses: Mapping[str, ReplicaStatus], replicas: Mapping[str, ReplicaSpec]
) -> dict[str, ReplicaStatus]:
    """As v1 has it, nothing is active and the other counters stay; no replica is in any state."""
    made: dict[str, ReplicaStatus] = {}
    for kind, found in statuses.items():
        wanted = replicas[kind].replicas if kind in replicas else 0
        states = {State.UNKNOWN.value: wanted} if wanted else {}
        made[kind] = msgspec.structs.replace(found, active=0, state=State.UNKNOWN.value, states=states)
    return made


def _idle(found: ReplicaStatus) -> ReplicaStatus:
    running = found.states.get(State.RUNNING, 0)
    states = {state: number for state, number in found.states.items() if state != State.RUNNING}
    if running:
        states[State.UNKNOWN.value] = states.get(State.UNKNOWN, 0) + running
    state = State.UNKNOWN.value if found.state == State.RUNNING else found.state
    return msgspec.structs.replace(found, active=0, state=state, states=states)


def lifecycle(status: JobStatus, phase: Phase, gang: Gang) -> JobStatus:
    """The status with its phase, and the state that follows from it."""
    return msgspec.structs.replace(status, phase=phase.value, state=_job_state(status, phase, gang).value)


def _job_state(status: JobStatus, phase: Phase, gang: Gang) -> State:
    if status.holds(ConditionType.FAILED):
        return State.FAILED
    if status.holds(ConditionType.SUCCEEDED):
        return State.SUCCEEDED
    if phase in (Phase.CREATING, Phase.RUNNING) and any(map(active, gang.pods.values())):
        return State.RUNNING
    return State.UNKNOWN


def newest(status: JobStatus) -> str:
    """The state in one word: the newest condition that is True."""
    return next((found.type for found in reversed(status.conditions) if found.status == "True"), "Pending")


def headway(gang: Gang, before: JobProgress | None, now: datetime) -> JobProgress | None:
    """How far the training is: what the team's lead reports, and if it does not, whoever comes after it.

    While nobody reports it is what it was, and so it is when what is reported is the same. Whatever is no report is
    passed over.
    """
    reporting = (seat for seat, pod in gang.pods.items() if PROGRESS in pod.metadata.annotations)
    for seat in sorted(reporting, key=_rank):
        said = progress(gang.pods[seat].metadata.annotations[PROGRESS])
        if said is None:
            continue
        found = bounded(said)
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


def _rank(seat: Member) -> tuple[int, int]:
    """Chief, master or launcher first, then workers by number, then everyone else."""
    return (0 if seat.type in _LEADS else 1 if seat.type == "Worker" else 2), seat.index
