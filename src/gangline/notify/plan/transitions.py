"""The states of a job that notifications are about, read from its status alone.

A status holds the last change to each state with its time. So whoever remembers the marks of the status that was read
last can name the changes since then, also after a crash and in another process.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gangline.api.codec.type_errors import rfc3339
from gangline.api.kubeflow.training import ConditionType, Failure, JobStatus, TrainingJob
from gangline.api.meta import Condition

MAX_TEXT = 1000
"""Longer texts of a job are cut."""
MAX_LOG_LINES = 5
_GENERIC_REASONS = ("", "Completed", "Error")


class NotifiedState(StrEnum):
    """What can happen to a job, in the order in which it does."""

    CREATED = "created"
    RESUMED = "resumed"
    BLOCKED = "blocked"
    WAITING = "waiting"
    """It has not run for a while although it should: no room, no image, no quota."""
    RESTARTED = "restarted"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


_ORDER = tuple(NotifiedState)
_CONDITIONS = {
    NotifiedState.CREATED: ConditionType.CREATED,
    NotifiedState.RESUMED: ConditionType.SUSPENDED,
    NotifiedState.BLOCKED: ConditionType.BLOCKED,
    NotifiedState.WAITING: ConditionType.CREATED,
    NotifiedState.RESTARTED: ConditionType.RESTARTING,
    NotifiedState.RUNNING: ConditionType.RUNNING,
    NotifiedState.SUSPENDED: ConditionType.SUSPENDED,
    NotifiedState.SUCCEEDED: ConditionType.SUCCEEDED,
    NotifiedState.FAILED: ConditionType.FAILED,
}
_BY_CONDITION = (
    NotifiedState.CREATED,
    NotifiedState.BLOCKED,
    NotifiedState.RUNNING,
    NotifiedState.SUSPENDED,
    NotifiedState.SUCCEEDED,
    NotifiedState.FAILED,
)


class StateMark(msgspec.Struct, frozen=True, order=True):
    """One change to a state, as a status shows it. Two reads of the same status give the same marks."""

    at: datetime
    rank: int
    # How many restarts there were; only for `restarted`.
    count: int = 0

    @property
    def state(self) -> NotifiedState:
        return _ORDER[self.rank]

    @property
    def key(self) -> str:
        """A short text by which the mark is remembered, such as `running-1767225600` or `restarted-2`."""
        number = self.count if self.state is NotifiedState.RESTARTED else int(self.at.timestamp())
        return f"{self.state}-{number}"


class Transition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of a job to a state: what a notification says."""

    # The uid of the job, `_` and the key of the mark: the same for every attempt, also by another process. No dots.
    id: str
    state: NotifiedState
    time: datetime
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    labels: dict[str, str] = {}
    reason: str = ""
    message: str = ""
    restarts: int = 0
    # The replica that failed first, how, and the end of its log.
    cause: str = ""
    log: tuple[str, ...] = ()
    # The command that explains it.
    why: str = ""

    @property
    def mark_key(self) -> str:
        return self.id.partition("_")[2]


def marks(job: TrainingJob, now: datetime, waiting_after: timedelta) -> tuple[StateMark, ...]:
    """The marks of a job's status, in order of time."""
    return tuple(sorted(_marks(job.status, now, waiting_after)))


def waits_since(status: JobStatus) -> datetime | None:
    """Since when the job has been waiting to run; None if it runs, has ended, is suspended, or has not begun."""
    if status.finished or status.holds(ConditionType.RUNNING) or status.holds(ConditionType.SUSPENDED):
        return None
    begun = (status.condition(kind) for kind in (ConditionType.CREATED, ConditionType.SUSPENDED))
    restarting = status.condition(ConditionType.RESTARTING) if status.holds(ConditionType.RESTARTING) else None
    times = [one.last_transition_time for one in (*begun, restarting) if one is not None]
    return max((time for time in times if time is not None), default=None)


def _marks(status: JobStatus, now: datetime, waiting_after: timedelta) -> Iterator[StateMark]:
    for state in _BY_CONDITION:
        condition = status.condition(_CONDITIONS[state])
        if condition is not None and condition.status == "True" and condition.last_transition_time is not None:
            yield _mark(state, condition.last_transition_time)
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.status == "False" and suspended.last_transition_time is not None:
        yield _mark(NotifiedState.RESUMED, suspended.last_transition_time)
    if status.restarts and (at := _restart_time(status)) is not None:
        yield _mark(NotifiedState.RESTARTED, at, status.restarts)
    since = waits_since(status)
    if since is not None and now - since >= waiting_after:
        yield _mark(NotifiedState.WAITING, since + waiting_after)


def _mark(state: NotifiedState, at: datetime, count: int = 0) -> StateMark:
    return StateMark(at, _ORDER.index(state), count)


def _restart_time(status: JobStatus) -> datetime | None:
    """About when the job was restarted last. A status does not hold it exactly once the job runs again."""
    restarting, running = status.condition(ConditionType.RESTARTING), status.condition(ConditionType.RUNNING)
    failure = status.first_failure
    times = [
        restarting.last_transition_time if restarting is not None else None,
        failure.time if failure is not None else None,
        running.last_transition_time if running is not None else None,
        status.start_time,
    ]
    return next((time for time in times if time is not None), None)


def transition_of(job: TrainingJob, key: str, at: datetime | None = None) -> Transition:
    """The transition of a job whose mark has this key, with the texts that the job's status has now."""
    state, _, number = key.partition("-")
    of = NotifiedState(state)
    status, metadata = job.status, job.metadata
    condition = _condition_of(status, of)
    failure = status.first_failure if of in (NotifiedState.FAILED, NotifiedState.RESTARTED) else None
    return Transition(
        id=f"{metadata.uid}_{key}",
        state=of,
        time=at or _time_of(of, number, status),
        api_version=job.API_VERSION,
        kind=job.KIND,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        labels=dict(metadata.labels),
        reason=condition.reason if condition is not None else "",
        message=_message(of, condition, number),
        restarts=status.restarts,
        cause=failure_summary(failure) if failure is not None else "",
        log=tuple(shortened(line) for line in failure.log[-MAX_LOG_LINES:]) if failure is not None else (),
        why=why_command(metadata.namespace, metadata.name),
    )


def transition_of_deleted(job: tuple[str, str, str, str], uid: str, key: str) -> Transition:
    """The transition of a job that is gone. `job` is its API version, kind, namespace and name."""
    state, _, number = key.partition("-")
    of = NotifiedState(state)
    api_version, kind, namespace, name = job
    return Transition(
        id=f"{uid}_{key}",
        state=of,
        time=_time_of(of, number, JobStatus()),
        api_version=api_version,
        kind=kind,
        namespace=namespace,
        name=name,
        uid=uid,
        message="the job was deleted before this could be delivered; what it said is gone with it",
    )


def _condition_of(status: JobStatus, state: NotifiedState) -> Condition | None:
    condition = status.condition(_CONDITIONS[state])
    wants = "False" if state is NotifiedState.RESUMED else "True"
    return condition if condition is not None and condition.status == wants else None


def _time_of(state: NotifiedState, number: str, status: JobStatus) -> datetime:
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    if state is NotifiedState.RESTARTED:
        return _restart_time(status) or epoch
    return epoch + timedelta(seconds=int(number))


def _message(state: NotifiedState, condition: Condition | None, number: str) -> str:
    if state is NotifiedState.WAITING:
        return "the job has not run since then, although it should"
    if condition is not None and condition.message:
        return shortened(condition.message)
    return f"restart {number}" if state is NotifiedState.RESTARTED else ""


def failure_summary(failure: Failure) -> str:
    """A failed replica in one line: `worker-3 (rank 4) OOMKilled`, `worker-1 exit 2: out of range`."""
    if failure.reason not in _GENERIC_REASONS:
        what = failure.reason
    elif failure.signal:
        what = f"killed by signal {failure.signal}"
    elif failure.exit_code is not None:
        what = f"exit {failure.exit_code}"
    else:
        what = "failed"
    message = shortened(" ".join(failure.message.split()))
    rank = f" (rank {failure.rank})" if failure.rank is not None else ""
    return f"{failure.replica}{rank} {what}" + (f": {message}" if message else "")


def why_command(namespace: str, name: str) -> str:
    return f"gangline why {name} -n {namespace}"


def shortened(text: str) -> str:
    """The text, cut if it is very long."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def time_text(time: datetime) -> str:
    return rfc3339(time)
