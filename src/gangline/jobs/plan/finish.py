"""The end of a job: verdict, clean-up and time to live. Also its suspension."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.kubeflow.training import CleanPodPolicy, ConditionType, JobPhase, JobStatus
from gangline.goodput.accrual import closed_ledger
from gangline.jobs.framework import Framework, J, ResetsReplicaCounts, RunningBeforeEnd
from gangline.jobs.plan.actions import PODS, SERVICES, Delete, DeleteJob, JobAction, JobEvent, JobPlan, Rejection
from gangline.jobs.plan.assessment import JobFailing, JobSucceeding
from gangline.jobs.plan.conditions import (
    created_status,
    status_with_condition,
    status_without_blocked,
    time_left,
    timestamp,
)
from gangline.jobs.plan.creation import deletions, retained_companion_patches, surplus_deletions
from gangline.jobs.plan.observed import ObservedJob, is_owned_by
from gangline.jobs.plan.pod_warnings import exit_events
from gangline.jobs.plan.recovery.decision import with_recovery
from gangline.jobs.plan.recovery.in_place import releases
from gangline.jobs.plan.restarts import RestartTally, failed_pods
from gangline.jobs.plan.rounds import after_suspension
from gangline.jobs.plan.status import (
    active_status,
    final_progress,
    idle_counters,
    status_with_phase,
    succeeded_counters,
    suspended_counters,
)
from gangline.jobs.pods.replicas import all_pods


def finish_plan(
    framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally, assessment: JobSucceeding | JobFailing
) -> JobPlan:
    """Write the verdict, and begin to clean up."""
    job, now = observed.job, observed.now
    status = active_status(framework, observed, restarts)
    status = msgspec.structs.replace(status, ledger=msgspec.structs.replace(status.ledger, restarting_in_place=None))
    events: tuple[JobEvent, ...] = ()
    counters = status.replica_statuses
    if isinstance(framework, ResetsReplicaCounts):
        reset = set(framework.reset_types(job, observed.gang))
        counters = {
            kind: msgspec.structs.replace(replica, active=0, succeeded=0, failed=0) if kind in reset else replica
            for kind, replica in counters.items()
        }
    if isinstance(assessment, JobSucceeding):
        events = running_pods_warning(framework, observed)
        reason, message, counters = f"{job.KIND}Succeeded", assessment.message, succeeded_counters(counters)
        kind, event = ConditionType.SUCCEEDED, JobEvent(reason, message)
    else:
        reason, message = assessment.text.reason, assessment.text.message
        kind, event = ConditionType.FAILED, JobEvent(f"{job.KIND}Failed", message, warning=True)
        ledger = msgspec.structs.replace(status.ledger, clear=assessment.deletes_all_pods)
        cause = assessment.cause or status.first_failure
        status = msgspec.structs.replace(status, ledger=ledger, first_failure=cause)
        if assessment.recovery is not None:
            status, _ = with_recovery(status, ledger, assessment.recovery, 0, now)
        counters = idle_counters(counters) if assessment.deletes_all_pods else counters
    status = msgspec.structs.replace(status, replica_statuses=counters, completion_time=timestamp(now))
    if isinstance(framework, RunningBeforeEnd) and (isinstance(assessment, JobSucceeding) or assessment.by_framework):
        running = framework.running_text(job)
        status = status_with_condition(status, ConditionType.RUNNING, running.reason, running.message, now)
    status = status_with_condition(status, kind, reason, message, now)
    cleanup = cleanup_plan(framework, observed, status)
    exit_codes = exit_events(failed_pods(observed.gang).values(), framework.facts.container)
    events = (*events, event, *exit_codes, *cleanup.events)
    if isinstance(assessment, JobFailing) and assessment.deletes_all_pods:
        return msgspec.structs.replace(cleanup, events=events)
    # Companions that stay show what the verdict was based on, and surplus objects are deleted whatever the policy (as
    # in v1, not where a limit ended the job). Both before the verdict is written: afterwards pods may be gone, and with
    # them what the companions had to show and which replicas were surplus while the job ran.
    before = (*(() if observed.problems else surplus_deletions(observed)), *retained_companion_patches(observed))
    stages = tuple(tuple(action for action in stage if action not in before) for stage in cleanup.stages)
    return msgspec.structs.replace(cleanup, before_status=before, stages=stages, events=events)


def running_pods_warning(framework: Framework[J], observed: ObservedJob[J]) -> tuple[JobEvent, ...]:
    """A warning about pods that go on running after the job has succeeded, which is v1's default."""
    running = sum(counts.active for counts in observed.gang.counts.values())
    if framework.run_policy(observed.job).clean_pod_policy != CleanPodPolicy.NONE or not running:
        return ()
    message = f"{running} pod(s) go on running; write runPolicy.cleanPodPolicy: Running to have them stopped"
    return (JobEvent("PodsLeftRunning", message, warning=True),)


def cleanup_plan(framework: Framework[J], observed: ObservedJob[J], status: JobStatus) -> JobPlan:
    """Clean up as the policy says, then wait for the time to live. Nothing else happens to a finished job."""
    job, gang, policy = observed.job, observed.gang, framework.run_policy(observed.job)
    everything = status.ledger.clear or policy.clean_pod_policy not in (CleanPodPolicy.NONE, CleanPodPolicy.RUNNING)
    if everything:
        pods: tuple[Pod, ...] = all_pods(gang)
        services: tuple[Service, ...] = observed.children.services
    elif policy.clean_pod_policy == CleanPodPolicy.RUNNING:
        finished = {pod.metadata.name for pod in all_pods(gang) if _has_finished(pod)}
        pods = tuple(pod for pod in all_pods(gang) if pod.metadata.name not in finished)
        retained = {*finished, job.metadata.name}
        services = tuple(service for service in observed.children.services if service.metadata.name not in retained)
    else:
        pods, services = gang.stale, ()
    deleted = {pod.metadata.uid for pod in pods}
    stage = (
        *deletions(observed, PODS, pods),
        *releases(gang.pods.values(), deleted),
        *deletions(observed, SERVICES, services),
        *companion_deletions(observed),
    )
    # Children that the cache shows late are deleted too, but the phase does not leave a terminal one for them.
    terminal = status.phase in (JobPhase.DONE, JobPhase.FAILED)
    pending = any(resource in (PODS, SERVICES) for resource, _ in observed.children.pending_creates)
    if not terminal and (pods or services or pending):
        phase = JobPhase.CLEAN_UP
    else:
        phase = JobPhase.FAILED if status.holds(ConditionType.FAILED) else JobPhase.DONE
    status = status_with_phase(_with_completion_time(status), phase, gang)
    progress = final_progress(gang, status.progress, observed.now)
    if progress != status.progress:
        status = msgspec.structs.replace(status, progress=progress)
    ttl = policy.ttl_seconds_after_finished
    if ttl is None or status.completion_time is None:
        return JobPlan(status, (stage,))
    remaining = time_left(status.completion_time, ttl, observed.now)
    if ttl and remaining > timedelta():
        return JobPlan(status, (stage,), requeue_after=remaining)
    return JobPlan(status, (stage, (DeleteJob(),)))


def _with_completion_time(status: JobStatus) -> JobStatus:
    """v1 does not set the completion time after some failures, and never deletes those jobs: use the verdict's time."""
    if status.completion_time is not None:
        return status
    verdicts = (status.condition(kind) for kind in (ConditionType.FAILED, ConditionType.SUCCEEDED))
    times = [verdict.last_transition_time for verdict in verdicts if verdict is not None and verdict.status == "True"]
    return msgspec.structs.replace(status, completion_time=next(iter(times), None))


def _has_finished(pod: Pod) -> bool:
    return pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def suspend_plan(framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally) -> JobPlan:
    """Delete all pods and services of a suspended job, whatever the clean-up policy. Its counters stay."""
    job, now, gang = observed.job, observed.now, observed.gang
    reason, message = f"{job.KIND}Suspended", f"{job.KIND} {job.metadata.name} is suspended."
    status = status_without_blocked(created_status(job, now))
    ledger = msgspec.structs.replace(
        restarts.ledger, complete=False, not_before=None, streak=0, restarting_in_place=None
    )
    has_begun = bool(job.status.conditions or observed.children.pods or observed.children.pending_creates)
    if has_begun and not status.holds(ConditionType.SUSPENDED):
        # The replicas of the resumed job are a new team.
        ledger = after_suspension(framework, observed, ledger)
    status = msgspec.structs.replace(
        status,
        replica_statuses=suspended_counters(status.replica_statuses, framework.replicas(job)),
        observed_generation=job.metadata.generation,
        restarts=restarts.total,
        ledger=ledger,
    )
    if status.holds(ConditionType.RUNNING):
        status = status_with_condition(status, ConditionType.RUNNING, reason, message, now, value="False")
    events = () if status.holds(ConditionType.SUSPENDED) else (JobEvent(reason, message),)
    status = status_with_condition(status, ConditionType.SUSPENDED, reason, message, now)
    status = status_with_phase(status, JobPhase.NONE, gang)
    stage = (
        *deletions(observed, PODS, all_pods(gang)),
        *deletions(observed, SERVICES, observed.children.services),
        *companion_deletions(observed),
    )
    return JobPlan(status, (stage,), events)


def rejected_status(
    framework: Framework[J], observed: ObservedJob[J], job: J, rejections: Sequence[Rejection]
) -> JobStatus:
    """The status of a job whose objects the server rejects: Failed if one of them is invalid, else Blocked."""
    permanent = next((rejection for rejection in rejections if rejection.permanent), None)
    status = job.status
    if permanent is None:
        first = rejections[0]
        reason = "ErrResourceExists" if first.name_conflict else f"FailedCreate{first.kind}"
        return status_with_condition(status, ConditionType.BLOCKED, reason, first.message, observed.now)
    message = f"{job.KIND} {job.metadata.name} cannot run: {permanent.message}"
    status = msgspec.structs.replace(
        status,
        completion_time=timestamp(observed.now),
        replica_statuses=idle_counters(status.replica_statuses),
        ledger=msgspec.structs.replace(status.ledger, clear=True),
        goodput=closed_ledger(status.goodput),
    )
    status = status_with_condition(status, ConditionType.FAILED, f"{job.KIND}Failed", message, observed.now)
    return status_with_phase(status, JobPhase.CLEAN_UP, observed.gang)


def companion_deletions(observed: ObservedJob[J]) -> tuple[JobAction, ...]:
    """Delete the companions that only an active job needs."""
    return tuple(
        Delete(companion.resource, companion.name, body["metadata"].get("uid", ""))
        for companion, body in observed.companions
        if companion.only_active
        and body is not None
        and not body["metadata"].get("deletionTimestamp")
        and is_owned_by(body, observed.job.metadata.uid)
    )
