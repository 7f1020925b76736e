"""When jobs started, ran and waited, read from their objects."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gangline.api.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from gangline.api.kubeflow.training import ConditionType, JobStatus, ReplicaStatus, TrainingJob
from gangline.api.meta import Condition, ObjectMeta
from gangline.jobs.milestones import JobMilestones, has_just_started, milestones

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def condition(kind: str, since: float, value: str = "True") -> Condition:
    return Condition(type=kind, status=value, last_transition_time=at(since))


def status(*conditions: Condition, start: float | None = 0, restarts: int = 0, **states: dict[str, int]) -> JobStatus:
    replicas = {kind: ReplicaStatus(states=counts) for kind, counts in states.items()}
    return JobStatus(
        conditions=conditions,
        start_time=None if start is None else at(start),
        restarts=restarts,
        replica_statuses=replicas,
    )


def pod(created: float, scheduled: float | None = None, started: float | None = None, *, ended: bool = False) -> Pod:
    running = ContainerState(running=ContainerStateRunning(started_at=None if started is None else at(started)))
    over = ContainerState(terminated=ContainerStateTerminated(started_at=None if started is None else at(started)))
    return Pod(
        metadata=ObjectMeta(creation_timestamp=at(created)),
        status=PodStatus(
            conditions=() if scheduled is None else (condition("PodScheduled", scheduled),),
            container_statuses=(ContainerStatus(state=over if ended else running),),
        ),
    )


CREATED = TrainingJob(metadata=ObjectMeta(creation_timestamp=at(0)))


# The start


def test_the_slowest_pod_counts() -> None:
    pods = [pod(1, 5, 9), pod(3, 4, 20)]
    assert milestones(CREATED, status(), pods) == JobMilestones(pods_created=3, gang_wait=2, all_running=20)


def test_a_replica_that_has_ended_has_started_before() -> None:
    assert milestones(CREATED, status(), [pod(1, 1, 7, ended=True)]).all_running == 7


def test_of_a_container_that_restarted_the_earlier_start_counts() -> None:
    first = ContainerState(terminated=ContainerStateTerminated(started_at=at(4)))
    again = ContainerState(running=ContainerStateRunning(started_at=at(60)))
    statuses = (ContainerStatus(state=again, last_state=first),)
    restarted = Pod(metadata=ObjectMeta(creation_timestamp=at(1)), status=PodStatus(container_statuses=statuses))
    assert milestones(CREATED, status(), [restarted]).all_running == 4


def test_what_the_pods_do_not_tell_is_not_measured() -> None:
    assert milestones(CREATED, status(), []) == JobMilestones(None, None, None)
    assert milestones(CREATED, status(), [pod(1), pod(2, 3, 4)]) == JobMilestones(2, None, None)


def test_a_job_that_was_suspended_begins_when_it_is_resumed() -> None:
    resumed = status(condition(ConditionType.SUSPENDED, 500, "False"), start=500)
    assert milestones(CREATED, resumed, [pod(502, 503, 504)]) == JobMilestones(2, 1, 4)


def test_clocks_that_differ_give_no_negative_times() -> None:
    assert milestones(CREATED, status(), [pod(5, 3, -1)]) == JobMilestones(5, 0, 0)


WAITING: dict[str, Any] = {"Worker": {"Running": 1, "Unknown": 1}}
STARTED: dict[str, Any] = {"Worker": {"Running": 1, "Succeeded": 1}}


def test_a_job_has_started_when_its_last_replica_has_and_only_once() -> None:
    assert has_just_started(status(**WAITING), status(**STARTED))
    assert not has_just_started(status(**STARTED), status(**STARTED))
    assert not has_just_started(status(), status(**WAITING))
    assert not has_just_started(status(), status())


def test_a_restarted_job_does_not_start_again() -> None:
    assert not has_just_started(status(**WAITING, restarts=1), status(**STARTED, restarts=1))
