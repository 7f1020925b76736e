"""The status as it stands: what is counted of a job, and how conditions are set."""

from datetime import datetime

import msgspec

from gangline.api.kubeflow.training import (
    REPLICA_TYPE,
    ConditionType,
    JobStatus,
    ReplicaStatus,
    RunState,
    TrainingJob,
)
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.assessment import RestartTally
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.status import replica_statuses, training_progress, with_condition, without_condition
from gangline.jobs.pods.render import job_labels


def active_status(framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally) -> JobStatus:
    """The status of a job that is neither suspended nor over, as far as counting goes."""
    job, now = seen.job, seen.now
    return msgspec.structs.replace(
        created_status(job, now),
        replica_statuses=_replica_statuses(framework, seen),
        start_time=job.status.start_time or timestamp(now),
        observed_generation=job.metadata.generation,
        restarts=so_far.restarts,
        progress=training_progress(seen.gang, job.status.progress, now),
        ledger=so_far.ledger,
    )


def created_status(job: TrainingJob, now: datetime) -> JobStatus:
    """The status with the first of all conditions."""
    told = f"{job.KIND} {job.metadata.name} is created."
    return status_with_condition(job.status, ConditionType.CREATED, f"{job.KIND}Created", told, now)


def _replica_statuses(framework: Framework[J], seen: ObservedJob[J]) -> dict[str, ReplicaStatus]:
    replicas, facts = framework.replicas(seen.job), framework.facts
    selectors = {kind: replica_selector(seen.job, kind) for kind in replicas} if facts.scalable else dict[str, str]()
    found = replica_statuses(seen.gang, replicas, facts.container, selectors)
    # v1 counts the types that may be left out as well.
    left_out = (kind for kind in facts.default_replicas if kind not in found)
    return {**found, **{kind: ReplicaStatus(state=RunState.UNKNOWN.value) for kind in left_out}}


def replica_selector(job: TrainingJob, kind: str) -> str:
    """Which pods are those of a replica type, for whoever scales them."""
    labels = {**job_labels(job), REPLICA_TYPE: kind.lower()}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def status_with_condition(
    status: JobStatus, kind: ConditionType, reason: str, message: str, now: datetime, *, value: str = "True"
) -> JobStatus:
    conditions = with_condition(status.conditions, kind, reason, message, now, status=value)
    return msgspec.structs.replace(status, conditions=conditions)


def status_without_blocked(status: JobStatus) -> JobStatus:
    if status.condition(ConditionType.BLOCKED) is None:
        return status
    return msgspec.structs.replace(status, conditions=without_condition(status.conditions, ConditionType.BLOCKED))


def timestamp(now: datetime) -> datetime:
    return now.replace(microsecond=0)
