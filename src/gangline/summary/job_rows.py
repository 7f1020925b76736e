"""A job in one row, from its object alone, so it works with any operator. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gangline.api.durations import human_age, human_duration
from gangline.api.meta import JSON
from gangline.summary.job_state import (
    GENERIC_EXIT_REASONS,
    STOPPED,
    conditions,
    job_state,
    replica_counts,
    replica_specs,
)

# REASON is printed with and without `-o wide`: `job_reason`, or what the pods tell (`PodDetails`).
HEADER = ("NAME", "STATE", "READY", "RESTARTS", "QUEUE", "AGE", "REASON")
WIDE_HEADER = ("REPLICAS", "DURATION", "PHASE", "PROGRESS")
PROGRESS_ANNOTATION = "training.gangline.dev/progress"
"""Also in `gangline.api.kubeflow.training`, which loads slowly."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NONE = "-"
WAITING_STATES = ("Pending", "Created", "Restarting")
"""The states in which a job may wait for its pods."""
MOST_METRICS = 4
"""How many metrics a line of `get -o wide` shows."""
MAX_SECONDS = 10 * 365 * 86400
"""A longer time that is left is not shown."""
UNOBSERVED_AFTER = timedelta(seconds=10)
"""A job without conditions for longer than this has no operator; a younger one may just not have been reconciled."""


class PodDetails(NamedTuple):
    """What the pods of a job tell beyond its status."""

    # Why the job waits; empty if there is nothing to say.
    reason: str = ""
    # How many pods are ready; None if the pods were not looked at.
    ready: int | None = None


NO_DETAILS = PodDetails()


def job_cells(job: JSON, now: datetime, *, wide: bool = False, pods: PodDetails = NO_DETAILS) -> list[str]:
    """One cell for each of `HEADER`, and of `WIDE_HEADER`."""
    metadata = job.get("metadata") or {}
    cells = [
        metadata.get("name", ""),
        job_state(job),
        ready_text(job, pods),
        str((job.get("status") or {}).get("restarts") or 0),
        queue_name(job),
        human_age(metadata.get("creationTimestamp"), now),
        job_reason(job, now, pods),
    ]
    return (
        [*cells, replicas_text(job), job_duration(job, now), job_phase(job), progress_text(job, MOST_METRICS)]
        if wide
        else cells
    )


def needs_pods(job: JSON) -> bool:
    """Whether the status of a job alone may not tell how many replicas are ready, or what it waits for."""
    state = job_state(job)
    if state in WAITING_STATES or (state == "Suspended" and waits_for_kueue(job)):
        return True
    return state == "Running" and (_may_be_unready(job) or lacks_replicas(job))


def may_wait(job: JSON) -> bool:
    """Whether a job may wait for pods: it has not started, or too few replicas run (after a preemption, say)."""
    state = job_state(job)
    return state in WAITING_STATES or (state == "Running" and lacks_replicas(job))


def waits_for_kueue(job: JSON) -> bool:
    """Whether a job is suspended and in a queue of Kueue, which resumes it."""
    return job_state(job) == "Suspended" and QUEUE_LABEL in ((job.get("metadata") or {}).get("labels") or {})


def _may_be_unready(job: JSON) -> bool:
    """Whether a pod of the job may run without being ready: a container restarts in place, has a probe, or has peers."""
    recovery = ((job.get("spec") or {}).get("runPolicy") or {}).get("recovery")
    if isinstance(recovery, Mapping) and recovery.get("inPlace"):
        return True
    for spec in replica_specs(job).values():
        pod = (((spec or {}).get("template") or {}).get("spec")) or {}
        containers = pod.get("containers") or ()
        if (spec or {}).get("restartPolicy") in ("OnFailure", "Always") or len(containers) > 1:
            return True
        if any("readinessProbe" in container or "startupProbe" in container for container in containers):
            return True
    return False


def ready_text(job: JSON, pods: PodDetails = NO_DETAILS) -> str:
    """How many replicas are ready or have succeeded, of how many in the spec: `3/4`.

    A job that succeeded is complete, also if some of its replicas were removed before they ended.
    """
    total = sum(replica_counts(job).values())
    if job_state(job) == "Succeeded":
        return f"{total}/{total}"
    statuses: Mapping[str, JSON] = (job.get("status") or {}).get("replicaStatuses") or {}
    active = sum((status or {}).get("active") or 0 for status in statuses.values())
    succeeded = sum((status or {}).get("succeeded") or 0 for status in statuses.values())
    return f"{(active if pods.ready is None else pods.ready) + succeeded}/{total}"


def lacks_replicas(job: JSON, pods: PodDetails = NO_DETAILS) -> bool:
    """Whether the number of replicas that are ready or have succeeded differs from the spec."""
    ready, _, total = ready_text(job, pods).partition("/")
    return ready != total


def queue_name(job: JSON) -> str:
    labels = (job.get("metadata") or {}).get("labels") or {}
    scheduling = ((job.get("spec") or {}).get("runPolicy") or {}).get("schedulingPolicy") or {}
    return labels.get(QUEUE_LABEL) or scheduling.get("queue") or NONE


def replicas_text(job: JSON) -> str:
    """`master 1, worker 3`."""
    return ", ".join(f"{name.lower()} {count}" for name, count in replica_counts(job).items()) or NONE


def job_phase(job: JSON) -> str:
    return (job.get("status") or {}).get("phase") or NONE


def progress_text(job: JSON, most_metrics: int | None = None) -> str:
    """The last reported progress of a job: `step 120/500 loss=0.12 eta=3m`. The loss comes first."""
    progress = (job.get("status") or {}).get("progress")
    if not isinstance(progress, dict) or not is_number(progress.get("step")):
        return NONE
    metrics = progress.get("metrics")
    if not isinstance(metrics, dict):
        metrics = {}
    total = f"/{amount_text(progress['total'])}" if is_number(progress.get("total")) else ""
    numbers = sorted(((name, value) for name, value in metrics.items() if is_number(value)), key=_is_not_loss)
    metric_texts = [f"{name}={amount_text(value)}" for name, value in numbers[:most_metrics]]
    metric_texts += ["…"] if len(metric_texts) < len(numbers) else []
    left: Any = progress.get("estimatedRemainingSeconds")
    eta = (f"eta={human_duration(timedelta(seconds=left))}",) if is_number(left) and 0 < left < MAX_SECONDS else ()
    return " ".join((f"step {amount_text(progress['step'])}{total}", *metric_texts, *eta))


def _is_not_loss(metric: tuple[str, float]) -> bool:
    return metric[0] != "loss"


def amount_text(value: float) -> str:
    """A number as text: integers in full, others with four significant digits."""
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    return str(int(value)) if whole else f"{value:.4g}"


def is_number(value: Any) -> bool:
    """Whether a value is a number; Python's bool is an int, but a JSON boolean is no number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def job_duration(job: JSON, now: datetime) -> str:
    """How long a job has run, or ran until it finished or its plane stopped."""
    status = job.get("status") or {}
    start, completion = parse_timestamp(status.get("startTime")), parse_timestamp(status.get("completionTime"))
    stop = next(
        (condition.get("lastTransitionTime") for condition in conditions(job) if condition.get("type") == STOPPED), None
    )
    return human_duration((completion or parse_timestamp(stop) or now) - start) if start is not None else NONE


def parse_timestamp(stamp: Any) -> datetime | None:
    """A timestamp of an object; None if it is missing, malformed or without a time zone."""
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) and stamp else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def job_reason(job: JSON, now: datetime, pods: PodDetails = NO_DETAILS) -> str:
    """Why a job waits, restarts or failed, in a few words; `-` if there is nothing to say."""
    return next(_candidate_reasons(job, now, pods), NONE)


def _candidate_reasons(job: JSON, now: datetime, pods: PodDetails) -> Iterator[str]:
    """Reasons for the REASON column, most important first."""
    state = job_state(job)
    failure = (job.get("status") or {}).get("firstFailure")
    if state == "Suspended" and pods.reason:
        yield pods.reason
    if state in ("Succeeded", "Suspended", "Terminating"):
        return
    if state in ("Blocked", "Stalled", STOPPED):
        yield condition_message(job, state)
    if state == "Failed":
        yield failure_text(failure) if failure else condition_message(job, "Failed")
    if failure and (state == "Restarting" or (state == "Running" and lacks_replicas(job, pods))):
        yield f"{failure_text(failure)}, restarting"
    if state == "Restarting":
        yield condition_message(job, "Restarting")
    created = parse_timestamp((job.get("metadata") or {}).get("creationTimestamp"))
    if not conditions(job) and created is not None and now - created > UNOBSERVED_AFTER:
        yield "no operator has seen it"
    if pods.reason:
        yield pods.reason


def condition_message(job: JSON, condition_type: str) -> str:
    """The message of a condition in one line; `-` if there is none."""
    messages = (item.get("message", "") for item in conditions(job) if item.get("type") == condition_type)
    return " ".join(str(next(messages, "")).split()) or NONE


def failure_text(failure: JSON) -> str:
    """A failed replica in a few words: `worker-3 (rank 4) OOMKilled`, `worker-1 exit 2`, `worker-0 killed by signal 9`."""
    return f"{failed_replica(failure)} {end_text(failure)}"


def failed_replica(failure: JSON) -> str:
    """The replica of a failure with its rank: `worker-3 (rank 4)`."""
    replica, rank = failure.get("replica", "a replica"), failure.get("rank")
    return f"{replica} (rank {rank})" if rank is not None else str(replica)


def end_text(failure: JSON) -> str:
    """How a replica failed: `OOMKilled`, `exit 2`, `killed by signal 9`."""
    reason = failure.get("reason", "")
    if reason and reason not in GENERIC_EXIT_REASONS:
        return str(reason)
    if failure.get("signal"):
        return f"killed by signal {failure['signal']}"
    code = failure.get("exitCode")
    if code is not None:
        return f"exit {code}"
    return "failed" + (f": {failure['message']}" if failure.get("message") else "")
