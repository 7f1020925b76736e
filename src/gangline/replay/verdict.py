"""What `gangline why` says of a job, in the few words that a recording and its replay are compared by. Pure."""

from collections.abc import Sequence

from gangline.api.meta import JSON
from gangline.replay.bundle import RecordedVerdict
from gangline.replay.faults import JobHistory, recorded_faults
from gangline.summary.job_state import job_state
from gangline.why.diagnosis.report import Diagnosis


def verdict_of(job: JSON, pods: Sequence[JSON], diagnosis: Diagnosis | None) -> RecordedVerdict:
    """Who failed first, and the rule of the likeliest cause.

    The first is whom the job's status names, else whom the diagnosis names alone, else whose container ended first.
    """
    failure: JSON = (job.get("status") or {}).get("firstFailure") or {}
    cause = diagnosis.causes[0] if diagnosis is not None and diagnosis.causes else None
    named = cause.replicas if cause is not None else ()
    faults = recorded_faults(JobHistory(job, pods))
    return RecordedVerdict(
        first_replica=failure.get("replica")
        or (named[0] if len(named) == 1 else next((fault.replica for fault in faults if not named), "")),
        rank=failure.get("rank"),
        rule=cause.rule if cause is not None else "",
        cause=cause.cause if cause is not None else "",
        state=job_state(job),
    )
