"""When jobs started, ran and waited, read from their objects."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

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
from gangline.jobs.milestones import JobMilestones, finished_interval, has_just_started, milestones, replica_count

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


def test_replicas_are_counted_whatever_they_do() -> None:
    assert replica_count(status(**WAITING, Master={"Failed": 1})) == 3


# What it did


RUNNING = condition(ConditionType.RUNNING, 30)
CREATED_AT = condition(ConditionType.CREATED, 0)


@pytest.mark.parametrize(
    ("before", "after", "interval"),
    [
        pytest.param(status(start=None), status(CREATED_AT), None, id="it has only begun"),
        pytest.param(status(CREATED_AT), status(CREATED_AT, RUNNING), ("waiting", 30), id="waited, then runs"),
        pytest.param(status(start=None), status(CREATED_AT, RUNNING), ("waiting", 30), id="seen late"),
        pytest.param(status(CREATED_AT, RUNNING), status(CREATED_AT, RUNNING), None, id="runs on"),
        pytest.param(
            status(CREATED_AT, RUNNING),
            status(CREATED_AT, condition(ConditionType.RESTARTING, 100), restarts=1),
            ("running", 70),
            id="ran, then restarts",
        ),
        pytest.param(
            status(CREATED_AT, condition(ConditionType.RESTARTING, 100)),
            status(CREATED_AT, condition(ConditionType.RUNNING, 110)),
            ("waiting", 10),
            id="waits from the restart on",
        ),
        pytest.param(
            status(CREATED_AT, RUNNING),
            status(CREATED_AT, condition(ConditionType.RUNNING, 90, "False"), condition(ConditionType.SUCCEEDED, 90)),
            ("running", 60),
            id="ran to its end",
        ),
        pytest.param(
            status(CREATED_AT), status(CREATED_AT, condition(ConditionType.FAILED, 40)), ("waiting", 40), id="never ran"
        ),
        pytest.param(
            status(CREATED_AT, condition(ConditionType.FAILED, 40)),
            status(CREATED_AT, condition(ConditionType.FAILED, 40)),
            None,
            id="has ended before",
        ),
        pytest.param(
            status(CREATED_AT),
            status(CREATED_AT, condition(ConditionType.SUSPENDED, 9)),
            ("waiting", 9),
            id="suspended",
        ),
        pytest.param(
            status(CREATED_AT, condition(ConditionType.SUSPENDED, 9)),
            status(CREATED_AT, condition(ConditionType.SUSPENDED, 900, "False"), start=900),
            None,
            id="suspension is no waiting",
        ),
        pytest.param(
            status(condition(ConditionType.SUSPENDED, 9)),
            status(condition(ConditionType.RUNNING, 920), start=900),
            ("waiting", 20),
            id="resumed and runs",
        ),
    ],
)
def test_an_interval_ends_with_a_change(
    before: JobStatus, after: JobStatus, interval: tuple[str, float] | None
) -> None:
    assert finished_interval(before, after) == interval
