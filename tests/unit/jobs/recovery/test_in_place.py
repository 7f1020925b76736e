"""Restart in place: when it may be, in which order, and what happens when it does not succeed."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_ANNOTATION, InPlaceOrder, in_place_order
from gangline.api.kubeflow.training import ConditionType
from gangline.jobs.pods.in_place_containers import GATE_CONTAINER
from gangline.jobs.site import Site
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from support.cases.in_place_world import (
    CLUSTER,
    OWN_NODE,
    POLICY,
    RULES,
    decide,
    end,
    in_place_world,
    obey,
    order_of,
    program,
    restart,
    running_team,
    uids,
)
from support.cases.recovery_faults import start_pods

SITES = pytest.mark.parametrize("site", [OWN_NODE, CLUSTER], ids=["own node", "cluster"])


def orders(world: World) -> dict[str, str]:
    return {pod["metadata"]["name"]: str(order_of(pod)) for pod in world.pods()}


def events(world: World) -> dict[str, str]:
    return {event.reason: event.message for event in world.operator.recorded_events.events}


# The order of things


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("0", InPlaceOrder(0)),
        ("3 stop", InPlaceOrder(3, starts=False)),
        ("3", InPlaceOrder(3)),
        ("", None),
        ("-1", None),
        ("3 go", None),
        ("x", None),
    ],
)
def test_orders_are_read_as_they_are_written(text: str, order: InPlaceOrder | None) -> None:
    assert in_place_order({IN_PLACE_ANNOTATION: text}) == order
    if order is not None:
        assert str(order) == text
    assert in_place_order({}) is None


@SITES
async def test_all_stop_before_the_first_one_starts(site: Site) -> None:
    world = await running_team(site=site)
    before = uids(world)
    assert set(orders(world).values()) == {"0"}
    end(world, "bert-worker-1", 42)
    await decide(world)
    assert set(orders(world).values()) == {"1 stop"}
    assert world.job.status.holds(ConditionType.RESTARTING)
    obey(world, "bert-master-0", "bert-worker-1")
    await world.settle()
    assert set(orders(world).values()) == {"1 stop"}, "worker-0 of the old team still runs"
    obey(world, "bert-worker-0")
    await world.settle()
    assert set(orders(world).values()) == {"1"}
    obey(world, "bert-master-0", "bert-worker-0")
    await world.settle()
    assert world.job.status.holds(ConditionType.RESTARTING)
    obey(world, "bert-worker-1")
    await world.settle()
    status = world.job.status
    assert status.holds(ConditionType.RUNNING)
    assert uids(world) == before
    assert {program(pod)["restartCount"] for pod in world.pods()} == {1}
    assert (status.restarts, status.ledger.round, status.ledger.in_place) == (1, 0, 0)
    assert status.ledger.restarting_in_place is None
    assert status.first_failure.replica == "worker-1"
    assert (
        status.recovery.message
        == "restarted in place because worker-1 (rank 2) ended with exit code 42 (the program's own code)"
    )
    assert "all 3 replicas run again in the same pods" in events(world)["RestartedInPlace"]
    assert events(world)["PyTorchJobRestarting"] == f"job bert {status.recovery.message}"


@SITES
async def test_a_second_failure_is_a_second_restart(site: Site) -> None:
    world = await running_team(site=site)
    before = uids(world)
    for name, number in (("bert-worker-1", 1), ("bert-worker-0", 2)):
        end(world, name, 42)
        await decide(world)
        # The second restart in a row waits.
        await world.pass_time(timedelta(seconds=11))
        await restart(world)
        assert (world.job.status.restarts, set(orders(world).values())) == (number, {str(number)})
        assert world.job.status.first_failure.pod == name
    assert uids(world) == before


async def test_one_replica_alone() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 43)
    await decide(world)
    await restart(world)
    status = world.job.status
    assert orders(world) == {"bert-master-0": "0", "bert-worker-0": "0", "bert-worker-1": "1"}
    assert uids(world) == before
    assert (status.restarts, status.ledger.round) == (1, 0)
    assert (
        status.recovery.message
        == "restarted worker-1 in place because worker-1 (rank 2) ended with exit code 43 (the program's own code)"
    )
    assert status.holds(ConditionType.RUNNING)


async def test_a_retry_stops_at_once_and_starts_later() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 46)
    await decide(world)
    await restart(world)
    assert set(orders(world).values()) == {"1 stop"}
    await world.pass_time(timedelta(seconds=80))
    assert set(orders(world).values()) == {"1 stop"}
    await world.pass_time(timedelta(seconds=11))
    await restart(world)
    assert set(orders(world).values()) == {"1"}
    assert uids(world) == before
    assert "waits 1m30s before it starts again in place" in world.job.status.recovery.message


async def test_an_operator_that_dies_goes_on_where_it_was() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 42)
    await decide(world)
    for _ in range(4):
        world.crash()
        await world.settle()
        obey(world)
        await world.settle()
    assert uids(world) == before
    assert (world.job.status.restarts, world.job.status.ledger.restarting_in_place) == (1, None)


# When it may not be


@pytest.mark.parametrize("policy", [None, "auto", {"rules": RULES}, {"inPlace": False, "rules": RULES}])
async def test_without_the_field_no_pod_is_changed(policy: Any) -> None:
    world = in_place_world("auto" if policy is None else policy, CLUSTER)
    await start_pods(world)
    for pod in world.pods():
        assert order_of(pod) is None
        assert [container["name"] for container in pod["spec"]["containers"]] == ["pytorch"]
        assert "initContainers" not in pod["spec"]


async def test_where_nobody_offers_it_the_replicas_get_new_pods_and_the_status_says_why() -> None:
    world = await running_team(site=Site())
    before = uids(world)
    assert set(orders(world).values()) == {"None"}
    Kubelet(world).fail(world.server.find("pods", "bert-worker-1") or {}, 42)
    await decide(world)
    await start_pods(world)
    status = world.job.status
    assert not set(before.values()) & set(uids(world).values())
    assert (status.restarts, status.ledger.round) == (1, 1)
    assert status.recovery.message.endswith("; with new pods, because this cluster does not restart pods in place")


@pytest.mark.parametrize(
    ("code", "words"), [(44, "restarted with 12Gi memory"), (45, "restarted elsewhere")], ids=["memory", "node"]
)
async def test_more_memory_or_another_node_is_another_pod(code: int, words: str) -> None:
    world = await running_team(site=CLUSTER)
    before = uids(world)
    end(world, "bert-worker-1", code)
    await decide(world)
    await start_pods(world)
    assert not set(before.values()) & set(uids(world).values())
    assert words in world.job.status.recovery.message
    assert "in place" not in world.job.status.recovery.message


async def test_a_pod_on_a_node_that_is_being_drained_does_not_stay() -> None:
    world = await running_team(site=CLUSTER)
    before = uids(world)
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    world.server.patch("pods", "bert-master-0", {"status": {"conditions": [disrupted]}})
    end(world, "bert-worker-1", 42)
    await decide(world)
    await start_pods(world)
    assert not set(before.values()) & set(uids(world).values())
    assert "with new pods, because node node-a of master-0 is to be left" in world.job.status.recovery.message


async def test_a_peer_that_has_succeeded_is_not_started_again_in_its_pod() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-0", 0)
    end(world, "bert-worker-1", 42)
    await decide(world)
    await start_pods(world)
    assert not set(before.values()) & set(uids(world).values())
    assert "with new pods, because the pod of worker-0 has ended" in world.job.status.recovery.message


async def test_a_success_in_a_cluster_is_let_go_at_once() -> None:
    world = await running_team(site=CLUSTER)
    end(world, "bert-worker-0", 0)
    await world.settle()
    assert orders(world)["bert-worker-0"] == "None"
    assert world.job.status.replica_statuses["Worker"].succeeded == 1


# When it does not succeed


async def test_a_restart_that_takes_too_long_ends_with_new_pods_and_is_counted_once() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 42)
    await decide(world)
    obey(world, "bert-master-0", "bert-worker-1")
    await world.settle()
    await world.pass_time(timedelta(seconds=120))
    await start_pods(world)
    status = world.job.status
    assert not set(before.values()) & set(uids(world).values())
    assert (status.restarts, status.ledger.round, status.ledger.restarting_in_place) == (1, 1, None)
    assert events(world)["InPlaceRestartFailed"] == (
        "job bert gets new pods, because its restart in place failed: master-0 has not restarted in time"
    )
    assert status.holds(ConditionType.RUNNING)


async def test_a_pod_that_is_lost_meanwhile_gives_all_new_pods() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 42)
    await decide(world)
    world.server.remove("pods", "bert-worker-0")
    await world.settle()
    await start_pods(world)
    assert not set(before.values()) & set(uids(world).values())
    assert world.job.status.restarts == 1
    assert "worker-0 has lost its pod" in events(world)["InPlaceRestartFailed"]


async def test_a_replica_whose_pod_ends_meanwhile_gets_a_new_one() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 43)
    await decide(world)
    world.server.patch("pods", "bert-worker-1", {"status": {"phase": "Failed", "reason": "Evicted"}})
    await world.settle()
    await start_pods(world)
    changed = [name for name, uid in uids(world).items() if before[name] != uid]
    assert changed == ["bert-worker-1"]
    assert world.job.status.restarts == 1


async def test_a_replica_that_succeeds_before_the_last_one_starts_is_no_loss() -> None:
    world = await running_team()
    before = uids(world)
    end(world, "bert-worker-1", 42)
    await decide(world)
    for names in (("bert-master-0", "bert-worker-0", "bert-worker-1"), ("bert-worker-0",)):
        obey(world, *names)
        await world.settle()
    end(world, "bert-worker-0", 0)
    await world.settle()
    await restart(world)
    assert uids(world) == before
    assert world.job.status.ledger.restarting_in_place is None
    assert "InPlaceRestartFailed" not in events(world)


# The end of the job


@SITES
async def test_a_failed_job_lets_its_pods_fail(site: Site) -> None:
    world = await running_team(site=site, cleanPodPolicy="None")
    end(world, "bert-worker-1", 1)
    await decide(world)
    await restart(world)
    assert world.job.status.holds(ConditionType.FAILED)
    pod = world.server.find("pods", "bert-worker-1")
    assert pod is not None
    assert pod["status"]["phase"] == "Failed"
    assert world.job.status.restarts == 0
    # The others run on, as in v1, and end when they end.
    assert orders(world)["bert-worker-0"] == "None"
    end(world, "bert-worker-0", 1)
    await world.settle()
    assert (world.server.find("pods", "bert-worker-0") or {})["status"]["phase"] == "Failed"


async def test_a_suspension_forgets_the_restart() -> None:
    world = await running_team()
    end(world, "bert-worker-1", 42)
    await decide(world)
    world.server.patch(world.plural, "bert", {"spec": {"runPolicy": {"suspend": True}}})
    await world.settle()
    assert world.job.status.ledger.restarting_in_place is None
    Kubelet(world).finish()
    assert not world.pods()


async def test_the_backoff_limit_holds() -> None:
    world = await running_team(backoffLimit=1)
    end(world, "bert-worker-1", 42)
    await decide(world)
    await restart(world)
    assert world.job.status.holds(ConditionType.RUNNING)
    end(world, "bert-worker-1", 42)
    await decide(world)
    assert world.job.status.holds(ConditionType.FAILED)
    assert world.job.status.restarts == 1


# What Kubernetes gets


async def test_pods_of_a_cluster_get_the_containers_that_hold_and_release_them() -> None:
    world = await running_team(site=CLUSTER)
    for pod in world.pods():
        gate = pod["spec"]["initContainers"][0]
        program_container, hold = pod["spec"]["containers"]
        assert (gate["name"], hold["name"], program_container["name"]) == (GATE_CONTAINER, HOLD_CONTAINER, "pytorch")
        assert {gate["image"], hold["image"]} == {"gangline:1"}
        assert hold["restartPolicyRules"][0]["action"] == "RestartAllContainers"
        assert "restartPolicyRules" not in program_container
        assert pod["spec"]["restartPolicy"] == "Never"
        compile(gate["command"][-1], "gate", "exec")
        compile(hold["command"][-1], "hold", "exec")


def test_the_policy_says_what_is_wrong_with_the_field() -> None:
    from gangline.jobs.plan.recovery.policy import parse_recovery

    policy, found = parse_recovery(POLICY)
    assert policy is not None
    assert policy.in_place
    assert not found
    _, found = parse_recovery({**POLICY, "inPlace": "yes"})
    assert [str(problem) for problem in found] == ['spec.runPolicy.recovery.inPlace: is "yes"; write true or false']
