"""Observed in, plan out. Decides everything, does nothing."""

from collections.abc import Iterable
from datetime import timedelta
from typing import assert_never

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import ConditionType, JobStatus, Phase, RestartScope
from gangline.jobs.defaults import ignored
from gangline.jobs.framework import CountsRestarting, Framework, J, Outcome
from gangline.jobs.gangs.choice import refusal
from gangline.jobs.plan.actions import PODS, Note, Plan
from gangline.jobs.plan.assessment import (
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
from gangline.jobs.plan.conditions import current, said, stamp, unblocked
from gangline.jobs.plan.creation import fill
from gangline.jobs.plan.finish import deletions, end, release, wind_down
from gangline.jobs.plan.gang_state import overdue
from gangline.jobs.plan.observed import Observed
from gangline.jobs.plan.pod_warnings import abnormal, exits
from gangline.jobs.plan.restarts import delayed, lost, scope
from gangline.jobs.plan.status import lifecycle


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
            return end(framework, seen, so_far, standing)
        case Suspended():
            return release(framework, seen, so_far)
        case Active():
            return _keep_going(framework, seen, so_far, standing)
        case _:
            assert_never(standing)


def _keep_going(framework: Framework[J], seen: Observed[J], so_far: Tally, standing: Active) -> Plan:
    job, now = seen.job, seen.now
    status = current(framework, seen, so_far)
    notes: tuple[Note, ...] = ()
    if resuming(job.status):
        told = f"{job.KIND} {job.metadata.name} is resumed."
        status = said(status, ConditionType.SUSPENDED, f"{job.KIND}Resumed", told, now, value="False")
        status = msgspec.structs.replace(status, start_time=stamp(now))
        notes = (*notes, Note(f"{job.KIND}Resumed", told))
    if standing.team or standing.replace:
        return _restart(framework, seen, status, notes, standing)
    if standing.verdict.outcome is Outcome.RUNNING:
        status = said(status, ConditionType.RUNNING, f"{job.KIND}Running", standing.verdict.message, now)
    if not job.status.conditions:
        notes = (*notes, *ignored(framework, job))
    filling = fill(framework, seen, status.ledger)
    if seen.placed_by.missing:
        told = refusal(seen.site, seen.placed_by.missing)
        status = said(status, ConditionType.BLOCKED, "GangSchedulerMissing", told, now)
        notes = (*notes, Note("GangSchedulerMissing", told, warning=True))
    elif not filling.wanting:
        status = unblocked(status)
    status, waiting, patience = _waiting(seen, status)
    phase = _phase(job.status, status)
    if not seen.admitted and job.status.start_time is None:
        # As in v1 a job that waits for its gang has not begun: neither its clock nor its counters.
        status = msgspec.structs.replace(status, start_time=None, replica_statuses={})
        phase = Phase.NONE
    status = lifecycle(_complete(framework, seen, status), phase, seen.gang)
    wakes = (standing.settles, filling.wake_after, patience, _deadline(framework, seen, status))
    notes = (*notes, *filling.notes, *waiting, *_pods_told(seen))
    return Plan(status, filling.stages, notes, _soonest(wakes))


def _restart(
    framework: Framework[J], seen: Observed[J], status: JobStatus, notes: tuple[Note, ...], standing: Active
) -> Plan:
    """Count what failed, then send it away. Its seat is filled when it is gone."""
    job, ledger = seen.job, status.ledger
    told = _why(framework, seen, standing)
    fresh: tuple[Pod, ...] = tuple(pod for pod in standing.replace if pod.metadata.uid not in ledger.replaced)
    which = RestartScope.JOB if standing.team else RestartScope.REPLICA
    if standing.team or fresh:
        # A row of failures that began with this one is told by it.
        kept = ledger.replaced or standing.stranded is not None
        cause = status.first_failure if kept else standing.cause
        ledger = delayed(ledger, which, seen.now)
        status = msgspec.structs.replace(status, first_failure=cause)
        notes = (
            *notes,
            Note(f"{job.KIND}Restarting", told, warning=True),
            *exits(fresh, framework.facts.container),
        )
    if standing.team:
        number, stranded = ledger.round + 1, standing.stranded
        blameless = standing.renew or stranded is not None
        ledger = msgspec.structs.replace(
            ledger,
            round=number,
            addresses=number if standing.renew else ledger.addresses,
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
        doomed = (*standing.replace, *seen.gang.extra)
    status = msgspec.structs.replace(status, ledger=ledger, restarts=restarts)
    status = said(status, ConditionType.RESTARTING, f"{job.KIND}Restarting", told, seen.now)
    phase = Phase.CREATING if standing.team else _phase(job.status, status)
    status = lifecycle(status, phase, seen.gang)
    stage = deletions(seen, PODS, doomed)
    filling = None if standing.team else fill(framework, seen, status.ledger)
    stages = (stage, *(filling.stages if filling is not None else ()))
    wakes = (filling.wake_after if filling is not None else None, _deadline(framework, seen, status))
    return Plan(status, stages, notes, _soonest(wakes))


def _why(framework: Framework[J], seen: Observed[J], standing: Active) -> str:
    job, kind = seen.job, standing.kind
    if standing.stranded is not None:
        why = f"its gang has no room for all of its members: {standing.stranded.message}"
        return f"job {job.metadata.name} is restarting because {why}"
    count = seen.gang.counts[kind].failed
    if isinstance(framework, CountsRestarting) and count:
        return framework.restarting(job, kind, count)
    return f"job {job.metadata.name} is restarting because {kind} replica(s) failed."


def _pods_told(seen: Observed[J]) -> Iterable[Note]:
    """What is wrong with pods. Where a group says why all of them wait, it is not told for each of them again."""
    pods = seen.gang.pods.values()
    return abnormal(pods if seen.gang_state is None else (pod for pod in pods if pod.spec.node_name))


def _waiting(seen: Observed[J], status: JobStatus) -> tuple[JobStatus, tuple[Note, ...], timedelta | None]:
    """What is told of a gang that waits for its places, once; and when to look again."""
    waits = overdue(seen)
    if waits is None:
        return status, (), None
    if waits.left > timedelta():
        return status, (), waits.left
    if status.ledger.waited == waits.since:
        return status, (), None
    ledger = msgspec.structs.replace(status.ledger, waited=waits.since)
    note = Note("GangTimeout", f"{waits.told}; it goes on waiting", warning=True)
    return msgspec.structs.replace(status, ledger=ledger), (note,), None


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


def _soonest(delays: Iterable[timedelta | None]) -> timedelta | None:
    return min((delay for delay in delays if delay is not None), default=None)
