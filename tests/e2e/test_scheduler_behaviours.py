"""The scheduler's promises on the embedded node, with real processes: the life cycle, races and faults.

The same promises are kept on a real kube-apiserver with made-up nodes in tests/contract/test_scheduler.py.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Node
from gangline.api.core import Pod as WholePod
from gangline.api.meta import Key, Selector
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.local.cluster import LocalSettings, local_cluster
from gangline.node.options import node_settings as node_settings
from gangline.operator.scheduler_process import SchedulerProcess, SchedulerProcessSettings
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.leader_election import LeaseSettings
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import SchedulerSettings
from support.cluster.scheduler_env import (
    FAST_INTERVALS,
    WAIT_SECONDS,
    InterceptedTransport,
    SchedulerEnv,
    error_response,
    is_binding,
    scheduler_env,
)
from support.waiting import wait_until

CLOCK = SystemClock()
SLEEP = "exec sleep 600"
# Long, for a busy machine; who stops gives it back, so nobody waits for its end.
LEASE = LeaseSettings(
    lease=timedelta(seconds=40), renew_deadline=timedelta(seconds=30), retry=timedelta(milliseconds=50)
)


class Machine(SchedulerEnv):
    """A town on one node of which pods are processes."""

    async def run(self, name: str, group: str = "", *, script: str = SLEEP, cpu: str = "1", **rest: Any) -> Pod:
        """A pod that runs a script of the shell, once."""
        container = {
            "name": "main",
            "image": "none",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": cpu}},
        }
        spec = {"containers": [container], "nodeSelector": {}, "restartPolicy": "Never", **rest}
        return await self.create_pod(name, group, **spec)

    async def team(self, name: str, size: int, **spec: Any) -> list[str]:
        """A group and its pods."""
        await self.create_group(name, size, **spec)
        for number in range(size):
            await self.member(name, number)
        return [f"{name}-{number}" for number in range(size)]

    async def member(self, group: str, number: int, **rest: Any) -> None:
        await self.run(f"{group}-{number}", group, role="worker", index=number, **rest)

    async def runs(self, *names: str) -> None:
        """Return when they are processes."""
        for name in names:
            await self.wait.until(Pod, name, lambda found: found.status.phase == "Running")

    async def begins(self, name: str) -> None:
        """Return when its init container is a process, after which its node has nothing to tell for a while."""

        def running(found: WholePod) -> bool:
            return any(each.state.running is not None for each in found.status.init_container_statuses)

        await self.wait.until(WholePod, name, running)

    async def cordon(self, *, on: bool) -> None:
        """From now on nobody new may come, or somebody may."""
        await self.client.patch(Node, Key("", "local"), {"spec": {"unschedulable": on}})

    async def goes(self, name: str) -> None:
        """A pod is ended, and gone."""
        await self.pods.delete_now(name)
        await self.nobody(name)

    async def nobody(self, name: str) -> None:
        """Return when there is no pod of this name."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                page = await self.client.list(Pod, Selector(namespace=self.namespace))
                if all(pod.metadata.name != name for pod in page.items):
                    return
                await asyncio.sleep(0.01)


class Story:
    """Every phase that a group was ever in."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def note(self, delta: Delta[PodGroup]) -> None:
        phase = delta.newest.status.state.phase
        if phase and self.phases[-1:] != [phase]:
            self.phases.append(phase)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Connection]:
    """A plane with a node of three cpus."""
    node = node_settings(capacity=("cpu=3",), images=None, runtime="process", network="shared")
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "logs", node=node)
    async with local_cluster(settings, CORE_SCHEME, CLOCK) as cluster:
        yield cluster.connection


@pytest.fixture
async def machine(plane: Connection) -> AsyncIterator[Machine]:
    async with scheduler_env(plane) as town:
        machine = Machine(town.client, town.namespace)
        await machine.wait.until(Node, "local", lambda found: "cpu" in found.status.allocatable, namespaced=False)
        yield machine


@pytest.fixture
async def transport(plane: Connection) -> AsyncIterator[InterceptedTransport]:
    async with InterceptedTransport(plane) as transport:
        yield transport


@pytest.fixture
def meddled(transport: InterceptedTransport) -> Client:
    """A client whose requests can be meddled with."""
    return Client(transport, scheme=SCHEME)


# The life cycle


async def test_a_gang_of_processes_goes_through_all_rows_of_the_table(machine: Machine, tmp_path: Path) -> None:
    groups, story = Informer(machine.client, PodGroup, clock=CLOCK), Story()
    fails = [{"name": "init", "image": "none", "command": ["sh", "-c", "exit 3"]}]
    dies = "until test -e die; do sleep 0.02; done; exit 137"
    async with machine.run_scheduler(), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(groups.run())
        with groups.subscribe(story.note):
            # T0
            await machine.create_group("g", 3)
            await machine.wait.phase("g", "Pending", "NotEnoughTasks")
            # T2: two run, and one never comes to that.
            await machine.member("g", 0)
            await machine.member("g", 1, script=dies)
            await machine.member("g", 2, initContainers=fails)
            await machine.wait.phase("g", "Recovering", "PodFailed")
            # T4
            await machine.goes("g-2")
            await machine.member("g", 2)
            await machine.wait.phase("g", "Running", "")
            # T3
            (tmp_path / "die").touch()
            broken = await machine.wait.phase("g", "Recovering", "PodFailed")
            said = broken.status.state.message
            assert said.startswith("2/3 members running, worker-1 failed (exit 137)")
            # T5
            await machine.cordon(on=True)
            await machine.goes("g-1")
            await machine.member("g", 1)
            stuck = await machine.wait.phase("g", "Unschedulable", "NotEnoughResources")
            assert "1 cordoned" in stuck.status.state.message
            # T7
            await machine.cordon(on=False)
            await machine.wait.phase("g", "Running", "")
            # T3 and T5 once more, and T6
            await machine.cordon(on=True)
            await machine.goes("g-0")
            await machine.member("g", 0)
            await machine.wait.phase("g", "Unschedulable")
            for number in range(3):
                await machine.goes(f"g-{number}")
            await machine.wait.phase("g", "Pending")
            # T1
            await machine.cordon(on=False)
            for number in range(3):
                await machine.member("g", number)
            await machine.wait.phase("g", "Running", "")
            # The story is read by a watch of its own.
            await wait_until(lambda: story.phases[-1] == "Running")
        following.cancel()
    first = ["Pending", "Recovering", "Running", "Recovering", "Unschedulable", "Running"]
    assert story.phases == [*first, "Recovering", "Unschedulable", "Pending", "Running"]


async def test_a_refusal_by_the_node_is_named_and_one_pod_replaces_the_member(machine: Machine) -> None:
    waits = [{"name": "init", "image": "none", "command": ["sh", "-c", SLEEP]}]
    async with machine.run_scheduler():
        await machine.create_group("g", 2)
        await machine.member("g", 0)
        await machine.member("g", 1, initContainers=waits)
        await machine.runs("g-0")
        await machine.begins("g-1")
        # The words of a kubelet whose node somebody else has filled meanwhile. This node has said all it has to say.
        await machine.pods.set_phase("g-1", "Failed", reason="OutOfcpu")
        broken = await machine.wait.phase("g", "Recovering", "PodFailed")
        assert "g-1 rejected on local (OutOfcpu)" in broken.status.state.message
        await machine.goes("g-1")
        await machine.member("g", 1)
        await machine.wait.phase("g", "Running", "")
        assert not await machine.read.events("Unschedulable")


async def test_while_a_killed_process_takes_its_time_the_gang_recovers(machine: Machine, tmp_path: Path) -> None:
    stubborn = "trap '' TERM; echo ready > ready; while :; do sleep 0.02; done"
    async with machine.run_scheduler():
        await machine.create_group("g", 2)
        await machine.member("g", 0, cpu="1")
        await machine.member("g", 1, cpu="2", script=stubborn)
        await machine.wait.phase("g", "Running")
        async with asyncio.timeout(WAIT_SECONDS):
            while not (tmp_path / "ready").exists():  # noqa: ASYNC110 - from then on it ignores SIGTERM
                await asyncio.sleep(0.01)
        await machine.client.delete(Pod, machine.key("g-1"), grace=timedelta(seconds=120))
        await machine.run("g-1b", "g", role="worker", index=1, cpu="2")
        group = await machine.wait.until(PodGroup, "g", lambda found: "terminating" in found.status.state.message)
        assert group.status.state.phase == "Recovering"
        await machine.goes("g-1")
        await machine.wait.phase("g", "Running", "")
        assert not await machine.read.events("Unschedulable")


# Places


async def test_of_two_gangs_that_fit_alone_one_runs_and_of_the_other_no_process_exists(
    machine: Machine,
) -> None:
    gangs = {name: await machine.team(name, 2) for name in ("one", "two")}
    async with machine.run_scheduler():
        (event,) = await machine.wait.events("Scheduled")
        first = gangs.pop(event.regarding.name)
        await machine.runs(*first)
        ((other, names),) = gangs.items()
        await machine.wait.phase(other, "Pending", "NotEnoughResources")
        assert await machine.read.all_unbound(names)
        for name in first:
            await machine.goes(name)
        await machine.wait.phase(other, "Running")


async def test_the_broken_gang_gets_the_room_of_a_process_that_ends_before_a_newcomer(
    machine: Machine, tmp_path: Path
) -> None:
    async with machine.run_scheduler():
        await machine.team("old", 3)
        await machine.wait.phase("old", "Running")
        await machine.goes("old-1")
        await machine.run("thief", script="until test -e go; do sleep 0.02; done")
        await machine.runs("thief")
        await machine.run("new")
        await machine.wait.until(Pod, "new", lambda found: bool(found.status.conditions))
        await machine.member("old", 1)
        await machine.wait.phase("old", "Unschedulable")
        (tmp_path / "go").touch()
        await machine.wait.phase("old", "Running", "")
        assert await machine.read.all_unbound(["new"])


# Faults


async def test_binds_that_fail_or_whose_answer_is_lost_are_made_good(
    machine: Machine, meddled: Client, transport: InterceptedTransport
) -> None:
    seen: list[str] = []

    async def meddle(request: Request) -> Response | None:
        if not is_binding(request):
            return None
        seen.append(request.path)
        if len(seen) == 1:
            await HttpTransport.send(transport, request)
            raise Unreachable("the answer was lost")
        return error_response() if len(seen) == 3 else None

    transport.intercept = meddle
    async with machine.run_scheduler(meddled):
        await machine.team("g", 3)
        await machine.wait.phase("g", "Running", "")
        (event,) = await machine.wait.events("Scheduled")
        assert event.note == "3 members placed on local"
    assert max(Counter(seen).values()) == 2
    assert not await machine.read.events("Undone")


async def test_a_pod_made_again_under_its_name_does_not_get_the_place_of_the_first(
    machine: Machine, meddled: Client, transport: InterceptedTransport
) -> None:
    answers: list[int] = []

    async def recreated_first(request: Request) -> Response | None:
        if not is_binding(request) or answers:
            return None
        answers.append(0)
        await machine.goes("p")
        await machine.run("p", cpu="9")
        response = await HttpTransport.send(transport, request)
        answers[0] = response.status
        return response

    transport.intercept = recreated_first
    async with machine.run_scheduler(meddled):
        await machine.run("p")
        pod = await machine.wait.until(Pod, "p", lambda found: bool(found.status.conditions))
        assert pod.status.conditions[0].reason == "Unschedulable"
    assert answers == [409]


async def test_a_scheduler_killed_in_the_middle_of_a_gang_finishes_it_first(
    machine: Machine, meddled: Client, transport: InterceptedTransport
) -> None:
    bound: list[str] = []
    stuck = asyncio.Event()

    async def only_two(request: Request) -> Response | None:
        if not is_binding(request):
            return None
        bound.append(request.path)
        if len(bound) > 2:
            stuck.set()
            await asyncio.Event().wait()
        return None

    transport.intercept = only_two
    async with machine.run_scheduler(meddled, concurrency=1):
        names = await machine.team("g", 3)
        async with asyncio.timeout(WAIT_SECONDS):
            await stuck.wait()
    assert sum([bool((await machine.read.pod(name)).spec.node_name) for name in names]) == 2
    rival = await machine.team("a", 1)
    async with machine.run_scheduler():
        await machine.wait.phase("g", "Running", "")
        assert await machine.read.all_unbound(rival)


async def test_a_start_left_half_bound_ends_and_a_smaller_gang_runs_in_its_place(
    machine: Machine, meddled: Client, transport: InterceptedTransport
) -> None:
    async def last_never_succeeds(request: Request) -> Response | None:
        return error_response(503) if is_binding(request) and request.path.endswith("/g-2/binding") else None

    transport.intercept = last_never_succeeds
    async with machine.run_scheduler(meddled):
        names = await machine.team("g", 3, scheduleTimeoutSeconds=5)
        await machine.runs(*names[:2])
        # The place of the third is kept for it.
        late = await machine.team("late", 1)
        await machine.wait.until(Pod, late[0], lambda found: bool(found.status.conditions))
        (event,) = await machine.wait.events("Undone")
        assert event.note.startswith("only 2 of 3 members could be placed in 5 s")
        for name in names[:2]:
            await machine.nobody(name)
        await machine.wait.phase("late", "Running", "")
        assert not (await machine.read.pod("g-2")).metadata.deletion_timestamp


class Counting(HttpTransport):
    """Notes what was bound over it, and by whom."""

    bound: Counter[str]
    name = ""
    acted: list[str]

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        response = await super().send(request, timeout=timeout)
        if is_binding(request) and response.status < 300:
            self.bound[request.path] += 1
            self.acted.append(self.name)
        return response


async def test_when_the_leader_stops_the_other_goes_on_and_no_pod_is_bound_twice(
    machine: Machine, plane: Connection
) -> None:
    bound: Counter[str] = Counter()
    acted: list[str] = []
    stops = {name: asyncio.Event() for name in ("one", "two")}

    async def schedule(name: str) -> None:
        async with Counting(plane, warn=lambda text: None) as transport:
            transport.bound, transport.name, transport.acted = bound, name, acted
            settings = SchedulerProcessSettings(
                scheduler=SchedulerSettings(name=machine.scheduler_name, intervals=FAST_INTERVALS),
                lease="test",
                lease_namespace=machine.namespace,
            )
            client = Client(transport, scheme=SCHEME)
            await SchedulerProcess(plane, settings, client, PrometheusMetrics(), CLOCK, LEASE).run(stops[name])

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(WAIT_SECONDS):
        running = {name: tasks.create_task(schedule(name)) for name in stops}
        await machine.team("first", 2)
        await machine.wait.phase("first", "Running")
        (leader,) = set(acted)
        stops[leader].set()
        await running[leader]
        await machine.team("second", 1)
        await machine.wait.phase("second", "Running")
        for stop in stops.values():
            stop.set()
    assert len(set(acted)) == 2
    assert set(bound.values()) == {1}
    assert len(bound) == 3
