"""The status of a pod."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gangline.api.meta import JSON, Condition
from gangline.node.pods.plan import (
    Activity,
    ContainerExit,
    ContainerObservation,
    ContainerRun,
    ContainerWaiting,
    PodObservation,
    Role,
    Termination,
)
from gangline.node.pods.status import PodStatusContext, pod_phase, pod_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMED = PodStatusContext("default", "p", "u1")


def alive(name: str = "main", role: Role = Role.MAIN, *, ready: bool = True) -> ContainerObservation:
    run = ContainerRun(0, "abc", started_at=NOW - timedelta(seconds=5))
    return ContainerObservation(name, role, runs=(run,), started=True, ready=ready, init_done=True)


def ended(name: str = "main", code: int = 0, role: Role = Role.MAIN, streak: int = 0) -> ContainerObservation:
    run = ContainerRun(
        streak,
        "abc",
        streak,
        NOW - timedelta(seconds=5),
        ContainerExit(code, NOW, reason="Error" if code else ""),
    )
    return ContainerObservation(name, role, runs=(run,))


def observed(*containers: ContainerObservation, policy: str = "Never", **more: object) -> PodObservation:
    return msgspec.structs.replace(PodObservation(containers, NOW, policy, start_time=NOW), **more)


def main(pod: PodObservation, context: PodStatusContext = NAMED) -> JSON:
    status: JSON = pod_status(pod, context)["containerStatuses"][0]
    return status


@pytest.mark.parametrize(
    ("containers", "policy", "phase"),
    [
        ((ContainerObservation("main"),), "Never", "Pending"),
        ((alive(),), "Never", "Running"),
        ((alive("a"), ContainerObservation("b")), "Never", "Pending"),
        ((alive("a"), ended("b")), "Never", "Running"),
        ((ended(),), "Never", "Succeeded"),
        ((ended("a"), ended("b", 1)), "Never", "Failed"),
        ((ended(code=1),), "Always", "Running"),
        ((ended(code=1),), "OnFailure", "Running"),
        ((ended(),), "OnFailure", "Succeeded"),
        ((alive("i", Role.INIT), ContainerObservation("main")), "Never", "Pending"),
        ((ended("i", 1, Role.INIT), ContainerObservation("main")), "Never", "Failed"),
        ((ended("i", 1, Role.INIT), ContainerObservation("main")), "Always", "Pending"),
        ((alive("s", Role.SIDECAR), ended()), "Never", "Running"),
        ((ended("s", 143, Role.SIDECAR), ended()), "Never", "Succeeded"),
    ],
)
def test_phase(containers: tuple[ContainerObservation, ...], policy: str, phase: str) -> None:
    assert pod_phase(observed(*containers, policy=policy)) == phase


def test_a_deleted_pod_tells_what_became_of_it() -> None:
    assert pod_phase(observed(alive(), policy="Always", stop_by=NOW)) == "Running"
    assert pod_phase(observed(ended(code=143), policy="Always", stop_by=NOW)) == "Failed"
    assert pod_phase(observed(ContainerObservation("main", activity=Activity.STARTING), stop_by=NOW)) == "Pending"


def test_a_container_that_never_ran_is_being_created() -> None:
    assert main(observed(ContainerObservation("main")))["state"] == {"waiting": {"reason": "ContainerCreating"}}
    initial = observed(ContainerObservation("i", Role.INIT), ContainerObservation("main"))
    assert main(initial)["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_running_container() -> None:
    status = main(observed(alive()))
    assert status["state"] == {"running": {"startedAt": "2026-01-01T11:59:55Z"}}
    assert (status["ready"], status["started"], status["restartCount"]) == (True, True, 0)
    assert status["containerID"] == "process://abc"
    assert status["lastState"] == {}


def test_a_container_that_ended() -> None:
    status = main(observed(ended(code=1)))
    assert status["state"]["terminated"] == {
        "exitCode": 1,
        "reason": "Error",
        "startedAt": "2026-01-01T11:59:55Z",
        "finishedAt": "2026-01-01T12:00:00Z",
        "containerID": "process://abc",
    }
    assert (status["ready"], status["started"]) == (False, False)


def test_a_container_in_back_off_says_so_and_keeps_how_it_ended() -> None:
    status = main(observed(ended(code=1, streak=4), policy="Always"))
    assert status["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 1m20s restarting failed container=main pod=p_default(u1)",
    }
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert status["restartCount"] == 4


def test_a_container_running_again_keeps_how_it_ended_before() -> None:
    runs = (ContainerRun(0, started_at=NOW, exit=ContainerExit(7, NOW)), ContainerRun(1, started_at=NOW))
    status = main(observed(ContainerObservation("main", runs=runs, started=True)))
    assert "running" in status["state"]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["restartCount"] == 1


def test_what_is_missing_is_told() -> None:
    waiting = ContainerWaiting("CreateContainerConfigError", 'secret "s" not found', NOW)
    status = main(observed(ContainerObservation("main", waiting=waiting)))
    assert status["state"]["waiting"]["message"] == 'secret "s" not found'


def conditions(pod: PodObservation, context: PodStatusContext = NAMED) -> dict[str, JSON]:
    return {condition["type"]: condition for condition in pod_status(pod, context)["conditions"]}


def test_conditions_of_a_pod_that_is_well() -> None:
    by_type = conditions(observed(alive()))
    assert {kind: condition["status"] for kind, condition in by_type.items()} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }


def test_conditions_name_who_is_not_ready() -> None:
    by_type = conditions(observed(alive("a", ready=False), alive("b"), ContainerObservation("c")))
    assert by_type["Ready"]["reason"] == "ContainersNotReady"
    assert by_type["Ready"]["message"] == "containers with unready status: [a c]"
    waiting = conditions(observed(ContainerObservation("i", Role.INIT), ContainerObservation("main")))
    assert waiting["Initialized"]["message"] == "containers with incomplete status: [i]"


def test_a_completed_pod_is_not_ready_for_that_reason() -> None:
    by_type = conditions(observed(ended()))
    assert [by_type[condition]["reason"] for condition in ("Initialized", "Ready", "ContainersReady")] == [
        "PodCompleted"
    ] * 3


def test_transition_times_move_with_the_status_only() -> None:
    long_ago = NOW - timedelta(days=1)
    before = (
        Condition(type="Initialized", status="True", last_transition_time=long_ago),
        Condition(type="Ready", status="False", last_transition_time=long_ago),
    )
    by_type = conditions(observed(alive()), msgspec.structs.replace(NAMED, previous_conditions=before))
    assert by_type["Initialized"]["lastTransitionTime"] == "2025-12-31T12:00:00Z"
    assert by_type["Ready"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_readiness_gates_hold_a_pod_back() -> None:
    gated = msgspec.structs.replace(NAMED, readiness_gates=("example.com/gate",))
    assert conditions(observed(alive()), gated)["Ready"]["reason"] == "ReadinessGatesNotReady"
    passed = msgspec.structs.replace(gated, previous_conditions=(Condition(type="example.com/gate", status="True"),))
    assert conditions(observed(alive()), passed)["Ready"]["status"] == "True"


def test_why_the_node_ended_it_is_told() -> None:
    status = pod_status(observed(ended(code=137), termination=Termination("Evicted", "too large")), NAMED)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "too large")
