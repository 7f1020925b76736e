"""How a job ends: the verdict, the clean-up, the time to live; and how it is put to rest for a while."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.kubeflow.training import CleanPodPolicy, ConditionType, JobPhase, JobStatus
from gangline.jobs.framework import Framework, J, ResetsReplicaCounts, RunningBeforeEnd
from gangline.jobs.plan.actions import (
    PODS,
    SERVICES,
    Delete,
    DeleteJob,
    JobAction,
    JobEvent,
    JobPlan,
    Rejection,
)
from gangline.jobs.plan.assessment import JobFailing, JobSucceeding, RestartTally, is_marked_suspended
from gangline.jobs.plan.conditions import (
    active_status,
    created_status,
    status_with_condition,
    status_without_blocked,
    timestamp,
)
from gangline.jobs.plan.creation import retained_companion_patches, surplus_deletions
from gangline.jobs.plan.observed import ObservedJob, is_owned_by
from gangline.jobs.plan.pod_warnings import exit_events
from gangline.jobs.plan.restarts import failed_pods
from gangline.jobs.plan.status import (
    idle_counters,
    status_with_phase,
    succeeded_counters,
    suspended_counters,
)


def finish_plan(
    framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally, how: JobSucceeding | JobFailing
) -> JobPlan:
    """Write the verdict down, and begin to clean up."""
    job, now = seen.job, seen.now
    status = active_status(framework, seen, so_far)
    notes: tuple[JobEvent, ...] = ()
    statuses = status.replica_statuses
    if isinstance(framework, ResetsReplicaCounts):
        cleared = set(framework.reset_types(job, seen.gang))
        statuses = {
            kind: msgspec.structs.replace(found, active=0, succeeded=0, failed=0) if kind in cleared else found
            for kind, found in statuses.items()
        }
    if isinstance(how, JobSucceeding):
        notes = running_pods_warning(framework, seen)
        reason, message, statuses = f"{job.KIND}Succeeded", how.message, succeeded_counters(statuses)
        kind, note = ConditionType.SUCCEEDED, JobEvent(reason, message)
    else:
        reason, message = how.text.reason, how.text.message
        kind, note = ConditionType.FAILED, JobEvent(f"{job.KIND}Failed", message, warning=True)
        ledger = msgspec.structs.replace(status.ledger, clear=how.deletes_all_pods)
        cause = how.cause or status.first_failure
        status = msgspec.structs.replace(status, ledger=ledger, first_failure=cause)
        statuses = idle_counters(statuses) if how.deletes_all_pods else statuses
    status = msgspec.structs.replace(status, replica_statuses=statuses, completion_time=timestamp(now))
    if isinstance(framework, RunningBeforeEnd) and (isinstance(how, JobSucceeding) or how.by_framework):
        ran = framework.running_text(job)
        status = status_with_condition(status, ConditionType.RUNNING, ran.reason, ran.message, now)
    status = status_with_condition(status, kind, reason, message, now)
    ending = cleanup_plan(framework, seen, status)
    codes = exit_events(failed_pods(seen.gang).values(), framework.facts.container)
    notes = (*notes, note, *codes, *ending.events)
    if isinstance(how, JobFailing) and how.deletes_all_pods:
        return msgspec.structs.replace(ending, events=notes)
    # What the verdict was based on is shown by the companions that stay, too, and what an edit made superfluous goes,
    # whatever the policy. As in v1 not where a limit ended it, and before the verdict: after it nobody could tell any
    # more what they were to show, for pods may be gone by then, nor that replicas were too many while the job ran.
    before = (*(() if seen.problems else surplus_deletions(seen)), *retained_companion_patches(seen))
    stages = tuple(tuple(action for action in stage if action not in before) for stage in ending.stages)
    return msgspec.structs.replace(ending, before_status=before, stages=stages, events=notes)


def running_pods_warning(framework: Framework[J], seen: ObservedJob[J]) -> tuple[JobEvent, ...]:
    """A warning about pods that hold their resources although the job has succeeded: v1's default leaves them."""
    running = sum(found.active for found in seen.gang.counts.values())
    if framework.run_policy(seen.job).clean_pod_policy != CleanPodPolicy.NONE or not running:
        return ()
    told = f"{running} pod(s) go on running; write runPolicy.cleanPodPolicy: Running to have them stopped"
    return (JobEvent("PodsLeftRunning", told, warning=True),)


def cleanup_plan(framework: Framework[J], seen: ObservedJob[J], status: JobStatus) -> JobPlan:
    """Clean up by policy, then wait for the time to live. Nothing else ever happens to a finished job."""
    job, policy = seen.job, framework.run_policy(seen.job)
    gang = seen.gang
    everything = status.ledger.clear or policy.clean_pod_policy not in (
        CleanPodPolicy.NONE,
        CleanPodPolicy.RUNNING,
    )
    everyone = (*gang.pods.values(), *gang.stale, *gang.extra)
    if everything:
        doomed: tuple[Pod, ...] = everyone
        services: tuple[Service, ...] = seen.children.services
    elif policy.clean_pod_policy == CleanPodPolicy.RUNNING:
        stay = {pod.metadata.name for pod in everyone if _has_finished(pod)}
        doomed = tuple(pod for pod in everyone if pod.metadata.name not in stay)
        services = tuple(
            found
            for found in seen.children.services
            if found.metadata.name not in stay and found.metadata.name != job.metadata.name
        )
    else:
        doomed, services = gang.stale, ()
    stage = (
        *deletions(seen, PODS, doomed),
        *deletions(seen, SERVICES, services),
        *companion_deletions(seen),
    )
    failed = status.holds(ConditionType.FAILED)
    # Children that the cache shows late are sent away too, but an end once told is the end.
    over = status.phase in (JobPhase.DONE, JobPhase.FAILED)
    owed = any(resource in (PODS, SERVICES) for resource, _ in seen.children.pending_creates)
    cleans = not over and bool(doomed or services or owed)
    phase = JobPhase.CLEAN_UP if cleans else JobPhase.FAILED if failed else JobPhase.DONE
    status = status_with_phase(_with_completion_time(status), phase, gang)
    ttl = policy.ttl_seconds_after_finished
    if ttl is None or status.completion_time is None:
        return JobPlan(status, (stage,))
    left = status.completion_time + timedelta(seconds=ttl) - seen.now
    if left > timedelta():
        return JobPlan(status, (stage,), requeue_after=left)
    return JobPlan(status, (stage, (DeleteJob(),)))


def _with_completion_time(status: JobStatus) -> JobStatus:
    """v1 forgets the time of some failures, and then to delete the job: it is the time of the verdict."""
    if status.completion_time is not None:
        return status
    verdicts = (status.condition(kind) for kind in (ConditionType.FAILED, ConditionType.SUCCEEDED))
    times = [found.last_transition_time for found in verdicts if found is not None and found.status == "True"]
    return msgspec.structs.replace(status, completion_time=next(iter(times), None))


def _has_finished(pod: Pod) -> bool:
    return pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def suspend_plan(framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally) -> JobPlan:
    """Suspended: everything that runs goes, whatever the policy; what was counted stays."""
    job, now, gang = seen.job, seen.now, seen.gang
    reason, told = f"{job.KIND}Suspended", f"{job.KIND} {job.metadata.name} is suspended."
    status = status_without_blocked(created_status(job, now))
    status = msgspec.structs.replace(
        status,
        replica_statuses=suspended_counters(status.replica_statuses, framework.replicas(job)),
        observed_generation=job.metadata.generation,
        restarts=so_far.restarts,
        ledger=msgspec.structs.replace(so_far.ledger, complete=False, not_before=None, streak=0),
    )
    if status.holds(ConditionType.RUNNING):
        status = status_with_condition(status, ConditionType.RUNNING, reason, told, now, value="False")
    notes = () if is_marked_suspended(status) else (JobEvent(reason, told),)
    status = status_with_phase(
        status_with_condition(status, ConditionType.SUSPENDED, reason, told, now), JobPhase.NONE, gang
    )
    stage = (
        *deletions(seen, PODS, (*gang.pods.values(), *gang.stale, *gang.extra)),
        *deletions(seen, SERVICES, seen.children.services),
        *companion_deletions(seen),
    )
    return JobPlan(status, (stage,), notes)


def rejected_status(framework: Framework[J], seen: ObservedJob[J], job: J, why: Sequence[Rejection]) -> JobStatus:
    """The status of a job that cannot have what it needs: for good if it never can, else until it can."""
    for_good = next((each for each in why if each.permanent), None)
    status = job.status
    if for_good is None:
        first = why[0]
        reason = "ErrResourceExists" if first.name_conflict else f"FailedCreate{first.kind}"
        return status_with_condition(status, ConditionType.BLOCKED, reason, first.message, seen.now)
    message = f"{job.KIND} {job.metadata.name} cannot run: {for_good.message}"
    status = msgspec.structs.replace(
        status,
        completion_time=timestamp(seen.now),
        replica_statuses=idle_counters(status.replica_statuses),
        ledger=msgspec.structs.replace(status.ledger, clear=True),
    )
    status = status_with_condition(status, ConditionType.FAILED, f"{job.KIND}Failed", message, seen.now)
    return status_with_phase(status, JobPhase.CLEAN_UP, seen.gang)


def deletions(seen: ObservedJob[J], resource: str, doomed: Iterable[Pod | Service]) -> tuple[JobAction, ...]:
    """Of what is not on its way out already."""
    return tuple(
        Delete(resource, found.metadata.name, found.metadata.uid)
        for found in doomed
        if found.metadata.deletion_timestamp is None and found.metadata.uid not in seen.children.pending_deletes
    )


def companion_deletions(seen: ObservedJob[J]) -> tuple[JobAction, ...]:
    """The companions that an idle job has no use for."""
    stage: list[JobAction] = []
    for companion, found in seen.companions:
        if not companion.only_active or found is None or found["metadata"].get("deletionTimestamp"):
            continue
        if is_owned_by(found, seen.job.metadata.uid):
            stage.append(Delete(companion.resource, companion.name, found["metadata"].get("uid", "")))
    return tuple(stage)
