"""A job that hangs: what a policy does about it."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.training import ConditionType
from gangline.jobs.plan.stall import HangVerdict, Stall
from gangline.testing.world.world import World
from support.cases.recovery_faults import recovery_world, start_pods

SENTENCE = "2 of 3 ranks wait in all_reduce (train.py:88); worker-1 (rank 2) reads data (data.py:31)"


async def hanging_world(recovery: Any, *replicas: str, **more: Any) -> World:
    world = recovery_world(recovery, **more)
    await start_pods(world)
    await world.pass_time(timedelta(minutes=10))
    await hang(world, *replicas)
    return world


async def hang(world: World, *replicas: str, since: timedelta = timedelta(minutes=2)) -> None:
    """Let the watcher say that the job is stalled, and go on saying so."""
    verdict = HangVerdict(Stall(world.clock.now() - since, "RankStands", SENTENCE, replicas))
    world.incidents += 1
    world.operator.reconciler._observe._hang_verdicts = lambda uid: verdict
    await world.look()
    await start_pods(world)


async def test_auto_restarts_once_and_then_stops() -> None:
    world = await hanging_world("auto", "worker-1")
    status = world.job.status
    assert (status.restarts, status.ledger.round) == (1, 1)
    assert status.recovery.message == f"restarted as a whole because it hangs: {SENTENCE}"
    assert (status.recovery.cause, status.recovery.replica) == ("stalled", "worker-1")
    assert (status.first_failure.reason, status.first_failure.replica) == ("Stalled", "worker-1")
    assert status.holds(ConditionType.RUNNING)
    # The same verdict is of the round before, and does nothing.
    await world.look()
    assert world.job.status.restarts == 1
    await world.pass_time(timedelta(minutes=10))
    await hang(world, "worker-1")
    status = world.job.status
    assert status.holds(ConditionType.FAILED)
    assert status.recovery.action == "Stop"
    assert not world.pods()


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
async def test_without_the_field_a_stalled_job_is_left_alone(restart: str) -> None:
    world = await hanging_world(None, "worker-1", restart=restart)
    assert world.job.status.restarts == 0
    assert world.job.status.holds(ConditionType.STALLED)
    assert len(world.pods()) == 3


async def test_a_rule_stops_it() -> None:
    world = await hanging_world({"rules": [{"when": {"causes": ["stalled"]}, "then": "Stop"}]})
    assert (
        world.job.status.condition(ConditionType.FAILED).message
        == f"PyTorchJob bert stopped because it hangs: {SENTENCE}"
    )
    assert not world.pods()


async def test_one_rank_that_stands_is_moved_to_another_node() -> None:
    rule = {"when": {"causes": ["hang"]}, "then": "RestartElsewhere", "scope": "Replica"}
    world = recovery_world({"rules": [rule]})
    await start_pods(world)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
    await world.pass_time(timedelta(minutes=10))
    # It runs, so that it is no failed pod in the sense of the invariants.
    world.failures[before["bert-worker-1"]] = "bert-worker-1"
    await hang(world, "worker-1")
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
    assert [name for name in before if before[name] != after[name]] == ["bert-worker-1"]
    assert world.server.find("pods", "bert-worker-1")["spec"]["nodeName"] == "node-b"  # type: ignore[index]


async def test_where_all_stand_alike_no_node_is_blamed() -> None:
    world = await hanging_world({"rules": [{"when": {"causes": ["hang"]}, "then": "RestartElsewhere"}]})
    assert not world.job.status.recovery.excluded_nodes
    assert world.job.status.recovery.message.endswith("no node can be blamed")


async def test_a_verdict_about_pods_that_were_replaced_is_no_question() -> None:
    world = recovery_world("auto")
    await start_pods(world)
    await hang(world, "worker-1", since=timedelta(minutes=2))
    assert world.job.status.restarts == 0
