"""Which faults a job had, from its objects and the ends of its logs: who ended how, at which step, how long after the start. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, PROGRESS_TIME_ANNOTATION
from gangline.api.meta import JSON
from gangline.jobs.plan.failures.ends import MAX_SIGNAL_CODE, MIN_SIGNAL_CODE
from gangline.progress.line import Progress, parse_progress
from gangline.replay.bundle import FaultCause, RecordedFault, ReplicaRecord
from gangline.summary.job_state import has_condition, replica_counts
from gangline.summary.replicas import container_name, restart_count

STALLED = "Stalled"
NODE_LOST_REASONS = frozenset({"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "DeletionByTaintManager"})
EVICTION_REASONS = frozenset({"Evicted", "Preempting", "Preempted", "EvictionByEvictionAPI", "PreemptionByScheduler"})
REJECTION_REASONS = frozenset({"UnexpectedAdmissionError", "NodeAffinity", "NodePorts"})
_OUT_OF = re.compile(r"OutOf[a-z]+", re.IGNORECASE)


class RecordedEnd(msgspec.Struct, frozen=True):
    """How the process of a replica ended, as a pod or the job's status has it."""

    replica: str
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    step: float | None = None


class JobHistory(msgspec.Struct, frozen=True):
    """What is known of a job: its body, its pods, and the ends of their logs by the name of the pod."""

    job: JSON
    pods: Sequence[JSON] = ()
    logs: Mapping[str, Sequence[str]] = {}
    # Of containers that have started again: the log before.
    previous_logs: Mapping[str, Sequence[str]] = {}
    # Who failed first, by a diagnosis; the status of a job of another operator does not say it.
    first_replica: str = ""


def recorded_faults(history: JobHistory) -> tuple[RecordedFault, ...]:
    """The faults, the first one first. What followed from it is marked as a consequence."""
    failures = _failures(history)
    if not failures:
        return hangs(history)
    first, repeats = failures[0], has_condition(history.job, "Failed") and _restarts(history.job) > 0
    return tuple(_fault(one, first, repeats=repeats) for one in failures)


def _fault(failure: RecordedEnd, first: RecordedEnd, *, repeats: bool) -> RecordedFault:
    cause, number = _cause(failure)
    return RecordedFault(
        replica=failure.replica,
        cause=cause,
        exit_code=failure.exit_code,
        signal=number,
        step=failure.step,
        after_seconds=_seconds(failure.started_at, failure.ended_at),
        is_consequence=failure is not first,
        delay=max(0.0, _seconds(first.ended_at, failure.ended_at) or 0.0) if failure is not first else 0.0,
        repeats=repeats and failure is first,
    )


def _cause(failure: RecordedEnd) -> tuple[FaultCause, int]:
    """How it ended, and the signal that ended it."""
    reason = failure.reason
    if reason == "OOMKilled":
        return FaultCause.OOM, 9
    if reason in EVICTION_REASONS:
        return FaultCause.EVICTED, 0
    if reason in NODE_LOST_REASONS:
        return FaultCause.NODE_LOST, 0
    if reason in REJECTION_REASONS or _OUT_OF.fullmatch(reason):
        return FaultCause.REJECTED, 0
    if failure.signal:
        return FaultCause.SIGNAL, failure.signal
    code = failure.exit_code
    if code is not None and MIN_SIGNAL_CODE <= code <= MAX_SIGNAL_CODE:
        return FaultCause.SIGNAL, code - 128
    return FaultCause.EXIT, 0


# Failures


def _failures(history: JobHistory) -> list[RecordedEnd]:
    """The failures, in the order in which they came; the one that the job's status calls the first is the first."""
    by_replica = {failure.replica: failure for pod in history.pods for failure in _pod_failures(history, pod)}
    named = _first_failure(history)
    rest = sorted(by_replica.values(), key=lambda one: one.ended_at.timestamp() if one.ended_at else float("inf"))
    if named is None:
        return sorted(rest, key=lambda one: one.replica != history.first_replica)
    own = by_replica.get(named.replica)
    return [_joined(named, own), *(one for one in rest if one.replica != named.replica and _is_near(one, named))]


def _joined(named: RecordedEnd, own: RecordedEnd | None) -> RecordedEnd:
    """The first failure as the status has it, with what only its pod knows, if that is about the same process."""
    if own is None or (own.exit_code, own.reason) != (named.exit_code, named.reason):
        return named
    return msgspec.structs.replace(
        named,
        started_at=own.started_at or named.started_at,
        ended_at=named.ended_at or own.ended_at,
        step=own.step if named.step is None else named.step,
        signal=named.signal or own.signal,
    )


def _is_near(failure: RecordedEnd, first: RecordedEnd) -> bool:
    """Whether a failure belongs to the same trouble as the first: neither long before nor long after it."""
    gap = _seconds(first.ended_at, failure.ended_at)
    return gap is None or -5.0 <= gap <= 180.0


def _first_failure(history: JobHistory) -> RecordedEnd | None:
    status = history.job.get("status") or {}
    failure: JSON | None = status.get("firstFailure")
    if not failure or not failure.get("replica"):
        return None
    progress = last_progress(failure.get("log") or ())
    return RecordedEnd(
        replica=failure["replica"],
        exit_code=failure.get("exitCode"),
        signal=failure.get("signal") or 0,
        reason=_plain_reason(failure.get("reason")),
        started_at=_time(status.get("startTime")),
        ended_at=_time(failure.get("began")) or _time(failure.get("time")),
        step=progress.step if progress is not None else None,
    )


def _pod_failures(history: JobHistory, pod: JSON) -> Iterable[RecordedEnd]:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    container = container_name(pod)
    states: list[JSON] = [one for one in status.get("containerStatuses") or () if one.get("name") == container] or [{}]
    ended = (states[0].get("state") or {}).get("terminated")
    earlier = (states[0].get("lastState") or {}).get("terminated")
    has_failed = status.get("phase") == "Failed"
    terminated: JSON | None = next((one for one in (ended, earlier) if one and one.get("exitCode")), None)
    if terminated is None and not has_failed:
        return
    current = terminated is not None and terminated is ended
    lines = history.logs.get(name, ()) if current or terminated is None else history.previous_logs.get(name, ())
    progress = last_progress(lines) or (reported_progress(pod) if not restart_count(pod) else None)
    terminated = terminated or {}
    yield RecordedEnd(
        replica=replica_of(history.job, pod),
        exit_code=terminated.get("exitCode"),
        signal=terminated.get("signal") or 0,
        reason=(_plain_reason(status.get("reason")) if has_failed else "")
        or _disruption(status)
        or _plain_reason(terminated.get("reason")),
        started_at=_time(terminated.get("startedAt")) or _time(status.get("startTime")),
        ended_at=_time(terminated.get("finishedAt")),
        step=progress.step if progress is not None else None,
    )


def _disruption(status: JSON) -> str:
    """Why Kubernetes itself ended a pod, from its condition DisruptionTarget."""
    conditions = status.get("conditions") or ()
    return next(
        (
            str(one.get("reason", ""))
            for one in conditions
            if one.get("type") == "DisruptionTarget" and one.get("status") == "True"
        ),
        "",
    )


def _plain_reason(reason: Any) -> str:
    return "" if reason in (None, "Error", "Completed") else str(reason)


# Hangs


def hangs(history: JobHistory) -> tuple[RecordedFault, ...]:
    """The replicas that hold a stalled job up; all that run if its condition names none. None if it is not stalled."""
    conditions = (history.job.get("status") or {}).get("conditions") or ()
    stalled = next((one for one in conditions if one.get("type") == STALLED and one.get("status") == "True"), None)
    if stalled is None:
        return ()
    running = {replica_of(history.job, pod): pod for pod in history.pods if _runs(pod)}
    named = [
        name for name in running if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stalled.get("message", ""))
    ]
    culprits = named if named and len(named) < len(running) else sorted(running)
    faults = []
    for name in culprits:
        pod = running[name]
        progress = last_progress(history.logs.get(pod["metadata"]["name"], ())) or reported_progress(pod)
        since = _time((pod["metadata"].get("annotations") or {}).get(PROGRESS_TIME_ANNOTATION))
        after = _seconds(
            _time((pod.get("status") or {}).get("startTime")), since or _time(stalled.get("lastTransitionTime"))
        )
        step = progress.step if progress is not None else None
        faults.append(RecordedFault(name, FaultCause.HANG, step=step, after_seconds=after))
    return tuple(faults)


def _runs(pod: JSON) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


# Replicas


def replica_records(history: JobHistory) -> tuple[ReplicaRecord, ...]:
    """How far each replica came."""
    records = {one.name: one for one in (_replica_record(history, pod) for pod in history.pods)}
    for kind, count in replica_counts(history.job).items():
        for index in range(count):
            name = kind.lower() if kind == "Launcher" else f"{kind.lower()}-{index}"
            records.setdefault(name, ReplicaRecord(name))
    first = (history.job.get("status") or {}).get("firstFailure") or {}
    if first.get("replica") in records and not records[first["replica"]].log:
        record = records[first["replica"]]
        records[record.name] = msgspec.structs.replace(record, log=tuple(first.get("log") or ()))
    return tuple(records[name] for name in sorted(records))


def _replica_record(history: JobHistory, pod: JSON) -> ReplicaRecord:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    failures = list(_pod_failures(history, pod))
    lines = history.logs.get(name, ())
    progress = last_progress(lines) or reported_progress(pod)
    previous = history.previous_logs.get(name, ())
    rate = None
    if progress is not None and progress.step > 0:
        ended = failures[0].ended_at if failures else None
        reported = _time((pod["metadata"].get("annotations") or {}).get(PROGRESS_TIME_ANNOTATION))
        started = (failures[0].started_at if failures else None) or _time(status.get("startTime"))
        seconds = _seconds(started, ended or reported)
        rate = progress.step / seconds if seconds else None
    return ReplicaRecord(
        replica_of(history.job, pod),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        restarts=restart_count(pod),
        step=progress.step if progress is not None else None,
        total=progress.total if progress is not None else None,
        rate=rate,
        # Of a container that has started again, the log that ended with the failure says more.
        log=tuple(previous if failures and previous and not _is_failed(pod) else lines),
    )


def _is_failed(pod: JSON) -> bool:
    return (pod.get("status") or {}).get("phase") == "Failed"


def replica_of(job: JSON, pod: JSON) -> str:
    """The name of a pod's replica, such as `worker-1`."""
    return str(pod["metadata"]["name"]).removeprefix(f"{job['metadata']['name']}-")


def last_progress(lines: Sequence[str]) -> Progress | None:
    """The last progress report in the lines of a log."""
    return next((found for line in reversed(lines) if (found := parse_progress(line)) is not None), None)


def reported_progress(pod: JSON) -> Progress | None:
    """The progress in a pod's annotation."""
    return parse_progress((pod["metadata"].get("annotations") or {}).get(PROGRESS_ANNOTATION, ""))


def _restarts(job: JSON) -> int:
    statuses = ((job.get("status") or {}).get("replicaStatuses") or {}).values()
    own: int = (job.get("status") or {}).get("restarts") or 0
    return own + sum((one or {}).get("restarts") or 0 for one in statuses)


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except (TypeError, ValueError):
        return None


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start is not None and end is not None else None
