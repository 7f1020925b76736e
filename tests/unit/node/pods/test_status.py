"""What the API is told about a pod."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gangline.api.meta import JSON, Condition
from gangline.node.pods.plan import Activity, Doom, Ended, Observed, Role, Run, Seen, Waiting
from gangline.node.pods.status import Named, pod_phase, pod_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMED = Named("default", "p", "u1")


def alive(name: str = "main", role: Role = Role.MAIN, *, ready: bool = True) -> Seen:
    run = Run(0, "abc", started=NOW - timedelta(seconds=5))
    return Seen(name, role, runs=(run,), started=True, ready=ready, passed=True)


def ended(name: str = "main", code: int = 0, role: Role = Role.MAIN, streak: int = 0) -> Seen:
    run = Run(
        streak, "abc", streak, NOW - timedelta(seconds=5), Ended(code, NOW, reason="Error" if code else "")
    )
    return Seen(name, role, runs=(run,))


def observed(*containers: Seen, policy: str = "Never", **more: object) -> Observed:
    return msgspec.structs.replace(Observed(containers, NOW, policy, since=NOW), **more)


def main(seen: Observed, named: Named = NAMED) -> JSON:
    found: JSON = pod_status(seen, named)["containerStatuses"][0]
    return found


@pytest.mark.parametrize(
    ("containers", "policy", "phase"),
    [
        ((Seen("main"),), "Never", "Pending"),
        ((alive(),), "Never", "Running"),
        ((alive("a"), Seen("b")), "Never", "Pending"),
        ((alive("a"), ended("b")), "Never", "Running"),
        ((ended(),), "Never", "Succeeded"),
        ((ended("a"), ended("b", 1)), "Never", "Failed"),
        ((ended(code=1),), "Always", "Running"),
        ((ended(code=1),), "OnFailure", "Running"),
        ((ended(),), "OnFailure", "Succeeded"),
        ((alive("i", Role.INIT), Seen("main")), "Never", "Pending"),
        ((ended("i", 1, Role.INIT), Seen("main")), "Never", "Failed"),
        ((ended("i", 1, Role.INIT), Seen("main")), "Always", "Pending"),
        ((alive("s", Role.SIDECAR), ended()), "Never", "Running"),
        ((ended("s", 143, Role.SIDECAR), ended()), "Never", "Succeeded"),
    ],
)
def test_phase(containers: tuple[Seen, ...], policy: str, phase: str) -> None:
    assert pod_phase(observed(*containers, policy=policy)) == phase


def test_a_deleted_pod_tells_what_became_of_it() -> None:
    assert pod_phase(observed(alive(), policy="Always", stop_by=NOW)) == "Running"
    assert pod_phase(observed(ended(code=143), policy="Always", stop_by=NOW)) == "Failed"
    assert pod_phase(observed(Seen("main", activity=Activity.STARTING), stop_by=NOW)) == "Pending"


def test_a_container_that_never_ran_is_being_created() -> None:
    assert main(observed(Seen("main")))["state"] == {"waiting": {"reason": "ContainerCreating"}}
    initial = observed(Seen("i", Role.INIT), Seen("main"))
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
    runs = (Run(0, started=NOW, ended=Ended(7, NOW)), Run(1, started=NOW))
    status = main(observed(Seen("main", runs=runs, started=True)))
    assert "running" in status["state"]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["restartCount"] == 1


def test_what_is_missing_is_told() -> None:
    waiting = Waiting("CreateContainerConfigError", 'secret "s" not found', NOW)
    status = main(observed(Seen("main", waiting=waiting)))
    assert status["state"]["waiting"]["message"] == 'secret "s" not found'


def conditions(seen: Observed, named: Named = NAMED) -> dict[str, JSON]:
    return {each["type"]: each for each in pod_status(seen, named)["conditions"]}


def test_conditions_of_a_pod_that_is_well() -> None:
    found = conditions(observed(alive()))
    assert {kind: each["status"] for kind, each in found.items()} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }


def test_conditions_name_who_is_not_ready() -> None:
    found = conditions(observed(alive("a", ready=False), alive("b"), Seen("c")))
    assert found["Ready"]["reason"] == "ContainersNotReady"
    assert found["Ready"]["message"] == "containers with unready status: [a c]"
    waiting = conditions(observed(Seen("i", Role.INIT), Seen("main")))
    assert waiting["Initialized"]["message"] == "containers with incomplete status: [i]"


def test_a_completed_pod_is_not_ready_for_that_reason() -> None:
    found = conditions(observed(ended()))
    assert [found[each]["reason"] for each in ("Initialized", "Ready", "ContainersReady")] == [
        "PodCompleted"
    ] * 3


def test_transition_times_move_with_the_status_only() -> None:
    long_ago = NOW - timedelta(days=1)
    before = (
        Condition(type="Initialized", status="True", last_transition_time=long_ago),
        Condition(type="Ready", status="False", last_transition_time=long_ago),
    )
    found = conditions(observed(alive()), msgspec.structs.replace(NAMED, before=before))
    assert found["Initialized"]["lastTransitionTime"] == "2025-12-31T12:00:00Z"
    assert found["Ready"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_readiness_gates_hold_a_pod_back() -> None:
    gated = msgspec.structs.replace(NAMED, gates=("example.com/gate",))
    assert conditions(observed(alive()), gated)["Ready"]["reason"] == "ReadinessGatesNotReady"
    passed = msgspec.structs.replace(gated, before=(Condition(type="example.com/gate", status="True"),))
    assert conditions(observed(alive()), passed)["Ready"]["status"] == "True"


def test_why_the_node_ended_it_is_told() -> None:
    status = pod_status(observed(ended(code=137), doom=Doom("Evicted", "too large")), NAMED)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "too large")
