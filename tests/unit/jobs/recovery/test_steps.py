"""What a job goes through under a recovery policy: other nodes, more memory, waits, limits."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.training import ConditionType
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.plan.recovery.question import restarts_together
from gangline.jobs.site import Site
from gangline.testing.builders import make_job
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from support.builders.observed_jobs import observed_job
from support.cases.recovery_faults import FAULTS, WorldCauses, recovery_world, start_pods, strike

EVICTION, OOM, NO_ROUTE, KILL = (FAULTS[name] for name in ("an eviction", "too much memory", "no route", "a kill"))
MEMORY_RULE = {"when": {"causes": ["memory"]}, "then": "RaiseMemory", "upTo": "20Gi"}


async def running_world(recovery: Any, **more: Any) -> World:
    world = recovery_world(recovery, **more)
    await start_pods(world)
    return world


def nodes_of(world: World) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in world.pods()}


# Elsewhere


async def test_a_bad_node_is_left_after_one_failure_and_forgiven_later() -> None:
    world = await running_world("auto")
    assert set(nodes_of(world).values()) == {"node-a"}
    await strike(world, EVICTION)
    assert set(nodes_of(world).values()) == {"node-b"}
    (excluded,) = world.job.status.recovery.excluded_nodes
    assert (excluded.name, excluded.cause) == ("node-a", "evicted")
    assert excluded.until - excluded.since == timedelta(hours=1)
    await world.pass_time(timedelta(hours=1))
    await strike(world, KILL)
    assert set(nodes_of(world).values()) == {"node-a"}
    assert [node.name for node in world.job.status.recovery.excluded_nodes] == ["node-b"]


async def test_the_status_and_an_event_say_why() -> None:
    world = await running_world("auto")
    await strike(world, EVICTION)
    message = (
        "restarted elsewhere because worker-1 (rank 2) was evicted from node-a for want of memory;"
        " node node-a is left out for 1h"
    )
    assert world.job.status.recovery.message == message
    events = {event.reason: event.message for event in world.operator.recorded_events.events}
    assert events["PyTorchJobRestarting"] == f"job bert {message}"


async def test_pods_that_wait_are_made_anew_when_their_node_is_forgiven() -> None:
    world = await running_world("auto")
    world.nodes = ("node-a",)
    await strike(world, EVICTION)
    assert set(nodes_of(world).values()) == {""}
    waiting = {pod["metadata"]["uid"] for pod in world.pods()}
    await world.pass_time(timedelta(minutes=59))
    await start_pods(world)
    # The hour begins with the decision, a minute and a half before.
    await world.pass_time(timedelta(minutes=2))
    await start_pods(world)
    assert set(nodes_of(world).values()) == {"node-a"}
    assert not waiting & {pod["metadata"]["uid"] for pod in world.pods()}
    assert world.job.status.restarts == 1


@pytest.mark.parametrize(
    ("words", "forgiven"),
    [
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", True),
        ("0/1 nodes: 1 do not match the node affinity", True),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.", False),
        ("no persistent volume", False),
    ],
)
async def test_a_node_is_used_again_at_once_if_it_is_the_only_one(words: str, forgiven: bool) -> None:
    world = await running_world("auto")
    world.nodes = ("node-a",)
    await strike(world, EVICTION)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    for pod in world.pods():
        world.server.patch("pods", pod["metadata"]["name"], {"status": {"conditions": [condition]}})
    await start_pods(world)
    assert set(nodes_of(world).values()) == {"node-a" if forgiven else ""}
    assert bool(world.job.status.recovery.excluded_nodes) is not forgiven
    events = [event.message for event in world.operator.recorded_events.events if event.reason == "NodeForgiven"]
    said = "node node-a may be used again before the time: there is no other node"
    assert events == ([said] if forgiven else [])
    assert world.job.status.restarts == 1


async def test_the_operator_does_not_wake_for_pods_that_are_going() -> None:
    world = await running_world("auto")
    world.nodes, world.server.hold_deleted_pods = ("node-a",), True
    await strike(world, EVICTION)
    await world.pass_time(timedelta(hours=3))
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods())
    assert world.alarm is None


async def test_with_scope_job_pods_that_are_made_anew_are_no_lost_pods() -> None:
    world = await running_world("auto", restartScope="Job")
    world.nodes = ("node-a",)
    await strike(world, EVICTION)
    await world.pass_time(timedelta(hours=1))
    await start_pods(world)
    assert set(nodes_of(world).values()) == {"node-a"}
    assert world.job.status.restarts == 1


async def test_on_one_machine_there_is_no_other_node() -> None:
    world = recovery_world("auto", site=Site(shared_host=True))
    await start_pods(world)
    await strike(world, EVICTION)
    assert not world.job.status.recovery.excluded_nodes
    assert world.job.status.recovery.message.endswith("there is no other node to go to")
    assert all("affinity" not in pod["spec"] for pod in world.pods())
    assert world.job.status.restarts == 1


# Memory


async def test_memory_is_raised_up_to_its_bound_and_then_the_job_fails() -> None:
    world = await running_world({"rules": [MEMORY_RULE]})
    limits = []
    for _ in range(4):
        if world.job.status.finished:
            break
        await strike(world, OOM)
        pod = world.server.find("pods", "bert-worker-0")
        assert pod is not None
        limits.append(pod["spec"]["containers"][0]["resources"])
    # Requests that were equal to the limits stay so.
    assert [entry["limits"]["memory"] for entry in limits[:3]] == ["12Gi", "18Gi", "20Gi"]
    assert [entry["requests"]["memory"] for entry in limits[:3]] == ["12Gi", "18Gi", "20Gi"]
    master = world.server.find("pods", "bert-master-0")
    assert master is not None
    assert master["spec"]["containers"][0]["resources"]["limits"]["memory"] == "8Gi"
    failed = world.job.status.condition(ConditionType.FAILED)
    assert failed.message.endswith("it has 20Gi memory already, and may get 20Gi at most")
    assert world.job.status.restarts == 3


async def test_auto_says_how_to_have_memory_raised() -> None:
    world = await running_world("auto")
    await strike(world, OOM)
    failed = world.job.status.condition(ConditionType.FAILED)
    assert failed.message == (
        "PyTorchJob bert failed because worker-1 (rank 2) was killed for using too much memory (OOMKilled);"
        " to have its memory raised, add a rule with then: RaiseMemory and upTo"
    )


# Waits and limits


async def test_retries_wait_longer_each_time_and_do_not_count_against_the_backoff_limit() -> None:
    world = await running_world("auto", backoffLimit=0)
    waits = []
    for _ in range(3):
        pod = world.server.find("pods", "bert-worker-1")
        assert pod is not None
        NO_ROUTE.strike(world, pod)
        await world.settle()
        await world.pass_time(timedelta(seconds=3))
        decided = world.clock.now()
        Kubelet(world).finish()
        await world.settle()
        waits.append(round((world.job.status.ledger.not_before - decided).total_seconds()))
        await world.pass_time(timedelta(minutes=5))
        await start_pods(world)
    assert waits == [30, 60, 120]
    assert world.job.status.restarts == 3
    assert world.job.status.recovery.uncounted == 3


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_other_restarts_count_against_the_backoff_limit(limit: int) -> None:
    world = await running_world("auto", backoffLimit=limit)
    for _ in range(limit + 1):
        await strike(world, EVICTION)
    failed = world.job.status.condition(ConditionType.FAILED)
    assert failed.message == "Job bert has failed because it has reached the specified backoff limit"
    assert world.job.status.restarts == limit


async def test_consequences_are_not_causes() -> None:
    world = await running_world("auto")
    KILL.strike(world, world.server.find("pods", "bert-worker-1") or {})
    for name in ("bert-master-0", "bert-worker-0"):
        FAULTS["a lost peer"].strike(world, world.server.find("pods", name) or {})
    await world.settle()
    await world.pass_time(timedelta(seconds=4))
    await start_pods(world)
    recovery = world.job.status.recovery
    assert (recovery.action, recovery.cause, recovery.replica) == ("RestartElsewhere", "killed", "worker-1")
    assert world.job.status.restarts == 1


async def test_the_cause_is_asked_for_once_the_decision_is_due() -> None:
    world = await running_world("auto")
    EVICTION.strike(world, world.server.find("pods", "bert-worker-1") or {})
    KILL.strike(world, world.server.find("pods", "bert-worker-0") or {})
    await world.settle()
    assert isinstance(world.causes, WorldCauses)
    assert world.causes.asked == 0
    await world.pass_time(timedelta(seconds=3))
    assert world.causes.asked == 1


async def test_kubelets_restart_nothing_where_a_policy_decides() -> None:
    world = await running_world("auto", restart="OnFailure")
    assert {pod["spec"]["restartPolicy"] for pod in world.pods()} == {"Never"}


@pytest.mark.parametrize(
    ("framework", "spec", "policy", "together"),
    [
        (PyTorch(), {}, {}, True),
        (PyTorch(), {}, {"restartScope": "Replica"}, False),
        (PyTorch(), {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}, {}, False),
        (Jax(), {}, {}, True),
        (XGBoost(), {}, {}, True),
        (Mpi(), {}, {}, True),
        (Paddle(), {}, {}, True),
        (TensorFlow(), {}, {}, False),
        (TensorFlow(), {}, {"restartScope": "Job"}, True),
    ],
)
def test_who_restarts_together(framework: Any, spec: Any, policy: Any, together: bool) -> None:
    job = make_job(framework.facts, worker=2, spec=spec, policy={"recovery": "auto", **policy})
    assert restarts_together(framework, observed_job(framework, job)) is together
