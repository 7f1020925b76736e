"""The status of an MPIJob of v2beta1: mpi-operator's conditions and counters, with their reasons and texts."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.kinds import MPIJOB_V2, MPIJobV2
from gangline.api.kubeflow.training import ConditionType, Failure, JobPhase, JobStatus, ReplicaStatus, RunState
from gangline.api.meta import JSON
from gangline.frameworks.mpi_v2.objects import LAUNCHER, worker_count
from gangline.frameworks.replica_counts import WORKER
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.plan.conditions import status_with_condition, timestamp
from gangline.jobs.plan.failures.records import failure_record, first_failed, in_place_failure
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.status import status_with_phase
from gangline.jobs.pods.replicas import Member, training_status

MAX_EVENT_MESSAGE = 1024
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
"""The reason for which Kubernetes gives up a Job whose pods failed too often."""
EVICTED = "Evicted"
LAUNCHER_MEMBER = Member(LAUNCHER, 0)


class StatusChange(msgspec.Struct, frozen=True):
    """A status, and the events about what changed in it."""

    status: JobStatus
    events: tuple[JobEvent, ...] = ()

    def with_condition(
        self, kind: ConditionType, text: tuple[str, str], now: datetime, *, value: str = "True", warning: bool = False
    ) -> "StatusChange":
        """With this condition, and an event of the same reason and message if the condition is new."""
        reason, message = text
        status = status_with_condition(self.status, kind, reason, message, now, value=value)
        if status == self.status:
            return self
        return StatusChange(status, (*self.events, JobEvent(reason, message, warning=warning)))


def created_change(job: MPIJobV2, now: datetime) -> StatusChange:
    """The job's status with condition Created, which is the first of all."""
    change = StatusChange(job.status)
    if job.status.conditions:
        return change
    return change.with_condition(ConditionType.CREATED, ("MPIJobCreated", f"{_name(job)} is created."), now)


def observed_change(observed: ObservedJob[MPIJobV2]) -> StatusChange:
    """The status of a job that has not ended yet, or ends now, with all conditions and counters."""
    job, now = observed.job, observed.now
    suspended = job.spec.run_policy.suspend
    change = created_change(job, now)
    if job.status.start_time is None and not suspended:
        change = _with_start(change, now)
    change = _with_suspension(job, change, now)
    launcher, launched = observed.children.launcher, observed.children.launched
    done = launcher is not None and has_ended(launcher)
    workers = () if done or suspended else tuple(pod for _, pod in observed.gang.of_type(WORKER))
    counters: dict[str, ReplicaStatus] = {WORKER: _worker_counters(job, workers)}
    if launcher is not None:
        counters = {LAUNCHER: _launcher_counters(launcher, launched), **counters}
        change = _with_verdict(job, change, launcher, launched, now)
    if evicted := sum(pod.status.phase == PodPhase.FAILED and pod.status.reason == EVICTED for pod in workers):
        text = ("MPIJobEvicted", f"{evicted}/{worker_count(job)} workers are evicted")
        change = change.with_condition(ConditionType.FAILED, text, now, warning=True)
    change = _with_running(job, change, counters, now, ended=done)
    status = msgspec.structs.replace(
        change.status,
        replica_statuses=counters,
        observed_generation=job.metadata.generation,
        first_failure=_first_failure(observed) or change.status.first_failure,
    )
    return StatusChange(status_with_phase(status, _phase(status), observed.gang), change.events)


def _phase(status: JobStatus) -> JobPhase:
    if status.completion_time is not None:
        return JobPhase.FAILED if status.holds(ConditionType.FAILED) else JobPhase.DONE
    if status.holds(ConditionType.SUSPENDED):
        return JobPhase.NONE
    return JobPhase.RUNNING if status.holds(ConditionType.RUNNING) else JobPhase.CREATING


def _with_start(change: StatusChange, now: datetime) -> StatusChange:
    return msgspec.structs.replace(change, status=msgspec.structs.replace(change.status, start_time=timestamp(now)))


def _with_suspension(job: MPIJobV2, change: StatusChange, now: datetime) -> StatusChange:
    if job.spec.run_policy.suspend:
        return change.with_condition(ConditionType.SUSPENDED, ("MPIJobSuspended", "MPIJob suspended"), now)
    if not change.status.holds(ConditionType.SUSPENDED):
        return change
    text = ("MPIJobResumed", "MPIJob resumed")
    return _with_start(change.with_condition(ConditionType.SUSPENDED, text, now, value="False"), now)


def _with_running(
    job: MPIJobV2, change: StatusChange, counters: Mapping[str, ReplicaStatus], now: datetime, *, ended: bool
) -> StatusChange:
    if job.spec.run_policy.suspend:
        text = ("MPIJobSuspended", f"{_name(job)} is suspended.")
        status = status_with_condition(change.status, ConditionType.RUNNING, *text, now, value="False")
        return msgspec.structs.replace(change, status=status)
    launcher = counters.get(LAUNCHER)
    if ended or launcher is None or not launcher.active or counters[WORKER].active < worker_count(job):
        return change
    return change.with_condition(ConditionType.RUNNING, ("MPIJobRunning", f"{_name(job)} is running."), now)


def _with_verdict(
    job: MPIJobV2, change: StatusChange, launcher: JSON, launched: Iterable[Pod], now: datetime
) -> StatusChange:
    """The verdict of the launcher's Job, if it has ended."""
    if condition := _true_condition(launcher, "Complete"):
        text = ("MPIJobSucceeded", f"{_name(job)} successfully completed.")
        change = change.with_condition(ConditionType.SUCCEEDED, text, now)
        # The failure was that of a worker, without which the launcher came to its end all the same.
        change = msgspec.structs.replace(change, status=_without_failure(change.status, timestamp(now)))
    elif condition := _true_condition(launcher, "Failed"):
        text = failure_text(job, condition, launched)
        change = change.with_condition(ConditionType.FAILED, text, now, warning=True)
    if condition is None or change.status.completion_time is not None:
        return change
    return msgspec.structs.replace(
        change, status=msgspec.structs.replace(change.status, completion_time=timestamp(now))
    )


def _first_failure(observed: ObservedJob[MPIJobV2]) -> Failure | None:
    """The first failure among the workers and the launcher that failed last, or that its kubelet started again."""
    container, logs = MPIJOB_V2.container, observed.children.log_tails
    failed = {member: pod for member, pod in observed.gang.of_type(WORKER) if pod.status.phase == PodPhase.FAILED}
    launched = sorted(observed.children.launched, key=_creation_order)
    if last := [pod for pod in launched if pod.status.phase == PodPhase.FAILED]:
        failed[LAUNCHER_MEMBER] = last[-1]
    if first := first_failed(failed, container, logs):
        return failure_record(first.member, first.pod, container, logs, order_known=first.order_known)
    for pod in reversed(launched):
        state = training_status(pod, container).last_state.terminated
        if state is not None and state.exit_code:
            return in_place_failure(LAUNCHER_MEMBER, pod, state, logs)
    return None


def _creation_order(pod: Pod) -> tuple[str, str]:
    return str(pod.metadata.creation_timestamp), pod.metadata.name


def failure_text(job: MPIJobV2, condition: Mapping[str, Any], launched: Iterable[Pod]) -> tuple[str, str]:
    """Why the launcher's Job failed; if its pods failed too often, also why the last of them did."""
    reason = condition.get("reason") or "MPIJobFailed"
    message = condition.get("message") or f"{_name(job)} has failed"
    failed = [pod for pod in launched if pod.status.phase == PodPhase.FAILED]
    if reason == BACKOFF_LIMIT_EXCEEDED and failed:
        last = max(failed, key=_creation_order)
        reason, message = f"{reason}/{last.status.reason}", f"{message}: {last.status.message}"
    return reason, message if len(message) <= MAX_EVENT_MESSAGE else f"{message[: MAX_EVENT_MESSAGE - 3]}..."


def has_ended(launcher: JSON) -> bool:
    """Whether the launcher's Job has succeeded or failed."""
    return bool(_true_condition(launcher, "Complete") or _true_condition(launcher, "Failed"))


def _true_condition(body: JSON, kind: str) -> Mapping[str, Any] | None:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind and one.get("status") == "True"), None)


def _without_failure(status: JobStatus, stamp: datetime) -> JobStatus:
    conditions = tuple(
        msgspec.structs.replace(one, status="False", last_update_time=stamp, last_transition_time=stamp)
        if one.type == ConditionType.FAILED and one.status == "True"
        else one
        for one in status.conditions
    )
    return msgspec.structs.replace(status, conditions=conditions)


def _launcher_counters(launcher: JSON, launched: Iterable[Pod]) -> ReplicaStatus:
    failed = (launcher.get("status") or {}).get("failed") or 0
    if _true_condition(launcher, "Complete"):
        return _counters(1, 0, 1, failed)
    running = 0 if has_ended(launcher) else sum(pod.status.phase == PodPhase.RUNNING for pod in launched)
    return _counters(1, running, 0, failed)


def _worker_counters(job: MPIJobV2, workers: Iterable[Pod]) -> ReplicaStatus:
    phases = [pod.status.phase for pod in workers]
    counts = (phases.count(phase) for phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED))
    return _counters(worker_count(job), *counts)


def _counters(replicas: int, active: int = 0, succeeded: int = 0, failed: int = 0) -> ReplicaStatus:
    """The counters of a replica type. A launcher that failed is started again, so it has failed more often than it exists."""
    ended = min(failed, replicas - active - succeeded)
    states = {
        RunState.UNKNOWN: replicas - active - succeeded - ended,
        RunState.RUNNING: active,
        RunState.FAILED: ended,
        RunState.SUCCEEDED: succeeded,
    }
    if states[RunState.FAILED]:
        state = RunState.FAILED
    elif states[RunState.RUNNING]:
        state = RunState.RUNNING
    else:
        state = RunState.SUCCEEDED if replicas and succeeded == replicas else RunState.UNKNOWN
    return ReplicaStatus(
        active=active,
        succeeded=succeeded,
        failed=failed,
        state=state.value,
        states={one.value: count for one, count in states.items() if count > 0},
    )


def _name(job: MPIJobV2) -> str:
    return f"MPIJob {job.metadata.namespace}/{job.metadata.name}"
