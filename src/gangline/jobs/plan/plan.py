"""Turns an observed job into a plan. Decides everything, does nothing."""

from collections.abc import Iterable
from datetime import timedelta
from typing import assert_never

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import ConditionType, JobPhase, JobStatus, RestartScope
from gangline.jobs.defaults import ignored_fields
from gangline.jobs.framework import Framework, J, JobOutcome, PlansByLauncherJob, RestartMessage
from gangline.jobs.plan.actions import PODS, JobAction, JobEvent, JobPlan
from gangline.jobs.plan.assessment import (
    AlreadyFinished,
    JobActive,
    JobFailing,
    JobSucceeding,
    JobSuspended,
    ManagedElsewhere,
    assess,
)
from gangline.jobs.plan.conditions import status_with_condition, status_without_blocked, time_left, timestamp
from gangline.jobs.plan.creation import child_actions, deletions
from gangline.jobs.plan.failures.ranks import replica_ranks
from gangline.jobs.plan.failures.records import ended_pods, may_be_revised, revised_failure, supersedes
from gangline.jobs.plan.finish import cleanup_plan, finish_plan, suspend_plan
from gangline.jobs.plan.gang_state import placement_wait
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.pod_warnings import exit_events, pod_warnings
from gangline.jobs.plan.recovery.decision import with_recovery
from gangline.jobs.plan.recovery.forgiveness import forgiveness_in, outdated_pods, with_early_forgiveness
from gangline.jobs.plan.recovery.in_place import in_place_progress, new_restart
from gangline.jobs.plan.recovery.in_place_plan import after_restart, in_place_plan
from gangline.jobs.plan.restarts import RestartTally, any_terminating, restart_scope, restart_tally, with_backoff
from gangline.jobs.plan.rounds import STILL_TERMINATING, overdue_message, overdue_pod, with_next_round
from gangline.jobs.plan.stall import HangVerdict, plan_with_stall
from gangline.jobs.plan.status import active_status, finished_status, status_with_phase
from gangline.jobs.pods.replicas import Member, all_pods
from gangline.jobs.site import missing_scheduler_message


def reconcile_plan(framework: Framework[J], observed: ObservedJob[J]) -> JobPlan:
    """The plan for a job. The same input gives the same plan."""
    plan, verdict = _job_plan(framework, observed), HangVerdict(observed.stall, observed.stall_end)
    return plan_with_stall(observed.job, plan, verdict, observed.now)


def _job_plan(framework: Framework[J], observed: ObservedJob[J]) -> JobPlan:
    if isinstance(framework, PlansByLauncherJob):
        plan: JobPlan = framework.plan(observed)
        return plan
    restarts = restart_tally(observed.job.status, observed.gang, framework.replicas(observed.job))
    progress = in_place_progress(framework, observed, restarts.ledger)
    if progress is not None and progress.done:
        restarts, event = after_restart(observed, restarts, progress)
        plan = _tallied_plan(framework, observed, restarts)
        return msgspec.structs.replace(plan, events=(event, *plan.events))
    return _tallied_plan(framework, observed, restarts)


def _tallied_plan(framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally) -> JobPlan:
    assessment = assess(framework, observed, restarts)
    match assessment:
        case ManagedElsewhere():
            return JobPlan(observed.job.status)
        case AlreadyFinished():
            return cleanup_plan(framework, observed, _revised_status(framework, observed))
        case JobSucceeding() | JobFailing():
            return finish_plan(framework, observed, restarts, assessment)
        case JobSuspended():
            return suspend_plan(framework, observed, restarts)
        case JobActive():
            return _active_plan(framework, observed, restarts, assessment)
        case _:
            assert_never(assessment)


def _revised_status(framework: Framework[J], observed: ObservedJob[J]) -> JobStatus:
    """The status of a finished job, with the replica that failed first as far as that is known by now."""
    status = finished_status(observed.job)
    if status.first_failure is None or not may_be_revised(status, observed.now):
        return status
    logs, ranks = observed.children.log_tails, replica_ranks(framework, observed)
    pods, container = ended_pods(observed.gang, observed.children.departed), framework.facts.container
    first = revised_failure(status.first_failure, pods, container, logs, ranks, status.completion_time)
    return msgspec.structs.replace(status, first_failure=first)


def _active_plan(
    framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally, assessment: JobActive
) -> JobPlan:
    job, now = observed.job, observed.now
    status = active_status(framework, observed, restarts)
    events: tuple[JobEvent, ...] = ()
    if job.status.holds(ConditionType.SUSPENDED):
        reason, message = f"{job.KIND}Resumed", f"{job.KIND} {job.metadata.name} is resumed."
        status = status_with_condition(status, ConditionType.SUSPENDED, reason, message, now, value="False")
        status = msgspec.structs.replace(status, start_time=timestamp(now))
        events = (*events, JobEvent(reason, message))
    if assessment.restarts_all or assessment.pods_to_replace:
        return _restart_plan(framework, observed, status, events, assessment)
    if assessment.in_place is not None:
        plan = in_place_plan(framework, observed, status, assessment.in_place)
        delays: Iterable[timedelta | None] = (plan.requeue_after, _deadline_in(framework, observed, status))
        return msgspec.structs.replace(plan, requeue_after=_soonest(delays))
    if assessment.verdict.outcome is JobOutcome.RUNNING:
        status = status_with_condition(
            status, ConditionType.RUNNING, f"{job.KIND}Running", assessment.verdict.message, now
        )
    if not job.status.conditions:
        ignored = ignored_fields(framework, job)
        events = (*events, *(JobEvent("FieldIgnored", str(problem), warning=True) for problem in ignored))
    children = child_actions(framework, observed, status.ledger)
    if observed.scheduler_choice.missing_name:
        message = missing_scheduler_message(observed.site, observed.scheduler_choice.missing_name)
        status = status_with_condition(status, ConditionType.BLOCKED, "GangSchedulerMissing", message, now)
        events = (*events, JobEvent("GangSchedulerMissing", message, warning=True))
    elif not children.incomplete:
        status = status_without_blocked(status)
    if status.ledger.draining and not children.unended:
        status = msgspec.structs.replace(status, ledger=msgspec.structs.replace(status.ledger, draining=False))
    status, overdue_events, overdue_in = _with_overdue_warning(observed, status, children.unended)
    status, timeout_events, timeout_in = _with_timeout_warning(observed, status)
    status, forgiven_events = with_early_forgiveness(observed, status)
    phase = _active_phase(job.status, status)
    if not observed.is_admitted and job.status.start_time is None:
        # As in v1 a job that waits for its gang has not started: it has no start time and no counters.
        status = msgspec.structs.replace(status, start_time=None, replica_statuses={})
        phase = JobPhase.NONE
    status = status_with_phase(_with_completeness(framework, observed, status), phase, observed.gang)
    deadline_in = _deadline_in(framework, observed, status)
    delays = (
        assessment.verdict_delay,
        children.requeue_after,
        overdue_in,
        timeout_in,
        deadline_in,
        forgiveness_in(observed),
    )
    events = (
        *events,
        *children.events,
        *overdue_events,
        *timeout_events,
        *forgiven_events,
        *_reported_warnings(observed),
    )
    return JobPlan(status, children.stages, events, _soonest(delays))


def _restart_plan(
    framework: Framework[J],
    observed: ObservedJob[J],
    status: JobStatus,
    events: tuple[JobEvent, ...],
    assessment: JobActive,
) -> JobPlan:
    """Count the failures in the status, then delete the pods. Replicas get new pods once the old ones are gone.

    Pods that restart in place stay, and are asked for it.
    """
    job, ledger = observed.job, status.ledger
    message = _restart_message(framework, observed, assessment)
    uncounted: tuple[Pod, ...] = tuple(
        pod for pod in assessment.pods_to_replace if pod.metadata.uid not in ledger.replaced
    )
    scope = RestartScope.JOB if assessment.restarts_all else RestartScope.REPLICA
    if assessment.restarts_all or uncounted:
        # In a series of failures the first one is reported.
        keeps_cause = (
            ledger.replaced and not supersedes(assessment.cause, status.first_failure)
        ) or assessment.stranded_state is not None
        cause = status.first_failure if keeps_cause else assessment.cause
        if cause != status.first_failure:
            ledger = msgspec.structs.replace(ledger, failed_round=ledger.round)
        ledger = with_backoff(ledger, scope, observed.now)
        status = msgspec.structs.replace(status, first_failure=cause)
        if assessment.recovery is not None:
            restarted = 1 if assessment.restarts_all else len(uncounted)
            status, ledger = with_recovery(status, ledger, assessment.recovery, restarted, observed.now)
        events = (
            *events,
            JobEvent(f"{job.KIND}Restarting", message, warning=True),
            *exit_events(uncounted, framework.facts.container),
        )
    if assessment.recovery is not None and assessment.recovery.in_place:
        members = observed.gang.seats if assessment.restarts_all else _members_of(observed, assessment.pods_to_replace)
        restart = new_restart(observed.gang, members, observed.now, together=assessment.restarts_all)
        ledger = msgspec.structs.replace(ledger, restarting_in_place=restart)
        restarts = status.restarts + (1 if assessment.restarts_all else len(uncounted))
        doomed: tuple[Pod, ...] = ()
    elif assessment.restarts_all:
        stranded = assessment.stranded_state
        charged = not assessment.renews_addresses and stranded is None
        ledger = with_next_round(ledger, renews_addresses=assessment.renews_addresses, charged=charged)
        if stranded is not None:
            ledger = msgspec.structs.replace(ledger, regrouped=stranded.last_transition_time)
        restarts = status.restarts + charged
        doomed = all_pods(observed.gang)
    else:
        replaced = (*ledger.replaced, *(pod.metadata.uid for pod in uncounted))
        ledger = msgspec.structs.replace(ledger, replaced=replaced)
        restarts = status.restarts + len(uncounted)
        doomed = (*assessment.pods_to_replace, *observed.gang.extra)
    status = msgspec.structs.replace(status, ledger=ledger, restarts=restarts)
    status = status_with_condition(status, ConditionType.RESTARTING, f"{job.KIND}Restarting", message, observed.now)
    phase = JobPhase.CREATING if assessment.restarts_all else _active_phase(job.status, status)
    status = status_with_phase(status, phase, observed.gang)
    deletes: tuple[JobAction, ...] = deletions(observed, PODS, doomed)
    deadline_in = _deadline_in(framework, observed, status)
    progress = in_place_progress(framework, observed, ledger)
    if progress is not None:
        return JobPlan(status, (progress.orders,), events, _soonest((progress.remaining, deadline_in)))
    if assessment.restarts_all:
        return JobPlan(status, (deletes,), events, deadline_in)
    children = child_actions(framework, observed, status.ledger)
    return JobPlan(status, (deletes, *children.stages), events, _soonest((children.requeue_after, deadline_in)))


def _members_of(observed: ObservedJob[J], pods: Iterable[Pod]) -> tuple[Member, ...]:
    uids = {pod.metadata.uid for pod in pods}
    return tuple(member for member, pod in observed.gang.pods.items() if pod.metadata.uid in uids)


def _restart_message(framework: Framework[J], observed: ObservedJob[J], assessment: JobActive) -> str:
    job, kind = observed.job, assessment.replica_type
    if assessment.recovery is not None:
        return f"job {job.metadata.name} {assessment.recovery.message}"
    if assessment.stranded_state is not None:
        reason = f"its gang has no room for all of its members: {assessment.stranded_state.message}"
        return f"job {job.metadata.name} is restarting because {reason}"
    count = observed.gang.counts[kind].failed
    if isinstance(framework, RestartMessage) and count:
        return framework.restart_message(job, kind, count)
    return f"job {job.metadata.name} is restarting because {kind} replica(s) failed."


def _reported_warnings(observed: ObservedJob[J]) -> Iterable[JobEvent]:
    """Warnings about pods; about placed pods only, if the PodGroup says why the others wait."""
    pods = observed.gang.pods.values()
    return pod_warnings(pods if observed.gang_state is None else (pod for pod in pods if pod.spec.node_name))


def _with_overdue_warning(
    observed: ObservedJob[J], status: JobStatus, unended: tuple[Pod, ...]
) -> tuple[JobStatus, tuple[JobEvent, ...], timedelta | None]:
    """Warn once about a pod that does not end, for which the next round waits: status, events, when to look again."""
    late, delay = overdue_pod(unended, observed.now)
    blocked = status.condition(ConditionType.BLOCKED)
    if late is None:
        waited = blocked is not None and blocked.reason == STILL_TERMINATING
        return (status_without_blocked(status) if waited else status), (), delay
    if blocked is not None:
        return status, (), delay
    message = overdue_message(late)
    status = status_with_condition(status, ConditionType.BLOCKED, STILL_TERMINATING, message, observed.now)
    return status, (JobEvent(STILL_TERMINATING, message, warning=True),), delay


def _with_timeout_warning(
    observed: ObservedJob[J], status: JobStatus
) -> tuple[JobStatus, tuple[JobEvent, ...], timedelta | None]:
    """Warn once when a gang has waited for placement too long: the status, the events, and when to look again."""
    wait = placement_wait(observed)
    if wait is None:
        return status, (), None
    if wait.remaining > timedelta():
        return status, (), wait.remaining
    if status.ledger.waited == wait.since:
        return status, (), None
    ledger = msgspec.structs.replace(status.ledger, waited=wait.since)
    event = JobEvent("GangTimeout", f"{wait.timeout_message}; it goes on waiting", warning=True)
    return msgspec.structs.replace(status, ledger=ledger), (event,), None


def _active_phase(before: JobStatus, status: JobStatus) -> JobPhase:
    if status.holds(ConditionType.RUNNING) or before.phase == JobPhase.RUNNING:
        return JobPhase.RUNNING
    return JobPhase.CREATING


def _with_completeness(framework: Framework[J], observed: ObservedJob[J], status: JobStatus) -> JobStatus:
    """For jobs that restart as a whole: record whether every replica has had its pod in this round."""
    if restart_scope(observed.job, framework.run_policy(observed.job)) is not RestartScope.JOB:
        return status
    gang = observed.gang
    changed = observed.job.metadata.generation != observed.job.status.observed_generation
    outdated = bool(outdated_pods(observed))
    full = all(member in gang.pods and not any_terminating((gang.pods[member],)) for member in gang.seats)
    complete = not outdated and (full or (status.ledger.complete and not changed))
    if complete == status.ledger.complete:
        return status
    return msgspec.structs.replace(status, ledger=msgspec.structs.replace(status.ledger, complete=complete))


def _deadline_in(framework: Framework[J], observed: ObservedJob[J], status: JobStatus) -> timedelta | None:
    limit = framework.run_policy(observed.job).active_deadline_seconds
    if limit is None or status.start_time is None:
        return None
    return max(time_left(status.start_time, limit, observed.now), timedelta())


def _soonest(delays: Iterable[timedelta | None]) -> timedelta | None:
    return min((delay for delay in delays if delay is not None), default=None)
