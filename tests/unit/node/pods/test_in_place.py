"""A pod that restarts in place: it waits when its program fails, and does what its annotation asks for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.in_place import IN_PLACE_REASON, InPlaceOrder
from gangline.node.pods.plan import (
    PORT_CLASH,
    ContainerExit,
    ContainerObservation,
    ContainerRun,
    PodObservation,
    Role,
    StartContainer,
    Step,
    StopContainer,
    plan,
    pod_has_finished,
)
from gangline.node.pods.status import PodStatusContext, failed_ends, pod_phase, pod_status

NOW = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
HELD, STOP, START = InPlaceOrder(0), InPlaceOrder(1, starts=False), InPlaceOrder(1)


def running(attempt: int = 0, name: str = "main", role: Role = Role.MAIN) -> ContainerObservation:
    run = ContainerRun(attempt, id=f"{name}{attempt}", started_at=NOW)
    return ContainerObservation(name, role, runs=(run,), started=True, ready=True, init_done=True)


def ended(code: int, attempt: int = 0, name: str = "main", reason: str = "") -> ContainerObservation:
    exit_ = ContainerExit(code, NOW, reason=reason)
    run = ContainerRun(attempt, id=f"{name}{attempt}", started_at=NOW, exit=exit_)
    return ContainerObservation(name, runs=(run,))


def pod(*containers: ContainerObservation, order: InPlaceOrder | None = HELD, **more: Any) -> PodObservation:
    return msgspec.structs.replace(PodObservation(containers, NOW, "Never"), order=order, **more)


def steps(*containers: ContainerObservation, **more: Any) -> tuple[Step, ...]:
    return plan(pod(*containers, **more)).steps


def test_a_pod_whose_program_failed_waits() -> None:
    held = pod(ended(1))
    assert not pod_has_finished(held)
    assert plan(held).steps == ()
    assert pod_phase(held) == "Running"
    status = pod_status(held, PodStatusContext("default", "p", "u"))
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert pod_phase(pod(ended(1), order=None)) == "Failed"


def test_a_pod_whose_program_succeeded_does_not_wait() -> None:
    assert pod_phase(pod(ended(0))) == "Succeeded"


def test_a_pod_whose_annotation_is_withdrawn_fails() -> None:
    assert pod_has_finished(pod(ended(1, attempt=3), order=None))


@pytest.mark.parametrize("order", [STOP, START])
def test_processes_that_are_older_than_the_restart_are_stopped(order: InPlaceOrder) -> None:
    (step,) = steps(running(), order=order)
    assert isinstance(step, StopContainer)
    assert step.in_place


@pytest.mark.parametrize("code", [0, 1, 143])
def test_what_was_stopped_starts_only_when_it_may(code: int) -> None:
    stopped = ended(code, reason=IN_PLACE_REASON)
    assert steps(stopped, order=STOP) == ()
    assert pod_phase(pod(stopped, order=STOP)) == "Running"
    assert steps(stopped, order=START) == (StartContainer("main", 1, 0),)


def test_a_restart_waits_for_no_back_off() -> None:
    crashed = ContainerObservation(
        "main", runs=(ContainerRun(4, streak=4, started_at=NOW, exit=ContainerExit(1, NOW)),)
    )
    assert steps(crashed, order=InPlaceOrder(5)) == (StartContainer("main", 5, 0),)


def test_a_process_of_this_restart_is_left_alone() -> None:
    assert steps(running(attempt=1), order=START) == ()
    assert steps(ended(1, attempt=1), order=START) == ()


def test_all_containers_restart_and_sidecars_run_on() -> None:
    sidecar = running(name="proxy", role=Role.SIDECAR)
    assert steps(sidecar, ended(1, name="a"), ended(0, name="b"), order=START) == (
        StartContainer("a", 1, 0),
        StartContainer("b", 1, 0),
    )


def test_a_lost_port_ends_the_pod_all_the_same() -> None:
    clashed = pod(ended(143, reason=PORT_CLASH), order=STOP, has_controller=True)
    assert pod_phase(clashed) == "Failed"


def test_a_deletion_ends_what_runs_whatever_is_asked_for() -> None:
    (step,) = steps(running(), order=STOP, stop_by=NOW + timedelta(seconds=5))
    assert isinstance(step, StopContainer)
    assert not step.in_place


def test_only_ends_of_their_own_are_reported_as_failures() -> None:
    assert failed_ends(pod(ended(143, reason=IN_PLACE_REASON), order=STOP)) == ""
    assert "main0" in failed_ends(pod(ended(1)))
