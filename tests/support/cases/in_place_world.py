"""A `World` whose node restarts pods in place, as our own node does it or as a kubelet with `gangline-hold` does."""

from datetime import timedelta
from typing import Any

from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_REASON, InPlaceOrder, in_place_order
from gangline.api.meta import JSON
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.site import Site
from gangline.testing.world.world import World
from support.cases.recovery_faults import NODES, WorldCauses, recovery_world, start_pods

OWN_NODE = Site(shared_host=True, restarts_in_place=True)
CLUSTER = Site(restarts_in_place=True, in_place_image="gangline:1")
RULES: list[JSON] = [
    {"when": {"exitCodes": [42]}, "then": "RestartJob"},
    {"when": {"exitCodes": [43]}, "then": "RestartReplica"},
    {"when": {"exitCodes": [44]}, "then": "RaiseMemory", "upTo": "64Gi"},
    {"when": {"exitCodes": [45]}, "then": "RestartElsewhere"},
    {"when": {"exitCodes": [46]}, "then": "Retry", "delay": "90s", "scope": "Job"},
]
POLICY: JSON = {"inPlace": True, "rules": RULES, "otherwise": "Fail"}
CONTAINER = PyTorch().facts.container


def in_place_world(policy: Any = None, site: Site = OWN_NODE, **more: Any) -> World:
    """A world without judge: the usual one knows restarts by new pods only."""
    causes = WorldCauses()
    body = recovery_world(POLICY if policy is None else policy, site=site, **more).manifest
    world = World(PyTorch(), body, site, nodes=NODES, causes=causes)
    causes.world = world
    return world


async def running_team(policy: Any = None, site: Site = OWN_NODE, **more: Any) -> World:
    world = in_place_world(policy, site, **more)
    await start_pods(world)
    return world


def order_of(pod: JSON) -> InPlaceOrder | None:
    return in_place_order(pod["metadata"].get("annotations") or {})


def uids(world: World) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}


def program(pod: JSON) -> JSON:
    """The status of the container that trains."""
    statuses: list[JSON] = pod["status"].get("containerStatuses") or [{}]
    return statuses[0]


def write(world: World, pod: JSON, status: JSON, phase: str = "Running") -> None:
    statuses = [{"name": CONTAINER, **status}]
    if world.site.in_place_image:
        statuses.append({"name": HOLD_CONTAINER, "restartCount": status["restartCount"], "state": {"running": {}}})
    world.server.patch("pods", pod["metadata"]["name"], {"status": {"phase": phase, "containerStatuses": statuses}})


def end(world: World, name: str, code: int, log: tuple[str, ...] = ()) -> None:
    """Let the program of a running pod end."""
    pod = world.server.find("pods", name)
    assert pod is not None
    world.logs[pod["metadata"]["uid"]] = log
    state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": world.server.timestamp()}}
    restarts = program(pod).get("restartCount", 0)
    holds = order_of(pod) is not None and (code or world.site.in_place_image)
    phase = "Running" if holds else "Failed" if code else "Succeeded"
    write(world, pod, {"restartCount": restarts, "state": state}, phase)


def obey(world: World, *names: str) -> None:
    """Let the nodes do what the annotations of these pods, or of all, ask for: one step."""
    for pod in world.pods():
        if names and pod["metadata"]["name"] not in names:
            continue
        order, status = order_of(pod), program(pod)
        restarts = status.get("restartCount", 0)
        ended = status.get("state", {}).get("terminated")
        if order is None:
            if ended is not None and pod["status"]["phase"] == "Running":
                phase = "Failed" if ended["exitCode"] else "Succeeded"
                write(world, pod, {"restartCount": restarts, "state": {"terminated": ended}}, phase)
        elif restarts < order.number:
            if ended is None:
                state = {"exitCode": 143, "reason": IN_PLACE_REASON, "finishedAt": world.server.timestamp()}
                write(world, pod, {"restartCount": restarts, "state": {"terminated": state}})
            elif order.starts:
                running = {"running": {"startedAt": world.server.timestamp()}}
                write(world, pod, {"restartCount": order.number, "state": running, "lastState": {"terminated": ended}})


async def decide(world: World) -> None:
    """Let the operator see what happened, and the time pass in which a decision waits."""
    await world.settle()
    await world.pass_time(timedelta(seconds=4))
    await world.settle()


async def restart(world: World) -> None:
    """Let nodes and operator do their parts until nothing is left to do."""
    for _ in range(4):
        obey(world)
        await world.settle()
