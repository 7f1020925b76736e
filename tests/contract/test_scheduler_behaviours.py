"""What the running scheduler does not do: it does not spin, does not insist, and does not ask twice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from gangline.api.meta import JSON, Key, Object
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup, Queue
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound
from gangline.kube.options import PatchType
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.api import Request, Response
from gangline.runtime.events import EventRecorder
from gangline.scheduler.metrics import NullSchedulerMetrics
from gangline.scheduler.scheduler import SCHEME, Scheduler
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.snapshot.node_info import HOSTNAME_LABEL
from gangline.scheduler.types.cycle import SchedulerPolicy
from gangline.testing.clock import FakeClock
from support.cluster.scheduler_env import (
    FAST_INTERVALS,
    WAIT_SECONDS,
    InterceptedTransport,
    SchedulerEnv,
    error_response,
    is_binding,
    scheduler_env,
)
from support.servers.real import LoggedProcess, RealServer, find_assets

T = TypeVar("T", bound=Object)
SECOND = timedelta(seconds=1)


class Rounds(NullSchedulerMetrics):
    """How often it was looked for places, and for how many gangs the last time."""

    def __init__(self) -> None:
        self.count, self.gangs = 0, -1

    def set_pending(self, gangs: int, pods: int, oldest: datetime | None) -> None:
        self.count += 1
        self.gangs = gangs


class Slow:
    """A scheduler whose time passes only when it is told to."""

    def __init__(self, town: SchedulerEnv, client: Client) -> None:
        self.town, self.client = town, client
        self.clock, self.rounds = FakeClock(SystemClock().now()), Rounds()

    @asynccontextmanager
    async def scheduling(self, **settings: Any) -> AsyncIterator[None]:
        recorder = EventRecorder(self.client, "gangline.dev/scheduler", "test", self.clock, scheme=SCHEME)
        options = SchedulerSettings(name=self.town.scheduler_name, intervals=FAST_INTERVALS, **settings)
        scheduler = Scheduler(self.client, self.clock, recorder, options, self.rounds)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scheduler.run()), group.create_task(recorder.run())]
            yield
            for task in tasks:
                task.cancel()
            # What is under way has its grace, by this clock or another.
            await self.clock.advance(timedelta())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let moments pass until something is true."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if holds():
                    return
                await self.moment()

    async def comes(self, kind: type[T], name: str, holds: Callable[[T], bool]) -> None:
        """Let moments pass until something is true of an object."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds(await self.client.get(kind, self.town.key(name))):
                await self.moment()

    async def goes(self, name: str) -> None:
        """Let moments pass until a pod is not there."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    await self.town.read.pod(name)
                except NotFound:
                    return
                await self.moment()

    async def moment(self) -> None:
        await self.clock.advance(timedelta(milliseconds=5))
        await asyncio.sleep(0.005)


@pytest.fixture
async def town(server: Connection) -> AsyncIterator[SchedulerEnv]:
    async with scheduler_env(server) as town:
        yield town


@pytest.fixture
async def transport(server: Connection) -> AsyncIterator[InterceptedTransport]:
    async with InterceptedTransport(server) as transport:
        yield transport


@pytest.fixture
def slow(town: SchedulerEnv, transport: InterceptedTransport) -> Slow:
    return Slow(town, Client(transport, scheme=SCHEME))


async def test_when_nobody_waits_any_more_nothing_is_looked_at_however_much_time_passes(slow: Slow) -> None:
    town = slow.town
    await town.create_node("a", cpu="1")
    names = await town.create_gang("g", 2)
    async with slow.scheduling(policy=SchedulerPolicy(starvation_timeout=10 * SECOND)):
        await slow.until(lambda: slow.rounds.gangs == 1)
        # The one that waits goes before its patience is over.
        for name in names:
            await town.pods.delete_now(name)
        await town.client.delete(PodGroup, town.key("g"))
        await slow.until(lambda: slow.rounds.gangs == 0)
        for _ in range(10):
            await slow.moment()
        before = slow.rounds.count
        await slow.clock.advance(20 * SECOND)
        assert slow.rounds.count - before <= 2


async def test_one_who_may_not_leave_a_half_bound_start_is_asked_again_only_after_as_much_time(
    slow: Slow, transport: InterceptedTransport
) -> None:
    town, asked = slow.town, []
    await town.create_node("a", cpu="2")

    async def meddle(request: Request) -> Response | None:
        if request.path.endswith("/eviction"):
            asked.append(request.path)
            return error_response(429)
        return error_response(503) if is_binding(request) and request.path.endswith("/g-1/binding") else None

    transport.intercept = meddle
    await town.create_gang("g", 2)
    async with slow.scheduling(start_timeout=60 * SECOND):
        await slow.comes(Pod, "g-0", lambda found: bool(found.spec.node_name))
        for _ in range(20):
            await slow.moment()
        assert not asked
        for times in (1, 2):
            await slow.clock.advance(61 * SECOND)
            await slow.until(lambda: len(asked) == times)  # noqa: B023 (used before the next one)
            for _ in range(20):
                await slow.moment()
            assert len(asked) == times


async def test_one_whose_eviction_was_refused_is_let_be_for_half_a_minute(
    slow: Slow, transport: InterceptedTransport
) -> None:
    town, asked = slow.town, []
    await town.create_node("a", cpu="1")

    async def meddle(request: Request) -> Response | None:
        if request.path.endswith("/eviction"):
            asked.append(request.path)
            return error_response(429)
        return None

    transport.intercept = meddle
    await town.create_pod("low")
    async with slow.scheduling():
        await slow.comes(Pod, "low", lambda found: bool(found.spec.node_name))
        await town.create_pod("high", priorityClassName="system-cluster-critical")
        await slow.until(lambda: len(asked) == 1)
        # There is no room for it then, and that is said.
        await slow.comes(Pod, "high", lambda found: bool(found.status.conditions))
        for _ in range(20):
            await slow.moment()
        assert len(asked) == 1
        await slow.clock.advance(31 * SECOND)
        await slow.until(lambda: len(asked) == 2)
    assert (await town.read.pod("low")).metadata.deletion_timestamp is None


async def test_nobody_is_asked_to_leave_twice_while_the_answer_is_awaited(
    slow: Slow, transport: InterceptedTransport
) -> None:
    town, asked, answers = slow.town, [], asyncio.Event()
    await town.create_node("a", cpu="1")

    async def meddle(request: Request) -> Response | None:
        if request.path.endswith("/eviction"):
            asked.append(request.path)
            await answers.wait()
        return None

    transport.intercept = meddle
    await town.create_pod("low")
    async with slow.scheduling():
        await slow.comes(Pod, "low", lambda found: bool(found.spec.node_name))
        await town.create_pod("high", priorityClassName="system-cluster-critical")
        await slow.until(lambda: len(asked) == 1)
        before = slow.rounds.count
        # Others come meanwhile, and it is decided again.
        await town.create_pod("other")
        await slow.until(lambda: slow.rounds.count > before and slow.rounds.gangs == 2)
        for _ in range(10):
            await slow.moment()
        assert len(asked) == 1
        answers.set()
        await slow.comes(Pod, "low", lambda found: found.metadata.deletion_timestamp is not None)
        await town.pods.delete_now("low")
        await slow.comes(Pod, "high", lambda found: bool(found.spec.node_name))
    assert len(asked) == 1
    assert await town.read.all_unbound(["other"])


async def test_what_was_undone_is_not_bound_after_all(slow: Slow, transport: InterceptedTransport) -> None:
    town = slow.town
    await town.create_node("a", cpu="2")
    failing = True

    async def meddle(request: Request) -> Response | None:
        late = is_binding(request) and request.path.endswith("/g-1/binding")
        return error_response(503) if failing and late else None

    transport.intercept = meddle
    await town.create_gang("g", 2)
    async with slow.scheduling(start_timeout=60 * SECOND):
        await slow.comes(Pod, "g-0", lambda found: bool(found.spec.node_name))
        await slow.clock.advance(61 * SECOND)
        await slow.comes(Pod, "g-0", lambda found: found.metadata.deletion_timestamp is not None)
        # The server is well again; but the start was given up.
        failing = False
        for _ in range(20):
            await slow.clock.advance(SECOND)
            await slow.moment()
        assert await town.read.all_unbound(["g-1"])


# Members above the least, and what this way of placing cannot do


async def test_members_above_the_least_are_placed_as_far_as_they_fit_and_the_gang_runs_without_the_rest(
    town: SchedulerEnv,
) -> None:
    await town.create_node("a", cpu="5")
    async with town.run_scheduler():
        names = await town.create_gang("g", 6, least=4)
        last = await town.wait.until(Pod, "g-5", lambda found: bool(found.status.conditions))
        assert last.status.conditions[0].reason == "Unschedulable"
        for name in names[:5]:
            await town.wait.bound(name)
        for name in names[:3]:
            await town.pods.set_phase(name)
        assert (await town.wait.phase("g", "Pending")).status.state.phase == "Pending"
        await town.pods.set_phase(names[3])
        running = await town.wait.phase("g", "Running", "")
        assert running.status.state.message == "4/4 members running"
        assert await town.read.all_unbound(["g-5"])


async def test_a_claim_that_waits_for_its_first_pod_is_named_once_with_the_remedy(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="2")
    storage: JSON = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": town.namespace},
        "provisioner": "example.com/none",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim: JSON = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": town.namespace,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await post(town, "/apis/storage.k8s.io/v1/storageclasses", storage)
    await post(town, f"/api/v1/namespaces/{town.namespace}/persistentvolumeclaims", claim)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    try:
        async with town.run_scheduler():
            names = await town.create_gang("g", 2, volumes=volumes)
            group = await town.wait.phase("g", "Pending", "NotEnoughResources")
            assert "WaitForFirstConsumer" in group.status.state.message
            (event,) = await town.wait.events("Refused")
            assert event.note.startswith('persistentvolumeclaim "data" is bound only when kube-scheduler')
            assert "scheduling.gangline.dev/commit: pin" in event.note
            # Something happens, and it is not told again.
            await town.create_pod("other")
            await town.wait.bound("other")
            assert len(await town.read.events("Refused")) == 1
            assert await town.read.all_unbound(names)
            # More nodes would not help.
            assert not any([(await town.read.pod(name)).status.conditions for name in names])
    finally:
        path = f"/apis/storage.k8s.io/v1/storageclasses/{town.namespace}"
        await town.client.requests.call(Request("DELETE", path))


# Pins that lost their race


async def test_a_pinned_replacement_that_lost_its_race_is_made_anew_and_the_others_run_on(slow: Slow) -> None:
    town, pods = slow.town, PodSubresources(slow.client)
    first = await town.create_node("a", cpu="2")
    async with slow.scheduling(start_timeout=60 * SECOND):
        names = await town.create_gang("g", 2, gated=True)
        for name in names:
            await slow.comes(Pod, name, lambda found: not found.spec.scheduling_gates)
            await pods.bind(town.key(name), first)
            await town.pods.set_phase(name)
        await slow.comes(PodGroup, "g", lambda found: found.status.state.phase == "Running")
        kept = (await town.read.pod("g-0")).metadata.uid
        await town.pods.delete_now("g-1")
        await slow.comes(PodGroup, "g", lambda found: found.status.state.phase == "Recovering")
        await town.create_pod("g-1", "g", role="worker", index=1, gated=True)
        await slow.comes(Pod, "g-1", lambda found: not found.spec.scheduling_gates)
        # Somebody else was faster, and there is room elsewhere now.
        lost = (await town.read.pod("g-1")).metadata.uid
        await town.create_pod("thief", schedulerName="somebody-else")
        await pods.bind(town.key("thief"), first)
        second = await town.create_node("b", cpu="1")
        await no_room(town, "g-1")
        for _ in range(20):
            await slow.moment()
        assert (await town.read.pod("g-1")).metadata.uid == lost
        await slow.clock.advance(11 * SECOND)
        await slow.goes("g-1")
        # Its owner makes another, which is placed anew.
        await town.create_pod("g-1", "g", role="worker", index=1, gated=True)
        await slow.comes(Pod, "g-1", lambda found: not found.spec.scheduling_gates)
        assert (await town.read.pod("g-1")).spec.node_selector["kubernetes.io/hostname"] == second
        await pods.bind(town.key("g-1"), second)
        await town.pods.set_phase("g-1")
        await slow.comes(PodGroup, "g", lambda found: found.status.state.phase == "Running")
    assert (await town.read.pod("g-0")).metadata.uid == kept
    assert (await town.read.pod("g-0")).metadata.deletion_timestamp is None


async def test_a_node_that_did_not_take_a_pinned_gang_is_told_again_only_when_there_is_no_other(
    slow: Slow,
) -> None:
    town, names = slow.town, ("g-0", "g-1")
    first, second = [await town.create_node(name, cpu="2") for name in "ab"]
    told = []
    async with slow.scheduling(start_timeout=60 * SECOND):
        await town.create_group("g", 2)
        for _ in range(3):
            for index, name in enumerate(names):
                await town.create_pod(name, "g", role="worker", index=index, gated=True)
            for name in names:
                await slow.comes(Pod, name, lambda found: not found.spec.scheduling_gates)
                # Its scheduler knows of something that we do not: devices, say.
                await no_room(town, name)
            told.append({(await town.read.pod(name)).spec.node_selector[HOSTNAME_LABEL] for name in names})
            for _ in range(20):
                await slow.moment()
            await slow.clock.advance(61 * SECOND)
            for name in names:
                await slow.goes(name)
    assert told == [{first}, {second}, {first}]


@pytest.mark.real
@pytest.mark.xdist_group("real")
@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_what_a_kube_scheduler_says_of_a_pin_that_lost_its_race_is_understood(
    slow: Slow, transport: InterceptedTransport, real_server: RealServer, tmp_path: Path
) -> None:
    town, theirs = slow.town, f"{slow.town.namespace}-theirs"
    first = await town.create_node("a", cpu="2")

    async def steal(request: Request) -> Response | None:
        """Between our decision and our call somebody else is faster."""
        if request.method == "PATCH" and request.path.endswith("/pods/g-1"):
            transport.intercept = None
            await town.create_pod("thief", schedulerName="somebody-else")
            await PodSubresources(town.client).bind(town.key("thief"), first)
        return None

    async with slow.scheduling(start_timeout=60 * SECOND):
        with kube_scheduler(real_server, tmp_path, theirs):
            for name in await town.create_gang("g", 2, gated=True, schedulerName=theirs):
                await slow.comes(Pod, name, lambda found: bool(found.spec.node_name))
                await town.pods.set_phase(name)
            await slow.comes(PodGroup, "g", lambda found: found.status.state.phase == "Running")
            await town.pods.delete_now("g-1")
            await slow.comes(PodGroup, "g", lambda found: found.status.state.phase == "Recovering")
            transport.intercept = steal
            await town.create_pod("g-1", "g", role="worker", index=1, gated=True, schedulerName=theirs)
            await slow.comes(Pod, "g-1", lambda found: not found.spec.scheduling_gates)
            second = await town.create_node("b", cpu="1")
            await slow.comes(
                Pod,
                "g-1",
                lambda found: any(each.reason == "Unschedulable" for each in found.status.conditions),
            )
            await slow.clock.advance(11 * SECOND)
            await slow.goes("g-1")
            await town.create_pod("g-1", "g", role="worker", index=1, gated=True, schedulerName=theirs)
            await slow.comes(Pod, "g-1", lambda found: found.spec.node_name == second)


@contextmanager
def kube_scheduler(server: RealServer, folder: Path, name: str) -> Iterator[None]:
    """One for pods that ask for it by name; those of other tests are left alone."""
    program = (find_assets() or Path()) / "kube-scheduler"
    if not program.is_file():
        pytest.skip("kube-scheduler not found: run hack/kubernetes.sh kube-scheduler")
    config, log = folder / "config.json", folder / "kube-scheduler.log"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(server.kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name}],
    }
    config.write_bytes(msgspec.json.encode(content))
    process = LoggedProcess([str(program), f"--config={config}", "--secure-port=0"], log)
    try:
        yield
    finally:
        process.kill()


async def no_room(town: SchedulerEnv, name: str) -> None:
    """What kube-scheduler says of a pod that fits nowhere."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    body = {"status": {"conditions": [said]}}
    await town.client.patch(Pod, town.key(name), body, form=PatchType.STRATEGIC, subresource="status")


# How many volumes a node can have


@pytest.mark.real
@pytest.mark.xdist_group("real")
@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_a_node_that_can_have_no_more_volumes_gets_no_pod_that_wants_one(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="8")
    driver = f"{town.namespace}.example.com"
    csinodes = "/apis/storage.k8s.io/v1/csinodes"
    drivers = [{"name": driver, "nodeID": node, "allocatable": {"count": 1}}]
    await post(town, csinodes, {"metadata": {"name": node}, "spec": {"drivers": drivers}})
    # One that says nothing: its list of drivers is null.
    await post(town, csinodes, {"metadata": {"name": town.namespace}, "spec": {"drivers": []}})
    for number in range(2):
        await disk(town, f"disk-{number}", driver)

    def using(number: int) -> list[JSON]:
        return [{"name": "data", "persistentVolumeClaim": {"claimName": f"disk-{number}"}}]

    try:
        async with town.run_scheduler():
            await town.create_pod("first", volumes=using(0))
            await town.wait.bound("first")
            await town.create_gang("g", 1, volumes=using(1))
            waiting = await town.wait.phase("g", "Pending", "NotEnoughResources")
            assert "at their limit of volumes" in waiting.status.state.message
            # Neither one without a volume nor one with a volume that is there already is kept out.
            await town.create_pod("without")
            await town.create_pod("same", volumes=using(0))
            for name in ("without", "same"):
                await town.wait.bound(name)
            assert await town.read.all_unbound(["g-0"])
            await town.client.requests.call(Request("DELETE", f"{csinodes}/{node}"))
            drivers[0]["allocatable"] = {"count": 2}
            await post(town, csinodes, {"metadata": {"name": node}, "spec": {"drivers": drivers}})
            await town.wait.bound("g-0")
    finally:
        gone = [f"{csinodes}/{node}", f"{csinodes}/{town.namespace}"]
        gone += [f"/api/v1/persistentvolumes/{town.namespace}-disk-{number}" for number in range(2)]
        for path in gone:
            await town.client.requests.call(Request("DELETE", path))


async def test_a_server_that_does_not_say_what_it_has_is_asked_until_it_does(
    slow: Slow, transport: InterceptedTransport
) -> None:
    town, asked = slow.town, []
    await town.create_node("a", cpu="1")

    async def meddle(request: Request) -> Response | None:
        if request.path != "/apis/storage.k8s.io/v1":
            return None
        asked.append(request.path)
        return error_response(503) if len(asked) < 3 else None

    transport.intercept = meddle
    await town.create_pod("alone")
    async with slow.scheduling():
        async with asyncio.timeout(WAIT_SECONDS):
            while len(asked) < 3:
                await slow.clock.advance(SECOND)
                await slow.moment()
        await slow.comes(Pod, "alone", lambda found: bool(found.spec.node_name))


async def disk(town: SchedulerEnv, name: str, driver: str) -> None:
    """A claim that is bound to a volume of a storage driver, as a volume controller leaves it."""
    volume, claims = (
        f"{town.namespace}-{name}",
        f"/api/v1/namespaces/{town.namespace}/persistentvolumeclaims",
    )
    size: JSON = {"storage": "1Gi"}
    spec: JSON = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    await post(
        town,
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": volume},
            "spec": {**spec, "capacity": size, "csi": {"driver": driver, "volumeHandle": name}},
        },
    )
    wants = {**spec, "resources": {"requests": size}, "volumeName": volume}
    await post(town, claims, {"metadata": {"name": name}, "spec": wants})
    bound = msgspec.json.encode({"status": {"phase": "Bound"}})
    request = Request("PATCH", f"{claims}/{name}/status", body=bound, content_type="application/merge-patch+json")
    await town.client.requests.call(request)


# Terms that change


async def test_a_gang_moved_to_another_queue_makes_room_in_its_own(slow: Slow) -> None:
    town = slow.town
    node = await town.create_node("a", cpu="4")
    queues = (town.namespace, f"{town.namespace}-other")
    for queue in queues:
        spec = {"weight": 1, "capability": {"cpu": "2"}}
        await town.client.create(Queue, {"metadata": {"name": queue}, "spec": spec})

    async def comes(name: str) -> None:
        await town.create_group(name, 2, queue=queues[0])
        for number in range(2):
            await town.create_pod(f"{name}-{number}", name, role="worker", index=number)

    try:
        async with slow.scheduling():
            await comes("first")
            for number in range(2):
                await slow.comes(Pod, f"first-{number}", lambda found: bool(found.spec.node_name))
            await comes("second")
            await slow.comes(PodGroup, "second", lambda found: "may have 2" in found.status.state.message)
            # Nothing has changed since it was last looked at.
            before = slow.rounds.count
            await town.set_allocatable(node, cpu="5")
            await slow.until(lambda: slow.rounds.count > before)
            for _ in range(10):
                await slow.moment()
            await town.client.patch(PodGroup, town.key("first"), {"spec": {"queue": queues[1]}})
            for number in range(2):
                await slow.comes(Pod, f"second-{number}", lambda found: bool(found.spec.node_name))
    finally:
        for queue in queues:
            await town.client.delete(Queue, Key("", queue))


async def post(town: SchedulerEnv, path: str, body: JSON) -> None:
    sent = msgspec.json.encode(body)
    await town.client.requests.call(Request("POST", path, body=sent, content_type="application/json"))
