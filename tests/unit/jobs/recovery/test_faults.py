"""Faults by policies, through the whole engine: what the cause decides, and what happens without a policy."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.training import ConditionType
from gangline.jobs.plan.recovery.classes import CauseClass
from gangline.jobs.plan.recovery.policy import DEFAULT_LIMIT, DEFAULT_RETRY_LIMIT
from support.cases.recovery_faults import FAULTS, RecoveryFault, recovery_world, start_pods, strike

RESTARTING = (CauseClass.INFRASTRUCTURE, CauseClass.NETWORK, CauseClass.STORAGE)
"""The classes after which `auto` restarts a job."""


async def struck_world(fault: RecoveryFault, recovery: Any, **more: Any) -> Any:
    world = recovery_world(recovery, **more)
    await start_pods(world)
    await strike(world, fault)
    return world


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_auto_restarts_after_infrastructure_and_never_after_a_bug(fault: RecoveryFault) -> None:
    world = await struck_world(fault, "auto")
    status = world.job.status
    assert status.recovery.cause == fault.rule
    restarts = fault.kind in RESTARTING
    assert status.holds(ConditionType.FAILED) is not restarts
    assert status.restarts == int(restarts)
    expected = {CauseClass.INFRASTRUCTURE: "RestartElsewhere", CauseClass.NETWORK: "Retry", CauseClass.STORAGE: "Retry"}
    assert status.recovery.action == expected.get(fault.kind, "Fail")
    assert " because " in status.recovery.message
    assert status.recovery.replica == "worker-1"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("restart", ["Never", "ExitCode"])
async def test_without_the_field_restart_policy_decides_as_in_v1(fault: RecoveryFault, restart: str) -> None:
    world = await struck_world(fault, None, restart=restart)
    status = world.job.status
    is_retried = restart == "ExitCode" and (fault.code is None or fault.code >= 128)
    assert status.holds(ConditionType.FAILED) is not is_retried
    assert status.recovery is None
    assert world.causes.asked == 0
    for pod in world.pods():
        assert "affinity" not in pod["spec"]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("action", ["Fail", "Stop", "RestartReplica", "RestartJob", "RestartElsewhere", "Retry"])
async def test_a_rule_for_the_cause_decides(fault: RecoveryFault, action: str) -> None:
    policy = {"rules": [{"when": {"causes": [fault.rule]}, "then": action}]}
    world = await struck_world(fault, policy)
    status = world.job.status
    is_final = action in ("Fail", "Stop")
    assert status.recovery.action == action
    assert status.holds(ConditionType.FAILED) is is_final
    if is_final:
        # Stop deletes all pods, and Fail those that cleanPodPolicy says: none.
        assert len(world.pods()) == (0 if action == "Stop" else 3)
        return
    assert len(world.pods()) == 3
    assert status.restarts == 1
    whole_team = action != "RestartReplica"
    assert status.ledger.round == int(whole_team)
    excluded = [node.name for node in status.recovery.excluded_nodes]
    assert excluded == (["node-a"] if action == "RestartElsewhere" else [])


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_rule_for_another_cause_leaves_it_to_restart_policy(fault: RecoveryFault) -> None:
    other = "oom-killed" if fault.rule != "oom-killed" else "evicted"
    policy = {"rules": [{"when": {"causes": [other]}, "then": "RestartJob"}]}
    world = await struck_world(fault, policy)
    assert world.job.status.holds(ConditionType.FAILED)
    assert world.job.status.recovery is None


@pytest.mark.parametrize("fault", [fault for fault in FAULTS.values() if fault.kind in RESTARTING])
async def test_no_fault_is_restarted_without_end(fault: RecoveryFault) -> None:
    world = await struck_world(fault, "auto")
    limit = DEFAULT_LIMIT if fault.kind is CauseClass.INFRASTRUCTURE else DEFAULT_RETRY_LIMIT
    for _ in range(3 * limit):
        if world.job.status.finished:
            break
        await world.pass_time(timedelta(minutes=11))
        await start_pods(world)
        name = "bert-worker-1"
        if world.server.find("pods", name)["status"]["phase"] == "Running":
            await strike(world, fault, name)
        else:
            await world.pass_time(timedelta(hours=1))
            await start_pods(world)
    status = world.job.status
    assert status.holds(ConditionType.FAILED)
    assert status.restarts == limit
    assert "which is the limit" in status.condition(ConditionType.FAILED).message
