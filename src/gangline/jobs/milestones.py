"""How long a job took to start: read from objects, never from a clock of this process.

So a restart of the operator neither loses a time nor measures it twice: each belongs to one change of the status, and
that change is written once. Times in objects are whole seconds.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from gangline.api.core import ContainerStatus, Pod
from gangline.api.kubeflow.training import ConditionType, JobStatus, RunState, TrainingJob

POD_SCHEDULED = "PodScheduled"


class JobMilestones(msgspec.Struct, frozen=True):
    """Seconds that a job took to start. None: the pods do not tell."""

    # From the beginning of the job until its last pod was created.
    pods_created: float | None
    # From then until the last pod had a node.
    gang_wait: float | None
    # From the beginning of the job until the last replica ran.
    all_running: float | None


def has_just_started(before: JobStatus, after: JobStatus) -> bool:
    """Whether every replica has run now, for the first time. False for a job that had restarts before that."""
    return after.restarts == 0 and _all_started(after) and not _all_started(before)


def milestones(job: TrainingJob, status: JobStatus, pods: Iterable[Pod]) -> JobMilestones:
    """The milestones of a job whose replicas have all started, with these pods.

    The job begins with its creation; one that was suspended, when it was resumed last.
    """
    was_suspended = status.condition(ConditionType.SUSPENDED) is not None
    began = status.start_time if was_suspended else job.metadata.creation_timestamp
    pods = tuple(pods)
    created = _latest(pod.metadata.creation_timestamp for pod in pods)
    return JobMilestones(
        pods_created=_seconds_between(began, created),
        gang_wait=_seconds_between(created, _latest(map(_scheduled_at, pods))),
        all_running=_seconds_between(began, _latest(map(_started_at, pods))),
    )


def _all_started(status: JobStatus) -> bool:
    replicas = [replica.states for replica in status.replica_statuses.values() if replica.states]
    return bool(replicas) and not any(states.get(RunState.UNKNOWN) for states in replicas)


def _scheduled_at(pod: Pod) -> datetime | None:
    conditions = (found for found in pod.status.conditions if found.type == POD_SCHEDULED and found.status == "True")
    return next((condition.last_transition_time for condition in conditions), None)


def _started_at(pod: Pod) -> datetime | None:
    return _latest(map(_container_started_at, pod.status.container_statuses))


def _container_started_at(status: ContainerStatus) -> datetime | None:
    """The first start that the status still tells."""
    states = (status.last_state, status.state)
    starts = (found.started_at for state in states for found in (state.terminated, state.running) if found is not None)
    return next((start for start in starts if start is not None), None)


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    """The latest time; None if there are none, or if one is not known."""
    latest: datetime | None = None
    for time in times:
        if time is None:
            return None
        latest = time if latest is None else max(latest, time)
    return latest


def _seconds_between(since: datetime | None, until: datetime | None) -> float | None:
    """Never negative: the times come from different clocks."""
    return None if since is None or until is None else max(0.0, (until - since).total_seconds())
