"""Observed in, plan out. Decides everything, does nothing."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.training import (
    REPLICA_TYPE,
    CleanPodPolicy,
    ConditionType,
    JobStatus,
    Phase,
    ReplicaStatus,
    RestartScope,
    State,
    TrainingJob,
)
from gangline.jobs.abnormal import abnormal
from gangline.jobs.actions import PODS, SERVICES, Action, Delete, DeleteJob, Note, Refusal
from gangline.jobs.assess import (
    Active,
    Failing,
    Foreign,
    Over,
    Succeeding,
    Suspended,
    Tally,
    assess,
    resuming,
    tally,
)
from gangline.jobs.fill import companions, fill
from gangline.jobs.framework import ClearsCounters, Framework, J, Outcome
from gangline.jobs.intake import ignored
from gangline.jobs.observed import Observed
from gangline.jobs.render import job_labels
from gangline.jobs.restart import delayed, lost, scope
from gangline.jobs.status import (
    idle_counters,
    lifecycle,
    replica_statuses,
    succeeded_counters,
    suspended_counters,
    with_condition,
    without_condition,
)


class Plan(msgspec.Struct, frozen=True):
    """What to write down, and what to do then: stages in order, actions within a stage in any order."""

    status: JobStatus
    stages: tuple[tuple[Action, ...], ...] = ()
    notes: tuple[Note, ...] = ()
    wake_after: timedelta | None = None


def plan(framework: Framework[J], seen: Observed[J]) -> Plan:
    """Decide everything, do nothing. The same input gives the same plan."""
    so_far = tally(seen.job.status, seen, framework.replicas(seen.job))
    standing = assess(framework, seen, so_far)
    match standing:
        case Foreign():
            return Plan(seen.job.status)
        case Over():
            return wind_down(framework, seen, seen.job.status)
        case Succeeding() | Failing():
            return _end(framework, seen, so_far, standing)
        case Suspended():
            return _release(framework, seen, so_far)
        case Active():
            return _keep_going(framework, seen, so_far, standing)
        case _:
            assert_never(standing)


def refused(framework: Framework[J], seen: Observed[J], job: J, why: Sequence[Refusal]) -> JobStatus:
    """The status of a job that cannot have what it needs: for good if it never can, else until it can."""
    for_good = next((each for each in why if each.permanent), None)
    status = job.status
    if for_good is None:
        first = why[0]
        reason = "ErrResourceExists" if first.stranger else f"FailedCreate{first.what}"
        return _said(status, ConditionType.BLOCKED, reason, first.message, seen.now)
    message = f"{job.KIND} {job.metadata.name} cannot run: {for_good.message}"
    status = msgspec.structs.replace(
        status,
        completion_time=_stamp(seen.now),
        replica_statuses=idle_counters(status.replica_statuses),
        ledger=msgspec.structs.replace(status.ledger, clear=True),
    )
    status = _said(status, ConditionType.FAILED, f"{job.KIND}Failed", message, seen.now)
    return lifecycle(status, Phase.CLEAN_UP, seen.gang)


# Going


def _keep_going(framework: Framework[J], seen: Observed[J], so_far: Tally, standing: Active) -> Plan:
    job, now = seen.job, seen.now
    status, notes = _current(framework, seen, so_far)
    if resuming(job.status):
        told = f"{job.KIND} {job.metadata.name} is resumed."
        status = _said(status, ConditionType.SUSPENDED, f"{job.KIND}Resumed", told, now, value="False")
        status = msgspec.structs.replace(status, start_time=_stamp(now))
        notes = (*notes, Note(f"{job.KIND}Resumed", told))
    if standing.team or standing.replace:
        return _restart(framework, seen, status, notes, standing)
    if standing.verdict.outcome is Outcome.RUNNING:
        status = _said(status, ConditionType.RUNNING, f"{job.KIND}Running", standing.verdict.message, now)
    if not job.status.conditions:
        notes = (*notes, *ignored(framework, job))
    filling = fill(framework, seen, status.ledger)
    if not filling.wanting:
        status = _unblocked(status)
    status = lifecycle(_complete(framework, seen, status), _phase(job.status, status), seen.gang)
    wakes = (standing.settles, filling.wake_after, _deadline(framework, seen, status))
    notes = (*notes, *filling.notes, *abnormal(seen.gang.pods.values()))
    return Plan(status, filling.stages, notes, _soonest(wakes))


def _current(framework: Framework[J], seen: Observed[J], so_far: Tally) -> tuple[JobStatus, tuple[Note, ...]]:
    """The status of a job that is neither suspended nor over, as far as counting goes."""
    job, now = seen.job, seen.now
    status = _said(
        job.status,
        ConditionType.CREATED,
        f"{job.KIND}Created",
        f"{job.KIND} {job.metadata.name} is created.",
        now,
    )
    return (
        msgspec.structs.replace(
            status,
            replica_statuses=_replica_statuses(framework, seen),
            start_time=status.start_time or _stamp(now),
            observed_generation=job.metadata.generation,
            restarts=so_far.restarts,
            ledger=so_far.ledger,
        ),
        (),
    )


def _restart(
    framework: Framework[J], seen: Observed[J], status: JobStatus, notes: tuple[Note, ...], standing: Active
) -> Plan:
    """Count what failed, then send it away. Its seat is filled when it is gone."""
    job, ledger = seen.job, status.ledger
    told = f"job {job.metadata.name} is restarting because {standing.kind} replica(s) failed."
    fresh: tuple[Pod, ...] = tuple(pod for pod in standing.replace if pod.metadata.uid not in ledger.replaced)
    which = RestartScope.JOB if standing.team else RestartScope.REPLICA
    if standing.team or fresh:
        # A row of failures that began with this one is told by it.
        cause = status.first_failure if ledger.replaced else standing.cause
        ledger = delayed(ledger, which, seen.now)
        status = msgspec.structs.replace(status, first_failure=cause)
        notes = (*notes, Note(f"{job.KIND}Restarting", told, warning=True), *_exits(framework, fresh))
    if standing.team:
        number = ledger.round + 1
        ledger = msgspec.structs.replace(
            ledger,
            round=number,
            addresses=number if standing.renew else ledger.addresses,
            renewals=ledger.renewals + standing.renew,
            complete=False,
        )
        restarts = status.restarts + (0 if standing.renew else 1)
        doomed: tuple[Pod, ...] = (*seen.gang.pods.values(), *seen.gang.stale, *seen.gang.extra)
    else:
        replaced = (*ledger.replaced, *(pod.metadata.uid for pod in fresh))
        ledger = msgspec.structs.replace(ledger, replaced=replaced)
        restarts = status.restarts + len(fresh)
        doomed = (*standing.replace, *seen.gang.extra)
    status = msgspec.structs.replace(status, ledger=ledger, restarts=restarts)
    status = _said(status, ConditionType.RESTARTING, f"{job.KIND}Restarting", told, seen.now)
    phase = Phase.CREATING if standing.team else _phase(job.status, status)
    status = lifecycle(status, phase, seen.gang)
    stage = deletions(seen, PODS, doomed)
    filling = None if standing.team else fill(framework, seen, status.ledger)
    stages = (stage, *(filling.stages if filling is not None else ()))
    wakes = (filling.wake_after if filling is not None else None, _deadline(framework, seen, status))
    return Plan(status, stages, notes, _soonest(wakes))


def _exits(framework: Framework[J], pods: Iterable[Pod]) -> Iterable[Note]:
    for pod in pods:
        for found in pod.status.container_statuses:
            state = found.state.terminated
            if found.name == framework.facts.container and state is not None:
                name = f"{pod.metadata.namespace}.{pod.metadata.name}"
                yield Note("ExitedWithCode", f"Pod: {name} exited with code {state.exit_code}")


def _phase(before: JobStatus, status: JobStatus) -> Phase:
    if status.holds(ConditionType.RUNNING) or before.phase == Phase.RUNNING:
        return Phase.RUNNING
    return Phase.CREATING


def _complete(framework: Framework[J], seen: Observed[J], status: JobStatus) -> JobStatus:
    """For teams that restart together: whether every seat has had its pod in this round."""
    if scope(seen.job, framework.run_policy(seen.job)) is not RestartScope.JOB:
        return status
    changed = seen.job.metadata.generation != seen.job.status.observed_generation
    full = all(seat in seen.gang.pods and not lost((seen.gang.pods[seat],)) for seat in seen.gang.seats)
    complete = full or (status.ledger.complete and not changed)
    if complete == status.ledger.complete:
        return status
    return msgspec.structs.replace(status, ledger=msgspec.structs.replace(status.ledger, complete=complete))


def _deadline(framework: Framework[J], seen: Observed[J], status: JobStatus) -> timedelta | None:
    limit = framework.run_policy(seen.job).active_deadline_seconds
    if limit is None or status.start_time is None:
        return None
    return max(status.start_time + timedelta(seconds=limit) - seen.now, timedelta())


# Ending


def _end(framework: Framework[J], seen: Observed[J], so_far: Tally, how: Succeeding | Failing) -> Plan:
    """Write the verdict down, and begin to clean up."""
    job, now = seen.job, seen.now
    status, notes = _current(framework, seen, so_far)
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
        notes = (*notes, *left_running(framework, seen))
        reason, message, statuses = f"{job.KIND}Succeeded", how.message, succeeded_counters(statuses)
        kind, note = ConditionType.SUCCEEDED, Note(reason, message)
    else:
        reason, message = how.told.reason, how.told.message
        kind, note = ConditionType.FAILED, Note(f"{job.KIND}Failed", message, warning=True)
        ledger = msgspec.structs.replace(status.ledger, clear=how.clear)
        cause = how.cause or status.first_failure
        status = msgspec.structs.replace(status, ledger=ledger, first_failure=cause)
        statuses = idle_counters(statuses) if how.clear else statuses
    status = msgspec.structs.replace(status, replica_statuses=statuses, completion_time=_stamp(now))
    status = _said(status, kind, reason, message, now)
    ending = wind_down(framework, seen, status)
    # What the verdict was based on is shown by the companions that stay, too.
    kept = companions(seen, ending=True)
    return msgspec.structs.replace(ending, stages=(kept, *ending.stages), notes=(*notes, note, *ending.notes))


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
    status = lifecycle(status, phase, gang)
    ttl = policy.ttl_seconds_after_finished
    if ttl is None or status.completion_time is None:
        return Plan(status, (stage,))
    left = status.completion_time + timedelta(seconds=ttl) - seen.now
    if left > timedelta():
        return Plan(status, (stage,), wake_after=left)
    return Plan(status, (stage, (DeleteJob(),)))


def _finished(pod: Pod) -> bool:
    return pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _release(framework: Framework[J], seen: Observed[J], so_far: Tally) -> Plan:
    """Suspended: everything that runs goes, whatever the policy; what was counted stays."""
    job, now, gang = seen.job, seen.now, seen.gang
    reason, told = f"{job.KIND}Suspended", f"{job.KIND} {job.metadata.name} is suspended."
    status = _said(
        job.status,
        ConditionType.CREATED,
        f"{job.KIND}Created",
        f"{job.KIND} {job.metadata.name} is created.",
        now,
    )
    status = _unblocked(status)
    conditions = without_condition(status.conditions, ConditionType.RESTARTING)
    status = msgspec.structs.replace(
        status,
        conditions=conditions,
        replica_statuses=suspended_counters(status.replica_statuses, framework.replicas(job)),
        observed_generation=job.metadata.generation,
        restarts=so_far.restarts,
        ledger=msgspec.structs.replace(so_far.ledger, complete=False, not_before=None, streak=0),
    )
    if status.holds(ConditionType.RUNNING):
        status = _said(status, ConditionType.RUNNING, reason, told, now, value="False")
    notes = () if resuming(status) else (Note(reason, told),)
    status = lifecycle(_said(status, ConditionType.SUSPENDED, reason, told, now), Phase.NONE, gang)
    stage = (
        *deletions(seen, PODS, (*gang.pods.values(), *gang.stale, *gang.extra)),
        *deletions(seen, SERVICES, seen.children.services),
        *farewell(seen),
    )
    return Plan(status, (stage,), notes)


# Parts


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
        if not companion.only_active or found is None:
            continue
        uid = found["metadata"].get("uid", "")
        owners = found["metadata"].get("ownerReferences") or []
        if any(owner.get("uid") == seen.job.metadata.uid for owner in owners):
            stage.append(Delete(companion.resource, companion.name, uid))
    return tuple(stage)


def _replica_statuses(framework: Framework[J], seen: Observed[J]) -> dict[str, ReplicaStatus]:
    replicas, facts = framework.replicas(seen.job), framework.facts
    selectors = {kind: selector(seen.job, kind) for kind in replicas} if facts.scalable else dict[str, str]()
    found = replica_statuses(seen.gang, replicas, facts.container, selectors)
    # v1 counts the types that may be left out as well.
    left_out = (kind for kind in facts.default_replicas if kind not in found)
    return {**found, **{kind: ReplicaStatus(state=State.UNKNOWN.value) for kind in left_out}}


def selector(job: TrainingJob, kind: str) -> str:
    """Which pods are those of a replica type, for whoever scales them."""
    labels = {**job_labels(job), REPLICA_TYPE: kind.lower()}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _said(
    status: JobStatus, kind: ConditionType, reason: str, message: str, now: datetime, *, value: str = "True"
) -> JobStatus:
    conditions = with_condition(status.conditions, kind, reason, message, now, status=value)
    return msgspec.structs.replace(status, conditions=conditions)


def _unblocked(status: JobStatus) -> JobStatus:
    if status.condition(ConditionType.BLOCKED) is None:
        return status
    return msgspec.structs.replace(
        status, conditions=without_condition(status.conditions, ConditionType.BLOCKED)
    )


def _stamp(now: datetime) -> datetime:
    return now.replace(microsecond=0)


def _soonest(delays: Iterable[timedelta | None]) -> timedelta | None:
    return min((delay for delay in delays if delay is not None), default=None)
