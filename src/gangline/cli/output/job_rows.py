"""A job in one line: pure, from the object as the server has it, whoever's operator runs it."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from gangline.api.durations import human_age, human_duration
from gangline.api.meta import JSON

HEADER = ("NAME", "STATE", "READY", "RESTARTS", "QUEUE", "AGE", "REASON")
WIDE_HEADER = ("REPLICAS", "DURATION", "PHASE", "PROGRESS")
PROGRESS_ANNOTATION = "training.gangline.dev/progress"
"""As in `gangline.api.kubeflow.training`, which takes long to import."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NONE = "-"
STOPPED = "Stopped"
"""The state of a job whose plane does not run. What becomes of it is decided when the plane comes back."""
WAITING_STATES = ("Pending", "Created", "Restarting")
"""The states of a job that may wait for its pods."""
UNOBSERVED_AFTER = timedelta(seconds=10)
"""A job that no operator has looked at for so long is not merely young."""


def job_cells(job: JSON, now: datetime, *, wide: bool = False) -> list[str]:
    """One cell for each of `HEADER`, and of `WIDE_HEADER`."""
    metadata = job.get("metadata") or {}
    cells = [
        metadata.get("name", ""),
        job_state(job),
        ready_text(job),
        str((job.get("status") or {}).get("restarts") or 0),
        queue_name(job),
        human_age(metadata.get("creationTimestamp"), now),
        job_reason(job, now),
    ]
    return [*cells, replicas_text(job), job_duration(job, now), job_phase(job), progress_text(job)] if wide else cells


def conditions(job: JSON) -> list[JSON]:
    found: list[JSON] = (job.get("status") or {}).get("conditions") or []
    return found


def job_state(job: JSON) -> str:
    """One word: the newest condition that is True."""
    if (job.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    holding = [found.get("type", "") for found in conditions(job) if found.get("status") == "True"]
    for end in ("Failed", "Succeeded"):
        if end in holding:
            return end
    return holding[-1] if holding else "Pending"


def may_wait(job: JSON) -> bool:
    """Whether it may wait for pods: it has not begun, or fewer run than it wants, as of a gang that had to give way."""
    now_in = job_state(job)
    return now_in in WAITING_STATES or (now_in == "Running" and lacks_replicas(job))


def is_finished(job: JSON) -> bool:
    """Whether the job has ended, one way or the other."""
    return has_condition(job, "Succeeded") or has_condition(job, "Failed")


def has_condition(job: JSON, kind: str) -> bool:
    """Whether a condition is there and True."""
    wanted = kind.lower()
    return any(found.get("type", "").lower() == wanted and found.get("status") == "True" for found in conditions(job))


def replica_specs(job: JSON) -> Mapping[str, JSON]:
    """The replica map, whatever the kind calls it."""
    for name, value in (job.get("spec") or {}).items():
        if name.endswith("ReplicaSpecs") and isinstance(value, dict):
            return value
    return {}


def replica_counts(job: JSON) -> dict[str, int]:
    """Replicas by type, as written; one where nothing is."""
    return {kind: _replica_count(spec) for kind, spec in replica_specs(job).items()}


def _replica_count(spec: Any) -> int:
    number = (spec or {}).get("replicas")
    return 1 if number is None else int(number)


def ready_text(job: JSON) -> str:
    """How many replicas run or have done their work, of how many."""
    statuses: Mapping[str, JSON] = (job.get("status") or {}).get("replicaStatuses") or {}
    well = sum(
        ((found or {}).get("active") or 0) + ((found or {}).get("succeeded") or 0) for found in statuses.values()
    )
    return f"{well}/{sum(replica_counts(job).values())}"


def lacks_replicas(job: JSON) -> bool:
    """Whether fewer replicas run or have done their work than it wants."""
    well, _, asked = ready_text(job).partition("/")
    return well != asked


def queue_name(job: JSON) -> str:
    labels = (job.get("metadata") or {}).get("labels") or {}
    scheduling = ((job.get("spec") or {}).get("runPolicy") or {}).get("schedulingPolicy") or {}
    return labels.get(QUEUE_LABEL) or scheduling.get("queue") or NONE


def replicas_text(job: JSON) -> str:
    return ", ".join(f"{kind.lower()} {count}" for kind, count in replica_counts(job).items()) or NONE


def job_phase(job: JSON) -> str:
    return (job.get("status") or {}).get("phase") or NONE


def progress_text(job: JSON) -> str:
    """`step 120/500 loss=0.12`."""
    found = (job.get("status") or {}).get("progress")
    if not isinstance(found, dict) or not is_number(found.get("step")):
        return NONE
    metrics = found.get("metrics")
    named = metrics if isinstance(metrics, dict) else {}
    total = f"/{amount_text(found['total'])}" if is_number(found.get("total")) else ""
    told = (f"{name}={amount_text(value)}" for name, value in named.items() if is_number(value))
    return " ".join((f"step {amount_text(found['step'])}{total}", *told))


def amount_text(value: float) -> str:
    """A number for people: whole ones whole, others with four digits that matter."""
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    return str(int(value)) if whole else f"{value:.4g}"


def is_number(value: Any) -> bool:
    """Whether it is a number, and not merely true."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def job_duration(job: JSON, now: datetime) -> str:
    """How long it has run, or ran."""
    status = job.get("status") or {}
    begun, ended = parse_timestamp(status.get("startTime")), parse_timestamp(status.get("completionTime"))
    halted = next((one.get("lastTransitionTime") for one in conditions(job) if one.get("type") == STOPPED), None)
    return human_duration((ended or parse_timestamp(halted) or now) - begun) if begun is not None else NONE


def parse_timestamp(stamp: Any) -> datetime | None:
    """A time on the wire; None for none."""
    try:
        found = datetime.fromisoformat(stamp) if isinstance(stamp, str) and stamp else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def job_reason(job: JSON, now: datetime) -> str:
    """Why a job is not simply going well, in a few words."""
    return next(_candidate_reasons(job, now), NONE)


def _candidate_reasons(job: JSON, now: datetime) -> Iterator[str]:
    now_in = job_state(job)
    failure = (job.get("status") or {}).get("firstFailure")
    if now_in in ("Succeeded", "Suspended", "Terminating"):
        return
    if now_in in ("Blocked", STOPPED):
        yield condition_message(job, now_in)
    if now_in == "Failed":
        yield failure_text(failure) if failure else condition_message(job, "Failed")
    if failure and (now_in == "Restarting" or (now_in == "Running" and lacks_replicas(job))):
        yield f"{failure_text(failure)}, restarting"
    if now_in == "Restarting":
        yield condition_message(job, "Restarting")
    created = parse_timestamp((job.get("metadata") or {}).get("creationTimestamp"))
    if not conditions(job) and created is not None and now - created > UNOBSERVED_AFTER:
        yield "no operator has seen it"


def condition_message(job: JSON, kind: str) -> str:
    """What a condition says, in one line."""
    told = next((found.get("message", "") for found in conditions(job) if found.get("type") == kind), "")
    return " ".join(str(told).split()) or NONE


def failure_text(failure: JSON) -> str:
    """`worker-3 OOMKilled`, `worker-1 exit 2`, `worker-0 killed by signal 9`."""
    replica, how = failure.get("replica", "a replica"), failure.get("reason", "")
    if how and how not in ("Error", "Completed"):
        return f"{replica} {how}"
    if failure.get("signal"):
        return f"{replica} killed by signal {failure['signal']}"
    code = failure.get("exitCode")
    if code is not None:
        return f"{replica} exit {code}"
    return f"{replica} failed" + (f": {failure['message']}" if failure.get("message") else "")
