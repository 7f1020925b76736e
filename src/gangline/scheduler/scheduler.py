"""The running scheduler: informers feed the cache, changes cause cycles, and decisions become API calls.

Woken by changes, never by a clock alone. A cycle decides on a snapshot in which all earlier decisions count as done
until they are seen to be done or to have failed; so cycles go on while calls are in flight. All state is built from a
list taken after the election was won, and no call is made before that list is complete: it contains what a former
leader did.
"""

import asyncio
import logging
import operator
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, Never

from gangline.api.scheduler_views import PLACEMENT_SCHEME, CSINode, VolumeClaim
from gangline.api.scheduling import PODGROUPS, QUEUES, PodGroup, Queue
from gangline.api.scheme import CORE_SCHEME, Scheme
from gangline.base.clock import Clock, Timer
from gangline.base.tracing import trace_span
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import KubeError
from gangline.runtime.events import EventRecorder
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.interning import ObjectInterner
from gangline.scheduler.binding.binder import PodBinder
from gangline.scheduler.binding.dispatcher import Dispatcher
from gangline.scheduler.binding.evictor import Evictor
from gangline.scheduler.binding.gang_events import GangEvents
from gangline.scheduler.binding.gang_timers import GangTimers
from gangline.scheduler.binding.outcomes import BindingOutcomes
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.cache.disruption_budgets import DISRUPTION_BUDGETS, PodDisruptionBudget
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.metrics import NULL_METRICS, SchedulerMetrics
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.status.pod_conditions import PodConditionReporter
from gangline.scheduler.status.podgroups import PodGroupReporter
from gangline.scheduler.status.queues import QueueReporter
from gangline.scheduler.types.cycle import GangRequest
from gangline.scheduler.types.equivalence import EquivalenceClasses
from gangline.scheduler.types.gang_requests import member_count

log = logging.getLogger(__name__)

SCHEME: Scheme = CORE_SCHEME.with_resources(*PLACEMENT_SCHEME, PODGROUPS, QUEUES, DISRUPTION_BUDGETS)
"""All kinds that the scheduler reads and writes. Pods and nodes are read as `api.scheduler_views` defines them."""
CONTROLLER = "gangline.dev/scheduler"
PrepareConnections = Callable[[int], Awaitable[None]]
"""Opens connections for this many concurrent calls that are about to come. Never fails."""
DISCOVERY_RETRY = timedelta(seconds=1)
"""Delay between two discovery requests to a server that does not answer."""


class Scheduler:
    """The scheduler for one term of leadership. Create a new one for every term. Does nothing until `run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        settings: SchedulerSettings | None = None,
        metrics: SchedulerMetrics = NULL_METRICS,
        *,
        prepare: PrepareConnections | None = None,
    ) -> None:
        """The client needs `SCHEME`."""
        self._client, self._clock, self._metrics, self._prepare = client, clock, metrics, prepare
        self._settings = settings or SchedulerSettings()
        self._wake = asyncio.Event()
        # How many members of a gang are about to be created.
        self._expected_members, self._members_expected = 0, asyncio.Event()
        # Whether a cycle may help a waiting gang; otherwise changes are only reported.
        self._cycle_requested = False
        self._timer: Timer | None = None
        # The wiring. Decisions flow down: dispatcher, then binder and evictor. Their results flow back through the
        # outcomes into the cache, which requests the next cycle.
        self._cache = cache = SchedulerCache(
            self._settings,
            request_cycle=self._request_cycle,
            gang_changed=self._wake.set,
            object_deleted=self._on_deleted,
        )
        events = GangEvents(recorder)
        outcomes = BindingOutcomes(cache, clock, events, metrics)
        self._binder = binder = PodBinder(client, clock, outcomes, at_once=self._settings.concurrency)
        self._evictor = Evictor(client, clock, outcomes)
        self._dispatcher = Dispatcher(
            cache, binder, self._evictor, outcomes, events, self._settings, metrics, self._request_cycle
        )
        self._gang_timers = GangTimers(self._settings, self._dispatcher, events)
        intervals = self._settings.intervals
        self._group_reporter = PodGroupReporter(
            client, clock, cache.gangs, recorder, intervals, is_busy=lambda: binder.is_busy, changed=self._request_cycle
        )
        self._condition_reporter = PodConditionReporter(client, clock, intervals)
        self._queue_reporter = QueueReporter(client, clock, intervals)
        self._handlers: dict[type[Any], Callable[[Delta[Any]], None]] = {
            **cache.handlers,
            Queue: self._on_queue,
            PodGroup: self._on_group,
        }
        self._informers = {kind: self._informer(kind) for kind in self._handlers}
        # When the last cycle would decide differently although nothing has changed.
        self._recheck_at: datetime | None = None
        # The input of the last cycle, so that nothing is decided twice, and how long the cycle took.
        self._last_input: tuple[int, list[GangRequest]] | None = None
        self._cycle_seconds = 0.0
        self._classes = EquivalenceClasses()

    def unsynced_message(self) -> str:
        """Names the caches that are not synced yet; empty when all are."""
        missing = ", ".join(informer.name for informer in self._informers.values() if not informer.is_synced)
        return f"no first list of {missing}" if missing else ""

    async def run(self) -> None:
        """Schedule until cancelled."""
        if not await self._is_served(CSINode):
            # The server has no storage drivers; our own is such a server.
            del self._informers[CSINode]
        if self._prepare is not None:
            await self._prepare(self._settings.concurrency)
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            for informer in self._informers.values():
                await informer.wait_for_sync()
            log.info("caches synced, scheduling", extra={"scheduler": self._settings.name})
            with self._subscribed():
                for job in self._workers():
                    group.create_task(job())
                await self._run_cycles()

    def _workers(self) -> list[Callable[[], Coroutine[Any, Any, object]]]:
        return [
            self._binder.run,
            self._evictor.run,
            self._group_reporter.run,
            self._condition_reporter.run,
            self._queue_reporter.run,
            self._prepare_for_members,
        ]

    async def _is_served(self, kind: type[Any]) -> bool:
        """Whether the server has this kind. Retries until the server answers."""
        while True:
            try:
                return await is_served(self._client, SCHEME.of(kind))
            except KubeError as error:
                log.warning("server does not say what it has, will retry", extra={"error": str(error)})
                await self._clock.sleep(DISCOVERY_RETRY)

    def _informer(self, kind: type[Any]) -> Informer[Any]:
        # Pods of all namespaces take room on nodes; what gangs have besides is read where they are.
        is_scoped = kind in (PodGroup, VolumeClaim, PodDisruptionBudget)
        namespaces = self._settings.namespaces if is_scoped else ()
        return Informer(self._client, kind, clock=self._clock, namespaces=namespaces, trim=ObjectInterner())

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind, observer in self._handlers.items():
                if kind in self._informers:
                    stack.enter_context(self._informers[kind].subscribe(observer))
            yield

    def _on_queue(self, delta: Delta[Queue]) -> None:
        self._cache.on_queue(delta)
        self._queue_reporter.update(delta)

    def _on_group(self, delta: Delta[PodGroup]) -> None:
        self._cache.on_group(delta)
        if delta.before is None and delta.after is not None and not delta.after.status.running:
            # Its members are created next.
            self._expected_members = max(self._expected_members, delta.after.spec.min_member)
            self._members_expected.set()

    async def _prepare_for_members(self) -> Never:
        """Open connections before the members of a new gang arrive."""
        while True:
            await self._members_expected.wait()
            self._members_expected.clear()
            count, self._expected_members = self._expected_members, 0
            if self._prepare is not None:
                await self._prepare(min(count, self._settings.concurrency))

    def _on_deleted(self, uid: str) -> None:
        self._dispatcher.forget(uid)
        self._condition_reporter.forget(uid)
        self._group_reporter.forget(uid)

    async def _run_cycles(self) -> Never:
        try:
            while True:
                await self._wake.wait()
                await self._clock.sleep(self._cycle_delay())
                self._wake.clear()
                self._step()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _request_cycle(self) -> None:
        self._cycle_requested = True
        self._wake.set()

    def _cycle_delay(self) -> timedelta:
        intervals = self._settings.intervals
        return max(intervals.debounce, min(timedelta(seconds=self._cycle_seconds), intervals.max_cycle_delay))

    def _step(self) -> None:
        now = self._clock.now()
        self._gang_timers.run_due(now)
        if self._cycle_requested or self._is_recheck_due(now):
            self._cycle_requested = False
            self._run_cycle(now)
        self._report_changes()
        self._set_timer(now)

    def _run_cycle(self, now: datetime) -> None:
        started, cache = self._clock.monotonic(), self._cache
        # Before expired refusals are dropped below: these pods may be evicted again, though nothing else has changed.
        is_due = self._is_recheck_due(now)
        cache.budgets.protect_members(cache.gangs, now)
        requests = cache.gangs.requests()
        if requests and (is_due or not self._is_unchanged(requests)):
            with trace_span("scheduling cycle") as span:
                span.set_attribute("gangline.gangs", len(requests))
                result = schedule(
                    cache.nodes.what_if(),
                    requests,
                    cache.gangs.allocations(),
                    cache.queues,
                    self._settings.policy,
                    now,
                    classes=self._classes,
                )
                self._last_input, self._recheck_at = (cache.version, requests), result.recheck_at
                self._dispatcher.dispatch(result, now)
            self._cycle_seconds = self._clock.monotonic() - started
            self._metrics.observe_cycle(self._cycle_seconds, result, now)
            self._queue_reporter.record_cycle(result)
        elif not requests:
            # No gang waits, so no starvation timeout can end.
            self._recheck_at = None
        oldest = min((request.waiting_since for request in requests), default=None)
        self._metrics.set_pending(len(requests), sum(map(member_count, requests)), oldest)

    def _is_unchanged(self, requests: list[GangRequest]) -> bool:
        """Whether the last cycle had the same input."""
        if self._last_input is None:
            return False
        version, before = self._last_input
        is_same = len(requests) == len(before) and all(map(operator.is_, requests, before))
        return is_same and version == self._cache.version

    def _is_recheck_due(self, now: datetime) -> bool:
        times = (self._recheck_at, self._cache.budgets.next_retry_at)
        return any(time is not None and time <= now for time in times)

    def _report_changes(self) -> None:
        gangs = self._cache.gangs
        changed, gangs.changed_gangs = gangs.changed_gangs, {}
        for gang in changed:
            self._group_reporter.enqueue(gang)
            self._condition_reporter.enqueue(gang)
            self._gang_timers.mark_changed(gang)
        if changed:
            self._queue_reporter.enqueue(gangs)

    def _set_timer(self, now: datetime) -> None:
        candidates = (self._gang_timers.next_at, self._recheck_at, self._cache.budgets.next_retry_at)
        times = [time for time in candidates if time is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if times:
            self._timer = self._clock.call_later(max(min(times) - now, timedelta()), self._wake.set)
