"""What is written of queues."""

import asyncio
from datetime import timedelta

from gangline.api.meta import ObjectMeta
from gangline.api.scheduling import Queue, QueueStatus
from gangline.kube.client import Client
from gangline.runtime.informer import Delta
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.settings import Pace
from gangline.scheduler.status.queues import QueueReporter, body, status_of
from gangline.scheduler.types.cycle import Round
from gangline.testing.clock import FakeClock
from support.builders.gang_pods import group, pod
from support.servers.scripted import Scripted, answer

DESERVED = {"red": {"cpu": 3000, "nvidia.com/gpu": 0}}


def test_a_status_counts_groups_and_shows_amounts_as_people_write_them() -> None:
    phases = {("red", "Pending"): 2, ("red", ""): 1, ("red", "Running"): 3, ("blue", "Running"): 9}
    allocated = {"red": {"cpu": 1500, "nvidia.com/gpu": 8}}
    assert status_of("red", phases, allocated, DESERVED) == QueueStatus(
        pending=3,
        running=3,
        allocated={"cpu": "1500m", "nvidia.com/gpu": "8"},
        deserved={"cpu": "3"},
    )


def test_what_is_no_longer_held_is_taken_out() -> None:
    before = QueueStatus(allocated={"cpu": "4", "memory": "1Gi"})
    assert body(QueueStatus(allocated={"cpu": "2"}), before)["status"]["allocated"] == {
        "cpu": "2",
        "memory": None,
    }


async def test_it_is_written_seldom_and_only_if_it_changed() -> None:
    clock, wire, gangs = FakeClock(), Scripted(lambda request: answer({})), Gangs()
    gangs.put_group(group("g", 1, phase="Running", queue="red"))
    for number in range(3):
        member = pod(f"g-{number}", "g", node="a", phase="Running", cpu="500m")
        gangs.put_pod(member, shape_of(member))
    reporter = QueueReporter(Client(wire, scheme=SCHEME, clock=clock), clock, Pace())
    queue = Queue(metadata=ObjectMeta(name="red"))
    reporter.put(Delta(None, queue))
    reporter.decided(Round((), {}, DESERVED))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reporter.run())
        for _ in range(20):
            reporter.look(gangs)
            await clock.advance(timedelta(milliseconds=200))
        assert wire.requests == []
        await clock.advance(timedelta(seconds=1))
        (sent,) = wire.bodies
        assert sent["status"]["running"] == 1
        assert sent["status"]["allocated"] == {"cpu": "1500m", "pods": "3"}
        written = QueueStatus(running=1, allocated={"cpu": "1500m", "pods": "3"}, deserved={"cpu": "3"})
        reporter.put(Delta(queue, Queue(metadata=ObjectMeta(name="red"), status=written)))
        reporter.look(gangs)
        await clock.advance(timedelta(seconds=10))
        assert len(wire.requests) == 1
        running.cancel()
