"""Observed in, plan out. Decides everything, does nothing."""

from collections.abc import Iterable
from datetime import timedelta
from typing import assert_never

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import ConditionType, JobPhase, JobStatus, RestartScope
from gangline.jobs.defaults import ignored_field_events
from gangline.jobs.framework import Framework, J, JobOutcome, RestartMessage
from gangline.jobs.gangs.choice import missing_scheduler_message
from gangline.jobs.plan.actions import PODS, JobEvent, JobPlan
from gangline.jobs.plan.assessment import (
    AlreadyFinished,
    JobActive,
    JobFailing,
    JobSucceeding,
    JobSuspended,
    ManagedElsewhere,
    RestartTally,
    assess,
    is_marked_suspended,
    restart_tally,
)
from gangline.jobs.plan.conditions import (
    active_status,
    status_with_condition,
    status_without_blocked,
    timestamp,
)
from gangline.jobs.plan.creation import child_actions
from gangline.jobs.plan.finish import cleanup_plan, deletions, finish_plan, suspend_plan
from gangline.jobs.plan.gang_state import placement_wait
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.pod_warnings import exit_events, pod_warnings
from gangline.jobs.plan.restarts import any_terminating, restart_scope, with_backoff
from gangline.jobs.plan.status import status_with_phase


def reconcile_plan(framework: Framework[J], seen: ObservedJob[J]) -> JobPlan:
    """Decide everything, do nothing. The same input gives the same plan."""
    so_far = restart_tally(seen.job.status, seen, framework.replicas(seen.job))
    standing = assess(framework, seen, so_far)
    match standing:
        case ManagedElsewhere():
            return JobPlan(seen.job.status)
        case AlreadyFinished():
            return cleanup_plan(framework, seen, seen.job.status)
        case JobSucceeding() | JobFailing():
            return finish_plan(framework, seen, so_far, standing)
        case JobSuspended():
            return suspend_plan(framework, seen, so_far)
        case JobActive():
            return _active_plan(framework, seen, so_far, standing)
        case _:
            assert_never(standing)


def _active_plan(framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally, standing: JobActive) -> JobPlan:
    job, now = seen.job, seen.now
    status = active_status(framework, seen, so_far)
    notes: tuple[JobEvent, ...] = ()
    if is_marked_suspended(job.status):
        told = f"{job.KIND} {job.metadata.name} is resumed."
        status = status_with_condition(status, ConditionType.SUSPENDED, f"{job.KIND}Resumed", told, now, value="False")
        status = msgspec.structs.replace(status, start_time=timestamp(now))
        notes = (*notes, JobEvent(f"{job.KIND}Resumed", told))
    if standing.restarts_all or standing.pods_to_replace:
        return _restart_plan(framework, seen, status, notes, standing)
    if standing.verdict.outcome is JobOutcome.RUNNING:
        status = status_with_condition(
            status, ConditionType.RUNNING, f"{job.KIND}Running", standing.verdict.message, now
        )
    if not job.status.conditions:
        notes = (*notes, *ignored_field_events(framework, job))
    filling = child_actions(framework, seen, status.ledger)
    if seen.scheduler_choice.missing_name:
        told = missing_scheduler_message(seen.site, seen.scheduler_choice.missing_name)
        status = status_with_condition(status, ConditionType.BLOCKED, "GangSchedulerMissing", told, now)
        notes = (*notes, JobEvent("GangSchedulerMissing", told, warning=True))
    elif not filling.incomplete:
        status = status_without_blocked(status)
    status, waiting, patience = _with_timeout_warning(seen, status)
    phase = _active_phase(job.status, status)
    if not seen.is_admitted and job.status.start_time is None:
        # As in v1 a job that waits for its gang has not begun: neither its clock nor its counters.
        status = msgspec.structs.replace(status, start_time=None, replica_statuses={})
        phase = JobPhase.NONE
    status = status_with_phase(_with_completeness(framework, seen, status), phase, seen.gang)
    wakes = (standing.verdict_delay, filling.requeue_after, patience, _deadline_in(framework, seen, status))
    notes = (*notes, *filling.events, *waiting, *_reported_warnings(seen))
    return JobPlan(status, filling.stages, notes, _soonest(wakes))


def _restart_plan(
    framework: Framework[J],
    seen: ObservedJob[J],
    status: JobStatus,
    notes: tuple[JobEvent, ...],
    standing: JobActive,
) -> JobPlan:
    """Count what failed, then send it away. Its seat is filled when it is gone."""
    job, ledger = seen.job, status.ledger
    told = _restart_message(framework, seen, standing)
    fresh: tuple[Pod, ...] = tuple(pod for pod in standing.pods_to_replace if pod.metadata.uid not in ledger.replaced)
    which = RestartScope.JOB if standing.restarts_all else RestartScope.REPLICA
    if standing.restarts_all or fresh:
        # A row of failures that began with this one is told by it.
        kept = ledger.replaced or standing.stranded_state is not None
        cause = status.first_failure if kept else standing.cause
        ledger = with_backoff(ledger, which, seen.now)
        status = msgspec.structs.replace(status, first_failure=cause)
        notes = (
            *notes,
            JobEvent(f"{job.KIND}Restarting", told, warning=True),
            *exit_events(fresh, framework.facts.container),
        )
    if standing.restarts_all:
        number, stranded = ledger.round + 1, standing.stranded_state
        blameless = standing.renews_addresses or stranded is not None
        ledger = msgspec.structs.replace(
            ledger,
            round=number,
            addresses=number if standing.renews_addresses else ledger.addresses,
            renewals=ledger.renewals + blameless,
            regrouped=stranded.last_transition_time if stranded is not None else ledger.regrouped,
            complete=False,
        )
        restarts = status.restarts + (0 if blameless else 1)
        doomed: tuple[Pod, ...] = (*seen.gang.pods.values(), *seen.gang.stale, *seen.gang.extra)
    else:
        replaced = (*ledger.replaced, *(pod.metadata.uid for pod in fresh))
        ledger = msgspec.structs.replace(ledger, replaced=replaced)
        restarts = status.restarts + len(fresh)
        doomed = (*standing.pods_to_replace, *seen.gang.extra)
    status = msgspec.structs.replace(status, ledger=ledger, restarts=restarts)
    status = status_with_condition(status, ConditionType.RESTARTING, f"{job.KIND}Restarting", told, seen.now)
    phase = JobPhase.CREATING if standing.restarts_all else _active_phase(job.status, status)
    status = status_with_phase(status, phase, seen.gang)
    stage = deletions(seen, PODS, doomed)
    filling = None if standing.restarts_all else child_actions(framework, seen, status.ledger)
    stages = (stage, *(filling.stages if filling is not None else ()))
    wakes = (filling.requeue_after if filling is not None else None, _deadline_in(framework, seen, status))
    return JobPlan(status, stages, notes, _soonest(wakes))


def _restart_message(framework: Framework[J], seen: ObservedJob[J], standing: JobActive) -> str:
    job, kind = seen.job, standing.replica_type
    if standing.stranded_state is not None:
        why = f"its gang has no room for all of its members: {standing.stranded_state.message}"
        return f"job {job.metadata.name} is restarting because {why}"
    count = seen.gang.counts[kind].failed
    if isinstance(framework, RestartMessage) and count:
        return framework.restart_message(job, kind, count)
    return f"job {job.metadata.name} is restarting because {kind} replica(s) failed."


def _reported_warnings(seen: ObservedJob[J]) -> Iterable[JobEvent]:
    """What is wrong with pods. Where a group says why all of them wait, it is not told for each of them again."""
    pods = seen.gang.pods.values()
    return pod_warnings(pods if seen.gang_state is None else (pod for pod in pods if pod.spec.node_name))


def _with_timeout_warning(
    seen: ObservedJob[J], status: JobStatus
) -> tuple[JobStatus, tuple[JobEvent, ...], timedelta | None]:
    """What is told of a gang that waits for its places, once; and when to look again."""
    waits = placement_wait(seen)
    if waits is None:
        return status, (), None
    if waits.remaining > timedelta():
        return status, (), waits.remaining
    if status.ledger.waited == waits.since:
        return status, (), None
    ledger = msgspec.structs.replace(status.ledger, waited=waits.since)
    note = JobEvent("GangTimeout", f"{waits.timeout_message}; it goes on waiting", warning=True)
    return msgspec.structs.replace(status, ledger=ledger), (note,), None


def _active_phase(before: JobStatus, status: JobStatus) -> JobPhase:
    if status.holds(ConditionType.RUNNING) or before.phase == JobPhase.RUNNING:
        return JobPhase.RUNNING
    return JobPhase.CREATING


def _with_completeness(framework: Framework[J], seen: ObservedJob[J], status: JobStatus) -> JobStatus:
    """For teams that restart together: whether every seat has had its pod in this round."""
    if restart_scope(seen.job, framework.run_policy(seen.job)) is not RestartScope.JOB:
        return status
    changed = seen.job.metadata.generation != seen.job.status.observed_generation
    full = all(seat in seen.gang.pods and not any_terminating((seen.gang.pods[seat],)) for seat in seen.gang.seats)
    complete = full or (status.ledger.complete and not changed)
    if complete == status.ledger.complete:
        return status
    return msgspec.structs.replace(status, ledger=msgspec.structs.replace(status.ledger, complete=complete))


def _deadline_in(framework: Framework[J], seen: ObservedJob[J], status: JobStatus) -> timedelta | None:
    limit = framework.run_policy(seen.job).active_deadline_seconds
    if limit is None or status.start_time is None:
        return None
    return max(status.start_time + timedelta(seconds=limit) - seen.now, timedelta())


def _soonest(delays: Iterable[timedelta | None]) -> timedelta | None:
    return min((delay for delay in delays if delay is not None), default=None)
