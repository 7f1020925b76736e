"""How a job ends: the verdict, the clean-up, the time to live; and how it is put to rest for a while."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.kubeflow.training import CleanPodPolicy, ConditionType, JobStatus, Phase
from gangline.jobs.framework import ClearsCounters, Framework, J, RunsFirst
from gangline.jobs.plan.actions import PODS, SERVICES, Action, Delete, DeleteJob, Note, Plan, Refusal
from gangline.jobs.plan.assessment import Failing, Succeeding, Tally, resuming
from gangline.jobs.plan.conditions import created, current, said, stamp, unblocked
from gangline.jobs.plan.creation import left_behind, surplus
from gangline.jobs.plan.observed import Observed, owned
from gangline.jobs.plan.pod_warnings import exits
from gangline.jobs.plan.restarts import failed
from gangline.jobs.plan.status import (
    idle_counters,
    lifecycle,
    succeeded_counters,
    suspended_counters,
)


def end(framework: Framework[J], seen: Observed[J], so_far: Tally, how: Succeeding | Failing) -> Plan:
    """Write the verdict down, and begin to clean up."""
    job, now = seen.job, seen.now
    status = current(framework, seen, so_far)
    notes: tuple[Note, ...] = ()
    statuses = status.replica_statuses
    if isinstance(framework, ClearsCounters):
        cleared = set(framework.cleared(job, seen.gang))
        statuses = {
            kind: msgspec.structs.replace(found, active=0, succeeded=0, failed=0)
            if kind in cleared
            else found
            for kind, found in statuses.items()
        }
    if isinstance(how, Succeeding):
        notes = left_running(framework, seen)
        reason, message, statuses = f"{job.KIND}Succeeded", how.message, succeeded_counters(statuses)
        kind, note = ConditionType.SUCCEEDED, Note(reason, message)
    else:
        reason, message = how.told.reason, how.told.message
        kind, note = ConditionType.FAILED, Note(f"{job.KIND}Failed", message, warning=True)
        ledger = msgspec.structs.replace(status.ledger, clear=how.clear)
        cause = how.cause or status.first_failure
        status = msgspec.structs.replace(status, ledger=ledger, first_failure=cause)
        statuses = idle_counters(statuses) if how.clear else statuses
    status = msgspec.structs.replace(status, replica_statuses=statuses, completion_time=stamp(now))
    if isinstance(framework, RunsFirst) and (isinstance(how, Succeeding) or how.judged):
        ran = framework.ran(job)
        status = said(status, ConditionType.RUNNING, ran.reason, ran.message, now)
    status = said(status, kind, reason, message, now)
    ending = wind_down(framework, seen, status)
    codes = exits(failed(seen.gang).values(), framework.facts.container)
    notes = (*notes, note, *codes, *ending.notes)
    if isinstance(how, Failing) and how.clear:
        return msgspec.structs.replace(ending, notes=notes)
    # What the verdict was based on is shown by the companions that stay, too, and what an edit made superfluous goes,
    # whatever the policy. As in v1 not where a limit ended it, and before the verdict: after it nobody could tell any
    # more what they were to show, for pods may be gone by then, nor that replicas were too many while the job ran.
    before = (*(() if seen.problems else surplus(seen)), *left_behind(seen))
    stages = tuple(tuple(action for action in stage if action not in before) for stage in ending.stages)
    return msgspec.structs.replace(ending, before=before, stages=stages, notes=notes)


def left_running(framework: Framework[J], seen: Observed[J]) -> tuple[Note, ...]:
    """A warning about pods that hold their resources although the job has succeeded: v1's default leaves them."""
    running = sum(found.active for found in seen.gang.counts.values())
    if framework.run_policy(seen.job).clean_pod_policy != CleanPodPolicy.NONE or not running:
        return ()
    told = f"{running} pod(s) go on running; write runPolicy.cleanPodPolicy: Running to have them stopped"
    return (Note("PodsLeftRunning", told, warning=True),)


def wind_down(framework: Framework[J], seen: Observed[J], status: JobStatus) -> Plan:
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
        stay = {pod.metadata.name for pod in everyone if _finished(pod)}
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
        *farewell(seen),
    )
    failed = status.holds(ConditionType.FAILED)
    # Children that the cache shows late are sent away too, but an end once told is the end.
    over = status.phase in (Phase.DONE, Phase.FAILED)
    owed = any(resource in (PODS, SERVICES) for resource, _ in seen.children.awaited)
    cleans = not over and bool(doomed or services or owed)
    phase = Phase.CLEAN_UP if cleans else Phase.FAILED if failed else Phase.DONE
    status = lifecycle(_completed(status), phase, gang)
    ttl = policy.ttl_seconds_after_finished
    if ttl is None or status.completion_time is None:
        return Plan(status, (stage,))
    left = status.completion_time + timedelta(seconds=ttl) - seen.now
    if left > timedelta():
        return Plan(status, (stage,), wake_after=left)
    return Plan(status, (stage, (DeleteJob(),)))


def _completed(status: JobStatus) -> JobStatus:
    """v1 forgets the time of some failures, and then to delete the job: it is the time of the verdict."""
    if status.completion_time is not None:
        return status
    verdicts = (status.condition(kind) for kind in (ConditionType.FAILED, ConditionType.SUCCEEDED))
    times = [found.last_transition_time for found in verdicts if found is not None and found.status == "True"]
    return msgspec.structs.replace(status, completion_time=next(iter(times), None))


def _finished(pod: Pod) -> bool:
    return pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def release(framework: Framework[J], seen: Observed[J], so_far: Tally) -> Plan:
    """Suspended: everything that runs goes, whatever the policy; what was counted stays."""
    job, now, gang = seen.job, seen.now, seen.gang
    reason, told = f"{job.KIND}Suspended", f"{job.KIND} {job.metadata.name} is suspended."
    status = unblocked(created(job, now))
    status = msgspec.structs.replace(
        status,
        replica_statuses=suspended_counters(status.replica_statuses, framework.replicas(job)),
        observed_generation=job.metadata.generation,
        restarts=so_far.restarts,
        ledger=msgspec.structs.replace(so_far.ledger, complete=False, not_before=None, streak=0),
    )
    if status.holds(ConditionType.RUNNING):
        status = said(status, ConditionType.RUNNING, reason, told, now, value="False")
    notes = () if resuming(status) else (Note(reason, told),)
    status = lifecycle(said(status, ConditionType.SUSPENDED, reason, told, now), Phase.NONE, gang)
    stage = (
        *deletions(seen, PODS, (*gang.pods.values(), *gang.stale, *gang.extra)),
        *deletions(seen, SERVICES, seen.children.services),
        *farewell(seen),
    )
    return Plan(status, (stage,), notes)


def refused(framework: Framework[J], seen: Observed[J], job: J, why: Sequence[Refusal]) -> JobStatus:
    """The status of a job that cannot have what it needs: for good if it never can, else until it can."""
    for_good = next((each for each in why if each.permanent), None)
    status = job.status
    if for_good is None:
        first = why[0]
        reason = "ErrResourceExists" if first.stranger else f"FailedCreate{first.what}"
        return said(status, ConditionType.BLOCKED, reason, first.message, seen.now)
    message = f"{job.KIND} {job.metadata.name} cannot run: {for_good.message}"
    status = msgspec.structs.replace(
        status,
        completion_time=stamp(seen.now),
        replica_statuses=idle_counters(status.replica_statuses),
        ledger=msgspec.structs.replace(status.ledger, clear=True),
    )
    status = said(status, ConditionType.FAILED, f"{job.KIND}Failed", message, seen.now)
    return lifecycle(status, Phase.CLEAN_UP, seen.gang)


def deletions(seen: Observed[J], resource: str, doomed: Iterable[Pod | Service]) -> tuple[Action, ...]:
    """Of what is not on its way out already."""
    return tuple(
        Delete(resource, found.metadata.name, found.metadata.uid)
        for found in doomed
        if found.metadata.deletion_timestamp is None and found.metadata.uid not in seen.children.ending
    )


def farewell(seen: Observed[J]) -> tuple[Action, ...]:
    """The companions that an idle job has no use for."""
    stage: list[Action] = []
    for companion, found in seen.companions:
        if not companion.only_active or found is None or found["metadata"].get("deletionTimestamp"):
            continue
        if owned(found, seen.job.metadata.uid):
            stage.append(Delete(companion.resource, companion.name, found["metadata"].get("uid", "")))
    return tuple(stage)
