"""`gangline scheduler` as it runs in a cluster: the election, its rights, and the operator beside it."""

import asyncio
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil
import pytest

from gangline.api.core import Lease
from gangline.api.kubeflow.kinds import MPIJOB, MPIJob
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup
from gangline.api.scheme import Resource
from gangline.base.clock import SystemClock
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, Impersonation, load_connection
from gangline.kube.errors import KubeError
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import CRDS, apply_crds
from gangline.operator.engine import enabled_frameworks, scheme_of
from gangline.operator.scheduler_process import SchedulerProcess, SchedulerProcessSettings
from gangline.operator.settings import OperatorSettings
from gangline.runtime.leader_election import LeaseSettings
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import SchedulerSettings
from support.cluster.installation import installed_rights
from support.cluster.scheduler_env import (
    ENV_LABEL,
    FAST_INTERVALS,
    WAIT_SECONDS,
    InterceptedTransport,
    SchedulerEnv,
    is_binding,
    scheduler_env,
)
from support.servers.real import HOST, RealServer, free_ports
from support.servers.real import LoggedProcess as Program

LEASE = LeaseSettings(
    lease=timedelta(seconds=15), renew_deadline=timedelta(seconds=10), retry=timedelta(milliseconds=50)
)


@pytest.fixture
async def town(server: Connection) -> AsyncIterator[SchedulerEnv]:
    async with scheduler_env(server) as town:
        yield town


class Process:
    """A scheduler with an election, and what it asked the server for."""

    def __init__(self, town: SchedulerEnv, connection: Connection, transport: InterceptedTransport) -> None:
        self.requests: list[Request] = []
        self.answers: Counter[tuple[str, int]] = Counter()
        self.stop = asyncio.Event()
        transport.intercept = self._note
        self._transport = transport
        settings = SchedulerProcessSettings(
            scheduler=SchedulerSettings(name=town.scheduler_name, intervals=FAST_INTERVALS),
            leader_elect=True,
            lease="scheduler",
            lease_namespace=town.namespace,
        )
        client = Client(transport, scheme=SCHEME.with_resources(CRDS))
        self.process = SchedulerProcess(connection, settings, client, PrometheusMetrics(), SystemClock(), LEASE)

    async def _note(self, request: Request) -> Response:
        response = await HttpTransport.send(self._transport, request)
        self.requests.append(request)
        if is_binding(request):
            self.answers[request.path, response.status] += 1
        return response

    def leads(self) -> bool:
        return any(request.path.endswith("/podgroups") for request in self.requests)


@asynccontextmanager
async def running(town: SchedulerEnv, connection: Connection) -> AsyncIterator[Process]:
    async with InterceptedTransport(connection) as transport, asyncio.TaskGroup() as group:
        process = Process(town, connection, transport)
        task = group.create_task(process.process.run(process.stop))
        try:
            yield process
        finally:
            process.stop.set()
            await task


async def led_by(*processes: Process) -> Process:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            for process in processes:
                if process.leads():
                    return process
            await asyncio.sleep(0.005)


async def test_when_the_leader_stops_the_other_goes_on_and_no_pod_is_bound_twice(
    town: SchedulerEnv, server: Connection
) -> None:
    await town.create_node("a", cpu="8")
    async with running(town, server) as one, running(town, server) as two:
        leader = await led_by(one, two)
        other = two if leader is one else one
        names = await town.create_gang("g", 4)
        for name in names:
            await town.wait.bound(name)
        assert not other.answers
        leader.stop.set()
        later = await town.create_gang("h", 4)
        for name in later:
            await town.wait.bound(name)
        # Others may see that a pod is bound before the answer to that is here.
        async with asyncio.timeout(WAIT_SECONDS):
            while sum((one.answers + two.answers).values()) < 8:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        bound = one.answers + two.answers
        assert len(bound) == 8
        assert set(bound.values()) == {1}
        # Nothing is bound before the list of pods is there.
        paths = [request.path for request in other.requests]
        first = next(number for number, request in enumerate(other.requests) if is_binding(request))
        assert "/api/v1/pods" in paths[:first]
        assert "/api/v1/nodes" in paths[:first]


async def test_what_binds_is_made_ready_when_a_term_begins_and_when_a_gang_is_announced(
    town: SchedulerEnv,
) -> None:
    asked: asyncio.Queue[int] = asyncio.Queue()
    await town.create_node("a", cpu="8")
    async with town.run_scheduler(prepare=asked.put, concurrency=6), asyncio.timeout(WAIT_SECONDS):
        assert await asked.get() == 6
        await town.create_group("small", 2)
        assert await asked.get() == 2
        await town.create_group("large", 100)
        assert await asked.get() == 6
        # Its members are not announced twice.
        for name in ("small-0", "small-1"):
            await town.create_pod(name, "small")
        for name in ("small-0", "small-1"):
            await town.wait.bound(name)
        assert asked.empty()


@pytest.mark.parametrize("namespaced", [False, True], ids=["cluster", "namespaces"])
async def test_the_rights_in_the_manifest_are_enough(server: Connection, namespaced: bool) -> None:
    async with scheduler_env(server) as town:
        home = town.namespace if namespaced else "gangline"
        scope: JSON = {"watchNamespaces": [home]} if namespaced else {"namespace": {"create": True}}
        for document in installed_rights({**scope, "scheduler": {"enabled": True}}, home):
            await applied(town.client, document)
        account = f"system:serviceaccount:{home}:gangline-scheduler"
        as_scheduler = msgspec.structs.replace(server, impersonate=Impersonation(user=account))
        await town.create_node("a", cpu="2")
        refusals: list[str] = []
        async with InterceptedTransport(as_scheduler) as transport, asyncio.TaskGroup() as group:

            async def note(request: Request) -> Response:
                response = await HttpTransport.send(transport, request)
                if response.status == 403:
                    refusals.append(f"{request}: {response.body!r}")
                return response

            transport.intercept = note
            settings = SchedulerProcessSettings(
                scheduler=SchedulerSettings(
                    name=town.scheduler_name,
                    namespaces=(home,) if namespaced else (),
                    intervals=FAST_INTERVALS,
                ),
                lease_namespace=home,
            )
            client = Client(transport, scheme=SCHEME)
            stop = asyncio.Event()
            process = SchedulerProcess(as_scheduler, settings, client, PrometheusMetrics(), SystemClock(), LEASE)
            task = group.create_task(process.run(stop))
            # Bound, probed, told.
            names = await town.create_gang("g", 2)
            await town.pods.run_when_bound(names)
            await town.wait.phase("g", "Running")
            await town.wait.events("Scheduled")
            # Marked, and made room for.
            await town.create_gang("late", 2)
            await town.wait.until(Pod, "late-1", lambda found: bool(found.status.conditions))
            await town.create_gang("high", 1, priorityClassName="system-cluster-critical")
            await town.wait.events("Preempted")
            for name in names:
                await town.pods.finish_deletion(name)
            await town.wait.bound("high-0")
            # Pinned.
            for name in ("late-0", "late-1"):
                await town.pods.delete_now(name)
            await town.client.delete(PodGroup, town.key("late"))
            await town.pods.delete_now("high-0")
            await town.create_gang("pinned", 1, gated=True)
            await town.wait.until(Pod, "pinned-0", lambda found: not found.spec.scheduling_gates)
            stop.set()
            await task
        assert not refusals


async def test_with_a_list_of_namespaces_other_pods_take_room_and_are_left_alone(server: Connection) -> None:
    async with scheduler_env(server) as town, scheduler_env(server) as other:
        node = await town.create_node("a", cpu="3")
        there: dict[str, Any] = {"nodeSelector": {ENV_LABEL: town.namespace}, "schedulerName": town.scheduler_name}
        # Of lower priority than all others, and on the node already: a gang that could be evicted, if it were ours.
        await other.create_gang("low", 1, nodeName=node, **there)
        await other.create_gang("waiting", 1, **there)
        async with town.run_scheduler(namespaces=(town.namespace, "not-there-yet")):
            await town.create_gang("high", 3, priorityClassName="system-cluster-critical")
            await town.wait.until(Pod, "high-0", lambda found: bool(found.status.conditions))
            assert not (await other.read.pod("low-0")).metadata.deletion_timestamp
            await other.pods.delete_now("low-0")
            for number in range(3):
                await town.wait.bound(f"high-{number}")
        assert not (await other.read.pod("waiting-0")).spec.node_name
        status = (await other.read.group("waiting")).status
        assert status == type(status)()


async def test_the_command_installs_places_counts_and_ends(real_server: RealServer, tmp_path: Path) -> None:
    real_server.revive()
    admin = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=Path("/nonexistent"))
    probes, metrics = free_ports(2)
    async with scheduler_env(admin) as town:
        await town.create_node("a", cpu="2")
        command = [sys.executable, "-m", "gangline", "scheduler", f"--kubeconfig={real_server.kubeconfig}"]
        command += [
            f"--scheduler-name={town.scheduler_name}",
            f"--leader-election-namespace={town.namespace}",
        ]
        command += [f"--health-probe-bind-address={HOST}:{probes}", "--install-crds"]
        command += [f"--metrics-bind-address={HOST}:{metrics}"]
        program = await asyncio.to_thread(Program, command, tmp_path / "log")
        try:
            # What binds is connected before there is anything to bind.
            async with asyncio.timeout(WAIT_SECONDS):
                while connections(program.pid, real_server.url) < SchedulerSettings().concurrency:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            names = await town.create_gang("g", 2)
            for name in names:
                await town.wait.bound(name)
            await town.wait.events("Scheduled")
            text = await asyncio.to_thread(page, metrics, "/metrics")
            assert "\ngangline_scheduler_pods_bound_total 2.0\n" in text
            assert 'leader_election_master_status{name="gangline-scheduler"} 1.0' in text
            assert await asyncio.to_thread(page, probes, "/readyz") == "ok"
            program.signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    if not program.is_running:
                        break
                    await asyncio.sleep(0.02)
            assert program.exit_code == 0, program.log_tail()
        finally:
            program.kill()
        # The next one need not wait for it.
        lease = await town.client.get(Lease, town.key("gangline-scheduler"))
        assert lease.spec.holder_identity == ""


def connections(pid: int, url: str) -> int:
    port = urlsplit(url).port
    found = psutil.Process(pid).net_connections("tcp")
    return sum(bool(each.raddr) and each.raddr.port == port for each in found)


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=60) as response:
        text: str = response.read().decode()
        return text


async def applied(client: Client, document: JSON) -> None:
    group, _, version = document["apiVersion"].rpartition("/")
    kind: str = document["kind"]
    namespaced = "namespace" in document["metadata"]
    plural = f"{kind.lower()}s"
    resource: Resource[Any] = Resource(group, version, kind, plural, dict, namespaced=namespaced)
    await client.apply(resource, document, owner="tests", force=True)


def mpi_job(town: SchedulerEnv) -> JSON:
    def replica(count: int) -> JSON:
        container = {"name": "mpi", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {
            "containers": [container],
            "nodeSelector": {ENV_LABEL: town.namespace},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        }
        return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": spec}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "job"},
        "spec": {"mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2)}},
    }


async def test_an_mpi_job_that_cannot_heal_starts_anew_as_a_whole(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="3")
    await apply_crds(town.client, [MPIJOB])
    town.scheduler_name = "gangline"
    settings = OperatorSettings(
        kinds=("MPIJob",),
        namespaces=(town.namespace,),
        site=Site(gang_scheduler=GanglineScheduler()),
        mpi_delivery_image="",
    )
    wanted = enabled_frameworks(settings)
    client = Client(town.client.transport, scheme=scheme_of(wanted, settings.site.gang_schedulers))
    async with town.run_scheduler(), town.pods.run_kubelet(), asyncio.TaskGroup() as group:
        operator = group.create_task(run_engine(client, settings, wanted, SystemClock()))
        await created(client, mpi_job(town), town.namespace)
        await town.wait.phase("job", "Running")
        first = {pod.metadata.uid for pod in await pods(town)}
        # The node takes nobody any more, and one of its pods dies.
        await client.patch(_NODES, Key("", node), {"spec": {"unschedulable": True}})
        await town.pods.delete_now("job-worker-1")
        await town.wait.events("Unschedulable")
        again = await town.wait.phase("job", "Pending")
        assert again.status.running == 0
        await client.patch(_NODES, Key("", node), {"spec": {"unschedulable": False}})
        await town.wait.phase("job", "Running")
        assert not first & {pod.metadata.uid for pod in await pods(town)}
        assert len(await town.wait.events("Pending")) == 1
        await client.delete(MPIJob, town.key("job"))
        operator.cancel()


_NODES = Resource("", "v1", "Node", "nodes", dict[str, Any], namespaced=False)


async def created(client: Client, body: JSON, namespace: str) -> None:
    """A new definition is served a moment after it was installed."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await client.create(MPIJob, body, namespace=namespace)
            except KubeError:
                await asyncio.sleep(0.05)
            else:
                return


async def pods(town: SchedulerEnv) -> list[Pod]:
    return list((await town.client.list(Pod, Selector(namespace=town.namespace))).items)
