import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gangline.api.core import ObjectReference, Pod, Service
from gangline.api.meta import EVERYTHING, JSON, Key, ListMeta, ObjectMeta, Selector
from gangline.kube.client import Kind
from gangline.kube.pages import Page
from gangline.kube.watch import WatchEvent
from gangline.runtime.events import EventRecorder, EventType
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import LeaderElector, LostLeadership, T
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.metrics import PrometheusMetrics
from gangline.runtime.sources import InformerSource, own_key
from gangline.testing.clock import FakeClock, settle
from support.servers.memory import MemoryCall, MemoryServer

SECOND = timedelta(seconds=1)
LEASE = Key("system", "operator")
POD = Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u", resource_version="1"))


class Still:
    """A server with one pod that never changes. Its lists can be delayed."""

    def __init__(self, diary: list[str]) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.lists: list[str] = []
        self._diary = diary

    async def get(self, kind: Kind[T], key: Key) -> T:
        raise NotImplementedError

    async def pages(self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = 500) -> AsyncIterator[Page[T]]:
        await self.answers.wait()
        self.lists.append(f"{kind.__name__ if isinstance(kind, type) else kind} {where.namespace}")
        items: tuple[T, ...] = (POD,) if kind is Pod else ()  # type: ignore[assignment]
        yield Page(metadata=ListMeta(resource_version="1"), items=items)

    async def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = SECOND,
    ) -> AsyncIterator[WatchEvent[T]]:
        try:
            await asyncio.Event().wait()
            yield  # type: ignore[misc]
        finally:
            self._diary.append("informer ended")


class Plant:
    """A manager with all parts, and a record of what happened in which order."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.clock = FakeClock()
        self.server = MemoryServer()
        self.reader = Still(self.diary)
        self.cut = False
        client = self.server.client(self.wire)
        self.leader = LeaderElector(client, LEASE, "me", self.clock)
        self.recorder = EventRecorder(client, "gangline.dev/test", "me", self.clock)
        self.metrics = PrometheusMetrics()
        self.health = HealthServer(metrics=self.metrics, metrics_address="127.0.0.1:0", probe_address="127.0.0.1:0")
        self.manager = Manager(
            self.reader,
            self.clock,
            leader=self.leader,
            recorder=self.recorder,
            health=self.health,
            metrics=self.metrics,
        )
        self.pods = self.manager.informer(Pod)
        self.finish = asyncio.Event()
        self.error: Exception | None = None
        self.manager.new_controller("pods", self, [InformerSource(self.pods, own_key)], ControllerOptions(workers=1))
        self.stop = asyncio.Event()

    async def wire(self, call: MemoryCall) -> JSON:
        if self.cut:
            await asyncio.Event().wait()
        answer = call.perform()
        if call.verb != "get":
            released = call.plural == "leases" and answer["spec"]["holderIdentity"] == ""
            self.diary.append("lease released" if released else f"{call.verb} {call.plural}")
        return answer

    async def reconcile(self, key: Key) -> None:
        self.diary.append("pass began")
        try:
            await self.finish.wait()
            if self.error is not None:
                raise self.error
            self.recorder.record(ObjectReference(kind="Pod", namespace="n", name="p"), EventType.NORMAL, "Done", "well")
            self.diary.append("pass ended")
        except asyncio.CancelledError:
            self.diary.append("pass cancelled")
            raise

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.manager.run(self.stop, signals=False))
            while self.reader.answers.is_set() and "pass began" not in self.diary and not task.done():
                await settle()
            yield task

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[list[Exception]]:
        """The running manager; after the block, the error of its `run`."""
        errors: list[Exception] = []

        async def run() -> None:
            try:
                await self.manager.run(self.stop, signals=False)
            except Exception as error:
                errors.append(error)

        async with asyncio.TaskGroup() as group:
            group.create_task(run())
            while "pass began" not in self.diary:
                await settle()
            yield errors


@pytest.fixture
def plant() -> Plant:
    return Plant()


async def test_parts_start_in_order_and_stop_in_order(plant: Plant) -> None:
    async with plant.running() as task:
        assert plant.diary == ["create leases", "pass began"]
        plant.stop.set()
        await plant.clock.advance(5 * SECOND)
        assert not task.done()
        plant.diary = [line for line in plant.diary if line != "patch leases"]  # renewals, meanwhile
        plant.reader._diary = plant.diary
        plant.finish.set()
    assert plant.diary == [
        "create leases",
        "pass began",
        "pass ended",
        "create events",
        "informer ended",
        "lease released",
    ]


async def test_pass_that_does_not_finish_in_time_is_cancelled(plant: Plant) -> None:
    async with plant.running() as task:
        plant.stop.set()
        await plant.clock.advance(9.9 * SECOND)
        assert "pass cancelled" not in plant.diary
        await plant.clock.advance(0.1 * SECOND)
        assert plant.diary[-3:] == ["pass cancelled", "informer ended", "lease released"]
        assert not task.cancelled()


async def test_nothing_is_elected_or_reconciled_before_the_caches_have_synced(plant: Plant) -> None:
    plant.reader.answers.clear()
    async with plant.running():
        await plant.clock.advance(60 * SECOND)
        assert plant.diary == []
        plant.stop.set()
    assert plant.diary == []


async def test_stop_while_another_leads_ends_the_waiting(plant: Plant) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    plant.server.create("leases", LEASE, {"metadata": {"name": LEASE.name}, "spec": spec})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(plant.manager.run(plant.stop, signals=False))
        while not plant.pods.is_synced:
            await settle()
        await plant.clock.advance(4 * SECOND)
        plant.stop.set()
    assert task.done()
    assert plant.diary == ["informer ended"]


async def test_lost_lease_ends_the_run_with_the_work_cancelled(plant: Plant) -> None:
    async with plant.failing() as errors:
        plant.cut = True
        await plant.clock.advance(10 * SECOND)
        assert plant.diary[-1] == "pass cancelled"
        await plant.clock.advance(10 * SECOND)
    assert [type(error) for error in errors] == [LostLeadership]


async def test_error_of_a_part_brings_all_down_and_is_raised_as_itself(plant: Plant) -> None:
    async def faulty() -> None:
        await plant.clock.sleep(SECOND)
        raise ZeroDivisionError("oops")

    plant.manager.add_runnable(faulty)
    async with plant.failing() as errors:
        await plant.clock.advance(SECOND)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert plant.diary[:2] == ["create leases", "pass began"]
    assert set(plant.diary[2:]) == {"pass cancelled", "lease released", "informer ended"}


async def test_failing_pass_brings_nothing_down(plant: Plant) -> None:
    plant.error = ZeroDivisionError()
    plant.finish.set()
    async with plant.running() as task:
        await plant.clock.advance(60 * SECOND)
        assert not task.done()
        assert plant.diary.count("pass began") > 3
        plant.stop.set()


async def test_runnables_run_while_leading_or_all_the_time(plant: Plant) -> None:
    async def note(what: str) -> None:
        plant.diary.append(f"{what} began")
        try:
            await asyncio.Event().wait()
        finally:
            plant.diary.append(f"{what} ended")

    plant.manager.add_runnable(lambda: note("term"))
    plant.manager.add_runnable(lambda: note("life"), leading=False)
    plant.finish.set()
    async with plant.running():
        await settle()
        plant.stop.set()
    assert plant.diary[0] == "life began"
    order = [line for line in plant.diary if line in ("term ended", "life ended", "lease released")]
    assert order == ["term ended", "life ended", "lease released"]


async def test_cancel_ends_everything_at_once_and_releases_the_lease(plant: Plant) -> None:
    async with plant.running() as task:
        task.cancel()
    assert "pass cancelled" in plant.diary
    assert plant.server.get("leases", LEASE)["spec"]["holderIdentity"] == ""


def by_node(pod: Pod) -> Iterable[Hashable]:
    return (pod.spec.node_name,)


def by_name(pod: Pod) -> Iterable[Hashable]:
    return (pod.metadata.name,)


async def test_informers_are_shared_by_kind_and_selection(plant: Plant) -> None:
    manager = plant.manager
    first = manager.informer(Pod, indexes={"node": by_node})
    assert first is plant.pods
    second = manager.informer(Pod, indexes={"name": by_name, "node": by_node})
    assert second is first
    assert manager.informer(Pod, Selector(namespace="n")) is not first
    assert manager.informer(Service) is manager.informer(Service)
    with pytest.raises(ValueError, match="another index 'node'"):
        manager.informer(Pod, indexes={"node": by_name})
    async with plant.running():
        await settle()
        assert first.cache.by_index("name", "p") == (POD,)
        assert manager.informer(Pod, indexes={"late": by_name}).cache.by_index("late", "p") == (POD,)
        plant.finish.set()
        plant.stop.set()
    assert sorted(plant.reader.lists) == ["Pod ", "Pod n", "Service "]


async def test_metrics_follow_every_part(plant: Plant) -> None:
    async with plant.running():
        text = plant.metrics.render()[0].decode()
        assert 'workqueue_adds_total{controller="pods",name="pods"} 1.0' in text
        assert 'controller_runtime_active_workers{controller="pods"} 1.0' in text
        assert 'gangline_informer_objects{resource="Pod"} 1.0' in text
        await plant.clock.advance(3 * SECOND)
        text = plant.metrics.render()[0].decode()
        assert 'workqueue_unfinished_work_seconds{controller="pods",name="pods"} 3.0' in text
        plant.finish.set()
        plant.stop.set()


PROGRAM = """
    import asyncio, sys
    from gangline.base.clock import SystemClock
    from gangline.runtime.manager import Manager

    async def slow():
        print("ready", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("stopping", flush=True)
            await asyncio.sleep(float(sys.argv[1]))

    async def main():
        manager = Manager(None, SystemClock())
        manager.add_runnable(slow)
        await manager.run()
        print("stopped", flush=True)

    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("twice", [False, True])
def test_first_signal_stops_in_order_and_the_second_kills(number: signal.Signals, twice: bool) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), "60" if twice else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == "stopping\n"
        if twice:
            child.send_signal(number)
        assert child.stdout.read() == ("" if twice else "stopped\n")
    assert child.returncode == (-number if twice else 0)
