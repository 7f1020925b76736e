"""Restarts in place in any history: no process meets one of an earlier team, and every history comes to rest."""

import asyncio
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.kubeflow.training import ConditionType
from gangline.jobs.site import Site
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from support.cases.in_place_world import CLUSTER, OWN_NODE, end, obey, order_of, program, running_team
from support.cases.recovery_faults import start_pods
from support.property.job_histories import example_count

NAMES = ("bert-master-0", "bert-worker-0", "bert-worker-1")
# Only whole teams restart here: the rule of replicas that restart alone has no such promise.
POLICY = {
    "inPlace": True,
    "rules": [
        {"when": {"exitCodes": [42]}, "then": "RestartJob", "limit": 100},
        {"when": {"exitCodes": [46]}, "then": "Retry", "delay": "20s", "scope": "Job", "limit": 100},
        {"when": {"exitCodes": [45]}, "then": "RestartElsewhere", "scope": "Job", "limit": 100},
    ],
    "otherwise": "auto",
}
OBEY = st.tuples(st.just("obey"), st.sets(st.sampled_from(NAMES), min_size=1).map(sorted))
STEPS = st.one_of(
    OBEY,
    OBEY,
    OBEY,
    OBEY,
    st.tuples(st.just("fail"), st.sampled_from(NAMES), st.sampled_from([42, 42, 42, 45, 46])),
    st.tuples(st.just("wait"), st.sampled_from([1, 4, 30, 100])),
    st.tuples(st.just("crash")),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("new pods")),
)


def is_running(pod: Any) -> bool:
    return pod["status"]["phase"] == "Running" and "running" in program(pod).get("state", {})


def check_teams(world: World) -> None:
    """All processes that run belong to the same start of the same round."""
    running = [pod for pod in world.pods() if is_running(pod) and "deletionTimestamp" not in pod["metadata"]]
    starts = {program(pod)["restartCount"] for pod in running}
    assert len(starts) <= 1, {pod["metadata"]["name"]: program(pod)["restartCount"] for pod in running}


def is_at_rest(world: World) -> bool:
    """Whether the team runs, complete and together, and no restart is under way."""
    status, pods = world.job.status, world.pods()
    settled = status.holds(ConditionType.RUNNING) and status.ledger.restarting_in_place is None
    together = len(pods) == len(NAMES) and len({str(order_of(pod)) for pod in pods}) == 1
    return settled and together and all(is_running(pod) for pod in pods)


async def take(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("fail", name, code):
            pod = world.server.find("pods", name)
            if pod is not None and is_running(pod):
                end(world, name, code)
        case ("obey", names):
            for name in names:
                obey(world, name)
                check_teams(world)
        case ("wait", seconds):
            await world.pass_time(timedelta(seconds=seconds))
        case ("crash",):
            world.crash()
        case ("lose", name):
            pod = world.server.find("pods", name)
            if pod is not None and pod["status"]["phase"] == "Running":
                world.server.patch("pods", name, {"status": {"phase": "Failed", "reason": "Evicted"}})
        case ("new pods",):
            await start_pods(world)
    await world.settle()
    check_teams(world)


async def play(site: Site, steps: list[tuple[Any, ...]]) -> None:
    world = await running_team(POLICY, site)
    restarts = 0
    # Each history begins with a restart in place.
    for step in (("fail", NAMES[2], 42), ("wait", 4), *steps):
        await take(world, step)
        status = world.job.status
        assert status.restarts >= restarts
        restarts = status.restarts
        if status.finished:
            return
    for _ in range(12):
        if is_at_rest(world):
            break
        await world.pass_time(timedelta(minutes=6))
        for _ in range(3):
            obey(world)
            check_teams(world)
            await world.settle()
        Kubelet(world).finish()
        await start_pods(world)
        if world.job.status.finished:
            return
    assert is_at_rest(world), (world.job.status, world.pods())


@settings(max_examples=example_count(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([OWN_NODE, CLUSTER]), st.lists(STEPS, min_size=3, max_size=12))
def test_no_process_meets_one_of_an_earlier_team(site: Site, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(site, steps))
