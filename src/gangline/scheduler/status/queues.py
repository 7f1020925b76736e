"""Writes the status of queues: PodGroups by phase, what they use and what they deserve. Written seldom, for people."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Never, TypeAlias

from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroupPhase, Queue, QueueStatus
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.runtime.informer import Delta
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.quota.accounts import queue_usage
from gangline.scheduler.settings import Intervals
from gangline.scheduler.types.cycle import CycleResult
from gangline.scheduler.types.resources import as_quantity

log = logging.getLogger(__name__)

QueueAmounts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Queue -> resource -> amount."""


class QueueReporter:
    """Keeps the status of queues current. Does nothing until `run`."""

    def __init__(self, client: Client, clock: Clock, intervals: Intervals) -> None:
        self._client, self._clock, self._intervals = client, clock, intervals
        self._queues: dict[str, Queue] = {}
        self._deserved: QueueAmounts = {}
        self._gangs: GangRegistry | None = None
        self._wake = asyncio.Event()

    def update(self, delta: Delta[Queue]) -> None:
        name = delta.newest.metadata.name
        if delta.after is None:
            self._queues.pop(name, None)
        else:
            self._queues[name] = delta.after

    def record_cycle(self, result: CycleResult) -> None:
        """Keep the deserved shares of a cycle."""
        self._deserved = result.deserved

    def enqueue(self, gangs: GangRegistry) -> None:
        """Something about gangs changed."""
        self._gangs = gangs
        if self._queues:
            self._wake.set()

    async def run(self) -> Never:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(self._intervals.queue_write)
            self._wake.clear()
            if self._gangs is not None:
                await self._write_all(self._gangs)

    async def _write_all(self, gangs: GangRegistry) -> None:
        phases, allocated = Counter(_queue_phases(gangs)), queue_usage(gangs.allocations()).used
        for name, queue in list(self._queues.items()):
            status = queue_status(name, phases, allocated, self._deserved)
            if status != queue.status:
                await self._write_status(queue, status)

    async def _write_status(self, queue: Queue, status: QueueStatus) -> None:
        try:
            await self._client.patch(
                Queue, queue.metadata.key, status_patch(status, queue.status), subresource="status"
            )
        except NotFound:
            return
        except KubeError as error:
            log.warning("queue status not written", extra={"queue": queue.metadata.name, "error": str(error)})


def _queue_phases(gangs: GangRegistry) -> Iterator[tuple[str, str]]:
    """Queue and phase of every PodGroup."""
    for gang in gangs:
        if gang.pod_group is not None:
            yield gang.spec.queue, gang.state.phase


def queue_status(
    name: str, phases: Mapping[tuple[str, str], int], allocated: QueueAmounts, deserved: QueueAmounts
) -> QueueStatus:
    """The status of a queue."""
    return QueueStatus(
        pending=phases.get((name, PodGroupPhase.PENDING), 0) + phases.get((name, ""), 0),
        running=phases.get((name, PodGroupPhase.RUNNING), 0),
        recovering=phases.get((name, PodGroupPhase.RECOVERING), 0),
        unschedulable=phases.get((name, PodGroupPhase.UNSCHEDULABLE), 0),
        allocated=_quantities(allocated.get(name, {})),
        deserved=_quantities(deserved.get(name, {})),
    )


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: as_quantity(name, amount) for name, amount in sorted(amounts.items()) if amount}


def status_patch(status: QueueStatus, before: QueueStatus) -> JSON:
    """A merge patch to this status: resources no longer in use are removed."""
    return {
        "status": {
            "pending": status.pending,
            "running": status.running,
            "recovering": status.recovering,
            "unschedulable": status.unschedulable,
            "allocated": {**dict.fromkeys(before.allocated), **status.allocated},
            "deserved": {**dict.fromkeys(before.deserved), **status.deserved},
        }
    }
