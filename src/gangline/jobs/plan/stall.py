"""Condition Stalled: what the hang watcher says of a job, in its status."""

from datetime import datetime

import msgspec

from gangline.api.kubeflow.training import ConditionType, JobStatus, TrainingJob
from gangline.jobs.plan.actions import JobEvent, JobPlan
from gangline.jobs.plan.conditions import status_with_condition

STALLED_EVENT, MOVING_EVENT = "JobStalled", "JobMovesAgain"
"""Reasons of events. The second one is the reason of the condition, too, when it turns to False."""


class Stall(msgspec.Struct, frozen=True):
    """A running job makes no progress. `since` is when it gave its last sign of life."""

    since: datetime
    # One word, such as AllRanksWait, and a sentence.
    reason: str
    message: str
    # The replicas that hold the others up, such as `worker-1`; empty if all stand alike.
    replicas: tuple[str, ...] = ()


class HangVerdict(msgspec.Struct, frozen=True):
    """What the hang watcher says of a job: that it is stalled, or by which sign of life it is not any more."""

    stall: Stall | None = None
    end: str = ""


def plan_with_stall(job: TrainingJob, plan: JobPlan, verdict: HangVerdict, now: datetime) -> JobPlan:
    """The plan with condition Stalled as the watcher says. Without an opinion of the watcher the condition stays.

    A job that was never stalled has no such condition. One that restarts, or is suspended, is not stalled any more.
    """
    status = plan.status
    if status.finished:
        return plan
    if verdict.stall is not None and status.holds(ConditionType.RUNNING):
        return _stalled(plan, verdict.stall, now)
    if not status.holds(ConditionType.STALLED):
        return plan
    if verdict.end:
        return _moving(job, plan, verdict.end, now)
    if not status.holds(ConditionType.RUNNING):
        return _moving(job, plan, f"{job.KIND} {job.metadata.name} does not run", now)
    return plan


def _stalled(plan: JobPlan, stall: Stall, now: datetime) -> JobPlan:
    status = status_with_condition(plan.status, ConditionType.STALLED, stall.reason, stall.message, now)
    if status == plan.status:
        return plan
    return _with(plan, status, JobEvent(STALLED_EVENT, stall.message, warning=True))


def _moving(job: TrainingJob, plan: JobPlan, why: str, now: datetime) -> JobPlan:
    message = f"{job.KIND} {job.metadata.name} is not stalled any more: {why}"
    status = status_with_condition(plan.status, ConditionType.STALLED, MOVING_EVENT, message, now, value="False")
    return _with(plan, status, JobEvent(MOVING_EVENT, message))


def _with(plan: JobPlan, status: JobStatus, event: JobEvent) -> JobPlan:
    return msgspec.structs.replace(plan, status=status, events=(*plan.events, event))
