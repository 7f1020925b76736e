"""The status of queues."""

import asyncio
from datetime import timedelta

from gangline.api.meta import ObjectMeta
from gangline.api.scheduling import Queue, QueueStatus
from gangline.kube.client import Client
from gangline.runtime.informer import Delta
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import Intervals
from gangline.scheduler.status.queues import QueueReporter, queue_status, status_patch
from gangline.scheduler.types.cycle import CycleResult
from gangline.testing.clock import FakeClock
from support.builders.gang_pods import make_gang_pod, make_pod_group
from support.servers.scripted import ScriptedTransport, json_response

DESERVED = {"red": {"cpu": 3000, "nvidia.com/gpu": 0}}


def test_a_status_counts_groups_and_shows_amounts_as_people_write_them() -> None:
    phases = {("red", "Pending"): 2, ("red", ""): 1, ("red", "Running"): 3, ("blue", "Running"): 9}
    allocated = {"red": {"cpu": 1500, "nvidia.com/gpu": 8}}
    assert queue_status("red", phases, allocated, DESERVED) == QueueStatus(
        pending=3,
        running=3,
        allocated={"cpu": "1500m", "nvidia.com/gpu": "8"},
        deserved={"cpu": "3"},
    )


def test_what_is_no_longer_held_is_taken_out() -> None:
    before = QueueStatus(allocated={"cpu": "4", "memory": "1Gi"})
    assert status_patch(QueueStatus(allocated={"cpu": "2"}), before)["status"]["allocated"] == {
        "cpu": "2",
        "memory": None,
    }


async def test_it_is_written_seldom_and_only_if_it_changed() -> None:
    clock, wire, gangs = FakeClock(), ScriptedTransport(lambda request: json_response({})), GangRegistry()
    gangs.put_group(make_pod_group("g", 1, phase="Running", queue="red"))
    for number in range(3):
        member = make_gang_pod(f"g-{number}", "g", node="a", phase="Running", cpu="500m")
        gangs.put_pod(member, shape_of(member))
    reporter = QueueReporter(Client(wire, scheme=SCHEME, clock=clock), clock, Intervals())
    queue = Queue(metadata=ObjectMeta(name="red"))
    reporter.update(Delta(None, queue))
    reporter.record_cycle(CycleResult((), {}, DESERVED))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reporter.run())
        for _ in range(20):
            reporter.enqueue(gangs)
            await clock.advance(timedelta(milliseconds=200))
        assert wire.requests == []
        await clock.advance(timedelta(seconds=1))
        (sent,) = wire.sent_bodies
        assert sent["status"]["running"] == 1
        assert sent["status"]["allocated"] == {"cpu": "1500m", "pods": "3"}
        written = QueueStatus(running=1, allocated={"cpu": "1500m", "pods": "3"}, deserved={"cpu": "3"})
        reporter.update(Delta(queue, Queue(metadata=ObjectMeta(name="red"), status=written)))
        reporter.enqueue(gangs)
        await clock.advance(timedelta(seconds=10))
        assert len(wire.requests) == 1
        running.cancel()
