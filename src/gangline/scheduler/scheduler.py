"""The running scheduler: what informers tell becomes rounds of decisions, and decisions become calls.

Woken by changes, never by a clock alone. A round decides on one snapshot in which everything decided before counts as
done, until it is seen to be done or to have failed; so rounds go on while calls are under way. All state is built anew
from a list taken after the election was won, and no call is made before that list is complete: what a former leader
did is in it.
"""

import asyncio
import logging
import operator
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, Never

from gangline.api.core import PriorityClass
from gangline.api.scheduler_views import (
    PLACING,
    Claim,
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    Pod,
    StorageClass,
)
from gangline.api.scheduling import PODGROUPS, QUEUES, PodGroup, Queue
from gangline.api.scheme import CORE, Scheme
from gangline.base.clock import Clock, Timer
from gangline.kube.client import Client
from gangline.kube.discovery import served
from gangline.kube.errors import KubeError
from gangline.runtime.events import Recorder
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.interning import Sharing
from gangline.scheduler.binding.dispatcher import Carrier
from gangline.scheduler.cache.cache import World
from gangline.scheduler.cache.disruption_budgets import BUDGETS, Budget
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.metrics import UNCOUNTED, Meters
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.status.pod_conditions import Signals
from gangline.scheduler.status.podgroups import Reporter
from gangline.scheduler.status.queues import QueueReporter
from gangline.scheduler.timers import Deadlines
from gangline.scheduler.types.cycle import Ask
from gangline.scheduler.types.kinds import Kinds

log = logging.getLogger(__name__)

SCHEME: Scheme = CORE.extended(*PLACING, PODGROUPS, QUEUES, BUDGETS)
"""All that a scheduler reads and writes. Pods and nodes are read as `api.placing` has them."""
CONTROLLER = "gangline.dev/scheduler"
Prepare = Callable[[int], Awaitable[None]]
"""Gets ready for so many calls at once, which are about to come. Never fails."""
AGAIN = timedelta(seconds=1)
"""Between two questions to a server that does not answer."""


class Scheduler:
    """One term of scheduling. Make a new one for every term: it starts with nothing. Inert until `run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: Recorder,
        settings: SchedulerSettings | None = None,
        meters: Meters = UNCOUNTED,
        *,
        prepare: Prepare | None = None,
    ) -> None:
        """The client needs `SCHEME`."""
        self._client, self._clock, self._meters, self._prepare = client, clock, meters, prepare
        self._settings = settings or SchedulerSettings()
        self._wake = asyncio.Event()
        # How many members of a gang are about to come.
        self._expected, self._expects = 0, asyncio.Event()
        # Whether a round may help somebody; else only what changed is told.
        self._useful = False
        self._timer: Timer | None = None
        self._world = World(self._settings, self._use)
        self._world.noticed, self._world.gone = self._wake.set, self._gone
        self._carrier = Carrier(client, clock, self._world, recorder, self._settings, meters, self._use)
        self._deadlines = Deadlines(self._settings, self._carrier)
        pace, gangs = self._settings.pace, self._world.gangs
        busy = self._carrier.committer
        self._reporter = Reporter(
            client, clock, gangs, recorder, pace, busy=lambda: busy.busy, changed=self._use
        )
        self._signals = Signals(client, clock, pace)
        self._queues = QueueReporter(client, clock, pace)
        self._informers = {kind: self._informer(kind) for kind in self._kinds()}
        # When a round said that it would decide otherwise.
        self._again: datetime | None = None
        # What the last round was about, so that nothing is decided twice, and how long it took.
        self._decided: tuple[int, list[Ask]] | None = None
        self._took = 0.0
        self._alike = Kinds()

    def unsynced(self) -> str:
        """Which caches are not filled yet, in words. Empty when all are."""
        missing = ", ".join(informer.name for informer in self._informers.values() if not informer.is_synced)
        return f"no first list of {missing}" if missing else ""

    async def run(self) -> None:
        """Schedule until cancelled."""
        if not await self._has(CSINode):
            # A server without storage drivers: ours.
            del self._informers[CSINode]
        if self._prepare is not None:
            await self._prepare(self._settings.at_once)
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced()
            log.info("caches synced, scheduling", extra={"scheduler": self._settings.name})
            with self._following():
                for work in self._parts():
                    group.create_task(_endless(work))
                await self._rounds()

    def _parts(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self._carrier.committer.run,
            self._carrier.evictor.run,
            self._reporter.run,
            self._signals.run,
            self._queues.run,
            self._expect,
        ]

    # Following the server

    def _kinds(self) -> dict[Any, Callable[[Delta[Any]], None]]:
        """Kind -> who is told; in the order in which what is there is told first."""
        world = self._world
        return {
            PriorityClass: world.priority_class,
            Queue: self._queue,
            Namespace: world.namespace,
            StorageClass: world.storage_class,
            PersistentVolume: world.volume,
            Claim: world.claim,
            CSINode: world.limits,
            Budget: world.budget,
            Node: world.node,
            PodGroup: self._group,
            Pod: world.pod,
        }

    async def _has(self, kind: type[Any]) -> bool:
        """Whether the server has this kind. Asked until it answers."""
        while True:
            try:
                return await served(self._client, SCHEME.of(kind))
            except KubeError as error:
                log.warning("server does not say what it has, will retry", extra={"error": str(error)})
                await self._clock.sleep(AGAIN)

    def _informer(self, kind: type[Any]) -> Informer[Any]:
        return Informer(self._client, kind, clock=self._clock, trim=Sharing())

    @contextmanager
    def _following(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind, tell in self._kinds().items():
                if kind in self._informers:
                    stack.enter_context(self._informers[kind].subscribed(tell))
            yield

    def _queue(self, delta: Delta[Queue]) -> None:
        self._world.queue(delta)
        self._queues.put(delta)

    def _group(self, delta: Delta[PodGroup]) -> None:
        self._world.group(delta)
        if delta.before is None and delta.after is not None and not delta.after.status.running:
            # Its members come next.
            self._expected = max(self._expected, delta.after.spec.min_member)
            self._expects.set()

    async def _expect(self) -> Never:
        """Members that are about to come shall not wait for what can be made ready before."""
        while True:
            await self._expects.wait()
            self._expects.clear()
            count, self._expected = self._expected, 0
            if self._prepare is not None:
                await self._prepare(min(count, self._settings.at_once))

    def _gone(self, uid: str) -> None:
        self._carrier.forget(uid)
        self._signals.forget(uid)
        self._reporter.forget(uid)

    # Rounds

    async def _rounds(self) -> Never:
        try:
            while True:
                await self._wake.wait()
                await self._clock.sleep(self._pause())
                self._wake.clear()
                self._turn()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _use(self) -> None:
        self._useful = True
        self._wake.set()

    def _pause(self) -> timedelta:
        pace = self._settings.pace
        return max(pace.debounce, min(timedelta(seconds=self._took), pace.longest))

    def _turn(self) -> None:
        now = self._clock.now()
        self._deadlines.look(now)
        if self._useful or self._due(now):
            self._useful = False
            self._round(now)
        self._tell_changes()
        self._set_timer(now)

    def _round(self, now: datetime) -> None:
        began, world = self._clock.monotonic(), self._world
        # Before budgets forget who refused: then those may be asked again, though nothing else has changed.
        due = self._due(now)
        world.budgets.protect(world.gangs, now)
        asks = world.gangs.asks()
        if asks and (due or not self._is_decided(asks)):
            found = schedule(
                world.cluster.trial(),
                asks,
                world.gangs.holdings(),
                world.queues,
                self._settings.policy,
                now,
                kinds=self._alike,
            )
            self._decided, self._again = (world.version, asks), found.again
            self._carrier.carry_out(found, now)
            self._took = self._clock.monotonic() - began
            self._meters.round(self._took, found)
            self._queues.decided(found)
        elif not asks:
            # Nobody is left whose patience could end.
            self._again = None
        self._meters.waiting(len(asks), sum(need.count for ask in asks for need in ask.needs))

    def _is_decided(self, asks: list[Ask]) -> bool:
        """Whether the last round was about the very same."""
        if self._decided is None:
            return False
        version, before = self._decided
        same = len(asks) == len(before) and all(map(operator.is_, asks, before))
        return same and version == self._world.version

    def _due(self, now: datetime) -> bool:
        times = (self._again, self._world.budgets.until)
        return any(time is not None and time <= now for time in times)

    def _tell_changes(self) -> None:
        gangs = self._world.gangs
        changed, gangs.changed = gangs.changed, {}
        for gang in changed:
            self._reporter.look(gang)
            self._signals.look(gang)
            self._deadlines.note(gang)
        if changed:
            self._queues.look(gangs)

    def _set_timer(self, now: datetime) -> None:
        known = (self._deadlines.next, self._again, self._world.budgets.until)
        times = [time for time in known if time is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if times:
            self._timer = self._clock.call_later(max(min(times) - now, timedelta()), self._wake.set)


async def _endless(work: Callable[[], Awaitable[object]]) -> None:
    await work()
