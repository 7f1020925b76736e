"""Two schedulers and an operator, restarted and killed at random, under a stream of gangs whose pods fail.

At the end every gang is whole or has nothing bound, and nothing was bound twice. A few seconds here; five minutes in
`make test-soak`, on both servers: GANGLINE_CHAOS_SECONDS.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from gangline.api.core import Lease
from gangline.api.kubeflow.kinds import TFJOB, TFJob
from gangline.api.meta import JSON, Selector
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import PodGroup
from gangline.base.clock import SystemClock
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import KubeError, NotFound, Unreachable
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import CRDS, DefinitionWaiter, apply_crds
from gangline.operator.engine import enabled_frameworks, scheme_of
from gangline.operator.scheduler_process import SchedulerProcess, SchedulerProcessSettings
from gangline.operator.settings import OperatorSettings
from gangline.runtime.leader_election import LeaseSettings, LostLeadership
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import SchedulerSettings
from support.cluster.scheduler_env import ENV_LABEL, FAST_INTERVALS, SchedulerEnv, is_binding, scheduler_env

SECONDS = float(os.environ.get("GANGLINE_CHAOS_SECONDS", "8"))
SEED = int(os.environ.get("GANGLINE_CHAOS_SEED", "7"))
# The real server has its turn in `make test-soak`.
REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real")])
SERVERS = [REAL, "embedded"] if "GANGLINE_CHAOS_SECONDS" in os.environ else ["embedded"]
STUCK = 30.0  # seconds
NODES, CPUS = 4, 4
# Between the last moment in which one acts and the first in which another may, there is time for calls under way to end.
LEASE = LeaseSettings(lease=timedelta(seconds=3), renew_deadline=timedelta(seconds=1), retry=timedelta(milliseconds=50))
# Longer than a lease, else nobody would live to take over from one who was killed.
LIVES = (0.3, 6.0)
CLOCK = SystemClock()


class Mortal(HttpTransport):
    """A transport over which nothing goes any more once its process was killed; notes what was bound over it."""

    dead = False
    bound: Counter[str]

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self.dead:
            raise Unreachable("the process was killed")
        response = await super().send(request, timeout=timeout)
        if is_binding(request) and response.status < 300:
            self.bound[request.body.decode()] += 1
        if self.dead:
            raise Unreachable("the process was killed")
        return response


class Chaos:
    """Everything, and the one who breaks it."""

    def __init__(self, town: SchedulerEnv, server: Connection) -> None:
        self.town, self.server = town, server
        self.chance = random.Random(SEED)
        self.calm, self.end = asyncio.Event(), asyncio.Event()
        # By what was sent: pod, uid and node.
        self.bound: Counter[str] = Counter()
        self.deaths = 0
        self.made = 0

    async def restarted(self, run: Callable[[Client], Awaitable[None]], scheme: Any) -> None:
        """Run it again and again, for a moment each time; once calm, to the end."""
        while not self.end.is_set():
            async with Mortal(self.server, warn=lambda text: None) as transport:
                transport.bound = self.bound
                await self._life(run, Client(transport, scheme=scheme), transport)

    async def _life(self, run: Callable[[Client], Awaitable[None]], client: Client, transport: Mortal) -> None:
        async def living() -> None:
            try:
                await run(client)
            except* (KubeError, LostLeadership):
                pass  # as its process would end, to be started again

        async with asyncio.TaskGroup() as group:
            life = group.create_task(living())
            over = group.create_task(self._over())
            await asyncio.wait([life, over], return_when=asyncio.FIRST_COMPLETED)
            if not self.calm.is_set():
                self.deaths += 1
                transport.dead = self.chance.random() < 0.5
            life.cancel()
            over.cancel()

    async def _over(self) -> None:
        if not self.calm.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.chance.uniform(*LIVES)):
                    await self.calm.wait()
                    await self.end.wait()
        else:
            await self.end.wait()

    async def schedule(self, client: Client) -> None:
        settings = SchedulerProcessSettings(
            scheduler=SchedulerSettings(
                name=self.town.scheduler_name, intervals=FAST_INTERVALS, start_timeout=timedelta(seconds=3)
            ),
            lease="chaos",
            lease_namespace=self.town.namespace,
        )
        process = SchedulerProcess(self.server, settings, client, PrometheusMetrics(), CLOCK, LEASE)
        await process.run(asyncio.Event())

    async def submit(self) -> None:
        """Jobs, until it is calm."""
        while not self.calm.is_set():
            self.made += 1
            body = job(self.town, f"job-{self.made}", self.chance.randint(2, 5))
            await self.town.client.create(TFJob, body, namespace=self.town.namespace)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.chance.uniform(0.1, 0.6)):
                    await self.calm.wait()

    async def live(self) -> None:
        """Pods that run for a moment and end, some of them badly while it is not calm."""
        while not self.end.is_set():
            for pod in await self.pods():
                running = pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
                if running and self.chance.random() < 0.2:
                    badly = not self.calm.is_set() and self.chance.random() < 0.25
                    with suppress(NotFound):
                        await self.town.pods.set_phase(
                            pod.metadata.name,
                            "Failed" if badly else "Succeeded",
                            exit_code=137 if badly else 0,
                        )
            await asyncio.sleep(0.1)

    async def pods(self) -> list[Pod]:
        return list((await self.town.client.list(Pod, Selector(namespace=self.town.namespace))).items)

    async def torn(self) -> list[str]:
        """Gangs that are neither whole nor without any place."""
        groups = await self.town.client.list(PodGroup, Selector(namespace=self.town.namespace))
        pods = await self.pods()
        found = []
        for group in groups.items:
            name, least = group.metadata.name, group.spec.min_member
            members = [pod for pod in pods if pod.metadata.annotations.get("scheduling.k8s.io/group-name") == name]
            there = [pod for pod in members if pod.spec.node_name and pod.status.phase != "Failed"]
            held = [pod for pod in there if pod.status.phase in ("Pending", "Running")]
            if held and len(there) < least:
                found.append(f"{name}: {len(there)} of {least} bound")
        return found

    async def described(self) -> str:
        """Where everything stands."""
        groups = await self.town.client.list(PodGroup, Selector(namespace=self.town.namespace))
        states = [(group.metadata.name, group.status.state.phase, group.status.state.message) for group in groups.items]
        pods = Counter((pod.status.phase, bool(pod.spec.node_name)) for pod in await self.pods())
        return f"groups {states}; pods {dict(pods)}"

    async def unfinished(self) -> list[str]:
        """Jobs that have not come to an end: with calm around them they all do."""
        jobs = await self.town.client.list(TFJob, Selector(namespace=self.town.namespace))
        return [job.metadata.name for job in jobs.items if not job.status.finished]


def job(town: SchedulerEnv, name: str, workers: int) -> JSON:
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "containers": [container],
        "nodeSelector": {ENV_LABEL: town.namespace},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
    replica = {"replicas": workers, "restartPolicy": "ExitCode", "template": {"spec": spec}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": replica}, "runPolicy": {"cleanPodPolicy": "All"}},
    }


@asynccontextmanager
async def at_work(chaos: Chaos) -> Any:
    town = chaos.town
    settings = OperatorSettings(
        kinds=("TFJob",), namespaces=(town.namespace,), site=Site(gang_scheduler=GanglineScheduler())
    )
    wanted = enabled_frameworks(settings)
    schemes = scheme_of(wanted, settings.site.gang_schedulers), SCHEME.with_resources(CRDS)

    async def operating(client: Client) -> None:
        await run_engine(client, settings, wanted, CLOCK)

    async with town.pods.run_kubelet(), asyncio.TaskGroup() as group:
        group.create_task(chaos.restarted(operating, schemes[0]))
        for _ in range(2):
            group.create_task(chaos.restarted(chaos.schedule, schemes[1]))
        group.create_task(chaos.submit())
        group.create_task(chaos.live())
        yield
        chaos.end.set()


async def enough(chaos: Chaos) -> None:
    """A busy machine needs longer for as much."""
    async with asyncio.timeout(STUCK):
        while min(chaos.made, len(chaos.bound), 4 * chaos.deaths) <= SECONDS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.faults
@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_whatever_dies_every_gang_is_whole_or_has_nothing(server: Connection) -> None:
    async with scheduler_env(server) as town:
        town.scheduler_name = "gangline"
        town.client.scheme = town.client.scheme.with_resources(TFJOB.resource)
        await apply_crds(town.client, [TFJOB])
        await DefinitionWaiter(town.client, [TFJOB.resource], CLOCK).wait_until_served()
        for number in range(NODES):
            await town.create_node(f"n{number}", cpu=str(CPUS))
        chaos = Chaos(town, server)
        async with at_work(chaos):
            await asyncio.sleep(SECONDS)
            await enough(chaos)
            chaos.calm.set()
            await fits(chaos)
            await settled(chaos.torn, chaos)
            await settled(chaos.unfinished, chaos)
        assert chaos.deaths > SECONDS / 4
        assert chaos.made > SECONDS
        assert len(chaos.bound) > SECONDS
        assert set(chaos.bound.values()) == {1}, "bound twice"
        print(f"{chaos.made} jobs, {chaos.deaths} deaths, {len(chaos.bound)} pods bound")
        with suppress(NotFound):
            await town.client.delete(Lease, town.key("chaos"))


async def settled(left: Callable[[], Awaitable[list[str]]], chaos: Chaos) -> None:
    """Return when nothing is left of it. Raises AssertionError when for long it does not become less."""
    fewest, since = len(await left()), CLOCK.monotonic()
    while found := await left():
        if len(found) < fewest:
            fewest, since = len(found), CLOCK.monotonic()
        if CLOCK.monotonic() - since > STUCK:
            raise AssertionError(f"{found} are left; {await chaos.described()}")
        await asyncio.sleep(0.1)


async def fits(chaos: Chaos) -> None:
    """No node has more than it offers."""
    used: Counter[str] = Counter()
    for pod in await chaos.pods():
        if pod.status.phase in ("Pending", "Running") and pod.spec.node_name:
            used[pod.spec.node_name] += 1
    nodes = {node.metadata.name for node in (await chaos.town.client.list(Node)).items}
    assert set(used) <= nodes
    assert max(used.values(), default=0) <= CPUS
