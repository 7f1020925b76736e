"""Counters, phase and progress of a job's status."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import (
    PROGRESS_ANNOTATION,
    REPLICA_TYPE,
    ConditionType,
    JobPhase,
    JobProgress,
    JobStatus,
    ReplicaSpec,
    ReplicaStatus,
    RunState,
    TrainingJob,
)
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.conditions import created_status, timestamp
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import RestartTally, is_permanent
from gangline.jobs.pods.labels import job_labels
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Gang, Member, is_active
from gangline.progress.eta import StepReport, estimated_remaining
from gangline.progress.line import MAX_REMAINING_SECONDS, bounded_progress, parse_progress

_LEADER_TYPES = ("Chief", "Master", UNINDEXED_TYPE)


def active_status(framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally) -> JobStatus:
    """The status of a job that is neither suspended nor finished, with all counters but without new conditions."""
    job, now = observed.job, observed.now
    return msgspec.structs.replace(
        created_status(job, now),
        replica_statuses=_replica_statuses(framework, observed),
        start_time=job.status.start_time or timestamp(now),
        observed_generation=job.metadata.generation,
        restarts=restarts.total,
        progress=training_progress(observed.gang, job.status.progress, now),
        ledger=restarts.ledger,
    )


def finished_status(job: TrainingJob) -> JobStatus:
    """The status of a finished job, which stays as it is, but for the generation that was looked at.

    `kubectl wait` waits for that generation, too, and would wait for ever after an edit. One that another operator has
    finished has no such field, and gets none.
    """
    status, generation = job.status, job.metadata.generation
    if not status.observed_generation or status.observed_generation == generation:
        return status
    return msgspec.structs.replace(status, observed_generation=generation)


def _replica_statuses(framework: Framework[J], observed: ObservedJob[J]) -> dict[str, ReplicaStatus]:
    replicas, job_kind = framework.replicas(observed.job), framework.facts
    statuses = {}
    for kind, spec in replicas.items():
        selector = _replica_selector(observed.job, kind) if job_kind.scalable else ""
        statuses[kind] = _replica_status(observed.gang, kind, spec, job_kind.container, selector)
    # v1 also counts the types that the job leaves out.
    omitted = (kind for kind in job_kind.default_replicas if kind not in statuses)
    return {**statuses, **{kind: ReplicaStatus(state=RunState.UNKNOWN.value) for kind in omitted}}


def _replica_selector(job: TrainingJob, kind: str) -> str:
    """The label selector of the pods of a replica type, for autoscalers."""
    labels = {**job_labels(job), REPLICA_TYPE: kind.lower()}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _replica_status(gang: Gang, kind: str, spec: ReplicaSpec, container: str, selector: str) -> ReplicaStatus:
    counts = gang.counts[kind]
    replicas = spec.replicas or 0
    permanently_failed = 0
    if counts.failed:
        permanently_failed = sum(
            pod.status.phase == PodPhase.FAILED and is_permanent(pod, spec.restart_policy, container)
            for _, pod in gang.of_type(kind)
        )
    states = {
        RunState.UNKNOWN: replicas - counts.active - counts.succeeded - permanently_failed,
        RunState.RUNNING: counts.active,
        RunState.FAILED: permanently_failed,
        RunState.SUCCEEDED: counts.succeeded,
    }
    return ReplicaStatus(
        active=counts.active,
        succeeded=counts.succeeded,
        failed=counts.failed,
        selector=selector,
        state=_replica_state(states, replicas),
        states={state.value: count for state, count in states.items() if count},
    )


def _replica_state(states: Mapping[RunState, int], replicas: int) -> str:
    if states[RunState.FAILED]:
        return RunState.FAILED.value
    if states[RunState.RUNNING]:
        return RunState.RUNNING.value
    if replicas and states[RunState.SUCCEEDED] == replicas:
        return RunState.SUCCEEDED.value
    return RunState.UNKNOWN.value


def succeeded_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """As in v1: when the job has succeeded, replicas that still run count as succeeded."""
    return {
        kind: msgspec.structs.replace(status, active=0, succeeded=status.succeeded + status.active)
        for kind, status in statuses.items()
    }


def idle_counters(statuses: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """The counters of a job none of whose replicas runs any more; the other counters stay."""
    return {kind: _idle_status(status) for kind, status in statuses.items()}


def suspended_counters(
    statuses: Mapping[str, ReplicaStatus], replicas: Mapping[str, ReplicaSpec]
) -> dict[str, ReplicaStatus]:
    """As in v1: no replica is active and the other counters stay. The state of every replica is unknown."""
    counters: dict[str, ReplicaStatus] = {}
    for kind, status in statuses.items():
        count = replicas[kind].replicas if kind in replicas else 0
        states = {RunState.UNKNOWN.value: count} if count else {}
        counters[kind] = msgspec.structs.replace(status, active=0, state=RunState.UNKNOWN.value, states=states)
    return counters


def _idle_status(status: ReplicaStatus) -> ReplicaStatus:
    running = status.states.get(RunState.RUNNING, 0)
    states = {state: count for state, count in status.states.items() if state != RunState.RUNNING}
    if running:
        states[RunState.UNKNOWN.value] = states.get(RunState.UNKNOWN, 0) + running
    state = RunState.UNKNOWN.value if status.state == RunState.RUNNING else status.state
    return msgspec.structs.replace(status, active=0, state=state, states=states)


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


def training_progress(gang: Gang, before: JobProgress | None, now: datetime) -> JobProgress | None:
    """The progress that the leader reports, else the next replica in order of rank that reports any.

    `before` if no pod reports progress, or if the report says the same. Annotations that are no report are skipped.
    """
    reporting = (member for member, pod in gang.pods.items() if PROGRESS_ANNOTATION in pod.metadata.annotations)
    for member in sorted(reporting, key=_reporter_rank):
        parsed = parse_progress(gang.pods[member].metadata.annotations[PROGRESS_ANNOTATION])
        if parsed is None:
            continue
        report = bounded_progress(parsed)
        # A line about a checkpoint need not repeat the numbers of the line before.
        keeps = before is not None and bool(report.checkpoint) and not report.metrics
        progress = JobProgress(
            step=report.step,
            total=before.total if before is not None and keeps and report.total is None else report.total,
            metrics=before.metrics if before is not None and keeps else dict(report.metrics),
            estimated_remaining_seconds=_whole_seconds(report.remaining_seconds),
            replica=str(member),
            updated=timestamp(now),
        )
        return _newer_progress(before, progress, now)
    return before


def _newer_progress(before: JobProgress | None, progress: JobProgress, now: datetime) -> JobProgress:
    """The progress with an estimate of the time that is left, if it does not say so itself; `before` if it says the same."""
    if before is None:
        return progress
    is_reported = progress.estimated_remaining_seconds is not None
    remaining = progress.estimated_remaining_seconds if is_reported else before.estimated_remaining_seconds
    if msgspec.structs.replace(progress, updated=before.updated, estimated_remaining_seconds=remaining) == before:
        return before
    if is_reported or before.updated is None:
        return progress
    earlier = StepReport(before.step, before.updated.timestamp(), before.estimated_remaining_seconds)
    estimate = estimated_remaining(earlier, progress.step, progress.total, now.timestamp())
    return msgspec.structs.replace(progress, estimated_remaining_seconds=_whole_seconds(estimate))


def _whole_seconds(seconds: float | None) -> int | None:
    return None if seconds is None or seconds > MAX_REMAINING_SECONDS else round(seconds)


def final_progress(gang: Gang, before: JobProgress | None, now: datetime) -> JobProgress | None:
    """The progress of a job that has finished: its last report may arrive late, and no time is left."""
    progress = training_progress(gang, before, now)
    if progress is None or progress.estimated_remaining_seconds is None:
        return progress
    finished = msgspec.structs.replace(progress, estimated_remaining_seconds=None)
    unchanged = before is not None and msgspec.structs.replace(finished, updated=before.updated) == before
    return before if unchanged else finished


def _reporter_rank(member: Member) -> tuple[int, int]:
    """Chief, master or launcher first, then workers by index, then all others."""
    return (0 if member.type in _LEADER_TYPES else 1 if member.type == "Worker" else 2), member.index
