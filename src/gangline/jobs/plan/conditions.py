"""The conditions of a job's status."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import ConditionType, JobStatus, TrainingJob
from gangline.api.meta import Condition

# Setting one of these to True removes the other.
_SUPERSEDES = {ConditionType.RUNNING: ConditionType.RESTARTING, ConditionType.RESTARTING: ConditionType.RUNNING}
_TERMINAL_CONDITIONS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_FALSE_AFTER_END = (
    ConditionType.RUNNING,
    ConditionType.RESTARTING,
    ConditionType.BLOCKED,
    ConditionType.STALLED,
)


def current_condition(status: JobStatus) -> str:
    """The state of a job in one word: the type of the newest condition that is True."""
    return next((condition.type for condition in reversed(status.conditions) if condition.status == "True"), "Pending")


def status_with_condition(
    status: JobStatus, kind: ConditionType, reason: str, message: str, now: datetime, *, value: str = "True"
) -> JobStatus:
    """The status with that condition as its last one; unchanged if it has it with the same value and reason."""
    conditions = _with_condition(status.conditions, kind, reason, message, timestamp(now), value)
    return msgspec.structs.replace(status, conditions=conditions)


def created_status(job: TrainingJob, now: datetime) -> JobStatus:
    """The job's status with condition Created, which is the first of all."""
    message = f"{job.KIND} {job.metadata.name} is created."
    return status_with_condition(job.status, ConditionType.CREATED, f"{job.KIND}Created", message, now)


def status_without_blocked(status: JobStatus) -> JobStatus:
    """The status without condition Blocked."""
    if status.condition(ConditionType.BLOCKED) is None:
        return status
    conditions = tuple(condition for condition in status.conditions if condition.type != ConditionType.BLOCKED)
    return msgspec.structs.replace(status, conditions=conditions)


def timestamp(now: datetime) -> datetime:
    """The time as Kubernetes writes it: in whole seconds."""
    return now.replace(microsecond=0)


def wait_left(since: datetime | None, wait: timedelta, now: datetime) -> timedelta:
    """What is left of a short wait that counts from a time that a node has written.

    Nothing if that time is further ahead of ours than the wait: the clocks differ, and nobody would wait until they agree.
    """
    left = since + wait - now if since is not None else timedelta()
    return left if timedelta() < left <= 2 * wait else timedelta()


def time_left(since: datetime, seconds: float, now: datetime) -> timedelta:
    """What is left of a limit that counts from a time in an object; negative if it is over.

    The time is written in whole seconds, and may have been almost a second later: no limit is over too early.
    """
    return since + timedelta(seconds=seconds + 1) - now


def _with_condition(
    conditions: tuple[Condition, ...], kind: ConditionType, reason: str, message: str, stamp: datetime, value: str
) -> tuple[Condition, ...]:
    """Running and Restarting replace each other. A terminal condition turns both, Blocked and Stalled to False."""
    before = next((condition for condition in conditions if condition.type == kind), None)
    if before is not None and before.status == value and before.reason == reason:
        return conditions
    same_value = before is not None and before.status == value
    after = Condition(
        type=kind,
        status=value,
        reason=reason,
        message=message,
        last_update_time=stamp,
        last_transition_time=before.last_transition_time if before is not None and same_value else stamp,
    )
    removed = {kind, _SUPERSEDES[kind] if value == "True" and kind in _SUPERSEDES else kind}
    others: Iterable[Condition] = (condition for condition in conditions if condition.type not in removed)
    if kind in _TERMINAL_CONDITIONS:
        others = (_after_end(condition, stamp) for condition in others)
    return (*others, after)


def _after_end(condition: Condition, stamp: datetime) -> Condition:
    if condition.type in _FALSE_AFTER_END and condition.status == "True":
        return msgspec.structs.replace(condition, status="False", last_update_time=stamp, last_transition_time=stamp)
    return condition
