"""The plan for a pod."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gangline.node.pods.plan import (
    DEADLINE_EXCEEDED,
    Activity,
    ContainerExit,
    ContainerObservation,
    ContainerRun,
    ContainerWaiting,
    PodObservation,
    ReleasePod,
    Role,
    StartContainer,
    Step,
    StopContainer,
    Termination,
    plan,
    pod_has_finished,
    restart_delay,
)
from gangline.node.settings import Backoff

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(seconds=30)


def second(count: float) -> timedelta:
    return timedelta(seconds=count)


def alive(
    name: str = "main", role: Role = Role.MAIN, *, attempt: int = 0, started: bool = True
) -> ContainerObservation:
    run = ContainerRun(attempt, started_at=NOW - second(5))
    return ContainerObservation(name, role, runs=(run,), started=started, ready=started, init_done=started)


def ended(
    name: str = "main",
    code: int = 0,
    role: Role = Role.MAIN,
    *,
    streak: int = 0,
    lasted: timedelta = timedelta(seconds=1),
    ago: timedelta = timedelta(),
) -> ContainerObservation:
    run = ContainerRun(streak, streak=streak, started_at=NOW - ago - lasted, exit=ContainerExit(code, NOW - ago))
    return ContainerObservation(name, role, runs=(run,))


def steps(*containers: ContainerObservation, policy: str = "Never", **more: object) -> tuple[Step, ...]:
    return plan(observed(*containers, policy=policy, **more)).steps


def observed(*containers: ContainerObservation, policy: str = "Never", **more: object) -> PodObservation:
    return msgspec.structs.replace(PodObservation(containers, NOW, policy), **more)


def test_every_main_container_starts_at_once() -> None:
    assert steps(ContainerObservation("a"), ContainerObservation("b")) == (
        StartContainer("a", 0, 0),
        StartContainer("b", 0, 0),
    )


def test_nothing_starts_before_the_volumes_are_there() -> None:
    assert steps(ContainerObservation("a"), prepared=False) == ()


def test_what_is_under_way_is_not_asked_for_again() -> None:
    assert steps(ContainerObservation("a", activity=Activity.STARTING)) == ()
    stopping = msgspec.structs.replace(alive("a"), activity=Activity.STOPPING)
    assert steps(stopping, stop_by=NOW) == ()


def test_init_containers_come_one_after_the_other() -> None:
    first, second_, main = (
        ContainerObservation("1", Role.INIT),
        ContainerObservation("2", Role.INIT),
        ContainerObservation("main"),
    )
    assert steps(first, second_, main) == (StartContainer("1", 0, 0),)
    assert steps(alive("1", Role.INIT), second_, main) == ()
    assert steps(ended("1", 0, Role.INIT), second_, main) == (StartContainer("2", 0, 0),)
    done = (ended("1", 0, Role.INIT), ended("2", 0, Role.INIT))
    assert steps(*done, main) == (StartContainer("main", 0, 0),)


def test_a_failed_init_container_ends_a_pod_that_never_restarts() -> None:
    failed = observed(ended("1", 1, Role.INIT), ContainerObservation("main"))
    assert pod_has_finished(failed)
    assert plan(failed).steps == ()


def test_a_failed_init_container_is_started_again_otherwise() -> None:
    assert steps(ended("1", 1, Role.INIT), ContainerObservation("main"), policy="Always") == (
        StartContainer("1", 1, 1),
    )


def test_a_sidecar_makes_way_once_it_has_started() -> None:
    assert steps(alive("side", Role.SIDECAR, started=False), ContainerObservation("main")) == ()
    assert steps(alive("side", Role.SIDECAR), ContainerObservation("main")) == (StartContainer("main", 0, 0),)


def test_a_sidecar_that_never_started_does_not_make_way_by_crashing() -> None:
    crashed = ended("side", 1, Role.SIDECAR, streak=3, ago=timedelta(hours=1))
    assert steps(crashed, ContainerObservation("main")) == (StartContainer("side", 4, 4),)


def test_a_sidecar_is_restarted_beside_running_containers() -> None:
    crashed = msgspec.structs.replace(ended("side", 0, Role.SIDECAR), init_done=True)
    assert steps(crashed, alive(), policy="Never") == (StartContainer("side", 1, 1),)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policy_decides(policy: str, code: int, again: bool) -> None:
    assert steps(ended(code=code), policy=policy) == ((StartContainer("main", 1, 1),) if again else ())
    assert pod_has_finished(observed(ended(code=code), policy=policy)) is not again


@pytest.mark.parametrize(("streak", "delay"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (50, 300)])
def test_back_off_doubles_to_five_minutes(streak: int, delay: int) -> None:
    crashed = observed(ended(code=1, streak=streak), policy="Always")
    decided = plan(crashed)
    assert decided.wake_after == (second(delay) if delay else None)
    later = msgspec.structs.replace(crashed, now=NOW + second(delay))
    assert plan(later).steps == (StartContainer("main", streak + 1, streak + 1),)


def test_back_off_starts_anew_after_ten_minutes_of_running() -> None:
    long = ended(code=1, streak=7, lasted=timedelta(minutes=10))
    assert steps(long, policy="Always") == (StartContainer("main", 8, 1),)
    short = ContainerRun(3, streak=1, started_at=NOW, exit=ContainerExit(1, NOW))
    assert restart_delay(short, Backoff(initial=second(1))) == second(1)


def test_what_cannot_start_is_tried_again_in_time() -> None:
    waiting = ContainerObservation(
        "main", waiting=ContainerWaiting("CreateContainerConfigError", "no", NOW + second(2))
    )
    assert plan(observed(waiting)).wake_after == second(2)
    assert steps(waiting, now=NOW + second(2)) == (StartContainer("main", 0, 0),)


def test_an_unhealthy_container_is_stopped() -> None:
    sick = msgspec.structs.replace(alive(), unhealthy_reason="Liveness probe failed")
    assert steps(sick) == (StopContainer("main", GRACE, "Liveness probe failed"),)


def test_sidecars_are_stopped_last_first_when_the_work_is_done() -> None:
    one, two = alive("1", Role.SIDECAR), alive("2", Role.SIDECAR)
    assert steps(one, two, ended()) == (StopContainer("2", GRACE),)
    assert steps(one, ended("2", 0, Role.SIDECAR), ended()) == (StopContainer("1", GRACE),)


def test_deletion_stops_all_then_sidecars_then_releases() -> None:
    side = alive("side", Role.SIDECAR)
    by = NOW + second(7)
    assert steps(side, alive("a"), alive("b"), stop_by=by) == (
        StopContainer("a", second(7)),
        StopContainer("b", second(7)),
    )
    assert steps(side, ended("a"), ended("b"), stop_by=by) == (StopContainer("side", second(7)),)
    ended_sidecar = ended("side", 0, Role.SIDECAR)
    assert steps(ended_sidecar, ended("a"), ended("b"), stop_by=by) == (ReleasePod(),)
    assert steps(ContainerObservation("a"), stop_by=by) == (ReleasePod(),)


def test_a_container_that_is_starting_holds_the_release() -> None:
    assert steps(ContainerObservation("a", activity=Activity.STARTING), stop_by=NOW) == ()


def test_deadline_ends_the_pod() -> None:
    running = observed(alive(), policy="Always", start_time=NOW - second(9), deadline=second(10))
    assert plan(running).wake_after == second(1)
    late = plan(msgspec.structs.replace(running, now=NOW + second(1)))
    assert (late.termination, late.steps) == (DEADLINE_EXCEEDED, (StopContainer("main", GRACE),))
    stopped = msgspec.structs.replace(running, now=NOW + second(1), containers=(ended(code=143),))
    assert plan(stopped).steps == ()


def test_an_evicted_pod_is_not_started_again() -> None:
    assert steps(ended(code=137), policy="Always", termination=Termination("Evicted", "too large")) == ()


def test_a_pod_that_was_over_stays_over() -> None:
    assert steps(ended(code=1), policy="Always", is_finished=True) == ()
