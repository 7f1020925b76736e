"""Watches jobs and notifies receivers of their states, while this process leads.

Nothing here can hold up or end the operator: a change of a job costs the watch one comparison, everything else is done by
tasks of its own, and an unexpected error is logged.

The guarantee: each state that a job reaches is delivered at least once to each route that admits it, in order for each
job. A notification is repeated, with the same id, if the process ended between its delivery and the next write of the
journal; there are never more than `MAX_UNWRITTEN` such ones. What is lost is said in docs/notifications.md.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Never, Protocol

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.meta import EVERYTHING
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_until_first, time_limit, unwrap_exception_group
from gangline.kube.client import ApiReader
from gangline.notify.delivery import DeliveryChannel, DeliveryResult, RouteDelivery
from gangline.notify.plan.journal import Due, NotificationJournal
from gangline.notify.plan.retries import retry_delay
from gangline.notify.plan.routes import NotificationRoute, NotificationSettings
from gangline.notify.plan.transitions import waits_since
from gangline.notify.records import JournalRecords
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

WRITE_DELAY = timedelta(milliseconds=500)
"""How long changes of the journal are collected before they are written, in one request."""
MAX_UNWRITTEN = 100
"""Notifications that may be delivered before that is written down; then deliveries wait for the journal."""
MAX_CHANGES = 20_000
"""Changes of jobs that may wait to be looked at; if there are more, all jobs are looked at once."""
CHANGES_PER_TURN = 64
TICK = timedelta(seconds=10)
FLUSH_TIMEOUT = timedelta(seconds=2)
RESTART_DELAY = timedelta(seconds=30)

ChannelFactory = Callable[[NotificationRoute], AbstractAsyncContextManager[DeliveryChannel]]
JobInformer = Informer[Any]


class NotificationMetrics(Protocol):
    """Receives what became of notifications, and reads the lengths of queues."""

    def count(self, route: str, result: DeliveryResult) -> None: ...
    def set_queue(self, route: str, length: Callable[[], int], results: Iterable[DeliveryResult]) -> None: ...


class NotifierOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a notifier ends, and to whom it reports."""

    metrics: NotificationMetrics | None = None
    # How long the end waits until everything is delivered; for a plane that nobody continues.
    finish_within: timedelta = timedelta()
    # Called at the end with one line about what was not delivered in that time.
    report_undelivered: Callable[[str], None] | None = None


DEFAULT_OPTIONS = NotifierOptions()


class Notifier:
    """Notifies receivers of the states of jobs. Add the informers, then run it while leading."""

    def __init__(
        self,
        settings: NotificationSettings,
        reader: ApiReader,
        records: JournalRecords,
        channels: ChannelFactory,
        clock: Clock,
        options: NotifierOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._settings, self._reader, self._records = settings, reader, records
        self._channels, self._clock, self._options = channels, clock, options
        self._informers: list[JobInformer] = []

    def follow(self, informer: JobInformer) -> None:
        """Notify of these jobs, too. The informer must be run by somebody else."""
        self._informers.append(informer)

    async def run(self) -> Never:
        """Notify until cancelled."""
        while True:
            try:
                with unwrap_exception_group():
                    await self._run_term()
            except Exception:
                log.exception("notifications failed unexpectedly, will start again", extra={"delay": RESTART_DELAY})
            await self._clock.sleep(RESTART_DELAY)

    async def _run_term(self) -> Never:
        records = await self._load()
        for informer in self._informers:
            await informer.wait_for_sync()
        journal = NotificationJournal(self._settings, records, self._clock.now())
        term = _Term(self._settings, journal, self._records, self._informers, self._clock, self._options)
        term.add_routes(self._channels)
        try:
            await term.run()
        finally:
            try:
                await term.finish(self._current_jobs if self._options.finish_within else None)
            except Exception:
                # Not raised: it would take the place of the cancellation that ends this call.
                log.exception("notifications could not be finished")

    async def _load(self) -> Any:
        failures = 0
        while True:
            try:
                return await self._records.load()
            except GanglineError as error:
                failures += 1
                delay = retry_delay(failures, 1.0)
                fields = {"error": str(error), "delay": delay}
                log.warning("notifications wait: what was delivered cannot be read", extra=fields)
                await self._clock.sleep(delay)

    async def _current_jobs(self) -> AsyncIterator[TrainingJob]:
        """The jobs as the server has them: the caches may lag behind."""
        for informer in self._informers:
            async for page in self._reader.pages(informer.kind, EVERYTHING):
                for job in page.items:
                    yield job


class _Term:
    """The state of a notifier while it leads: journal, queues, and changes that wait to be looked at."""

    def __init__(
        self,
        settings: NotificationSettings,
        journal: NotificationJournal,
        records: JournalRecords,
        informers: Sequence[JobInformer],
        clock: Clock,
        options: NotifierOptions,
    ) -> None:
        self._settings, self._journal, self._records = settings, journal, records
        self._informers, self._clock, self._options = informers, clock, options
        self._deliveries: dict[str, RouteDelivery] = {}
        self._changes: deque[Delta[Any]] = deque()
        self._must_rescan = False
        self._changed, self._dirty, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        # Jobs that wait to run, by uid: their state changes by time alone.
        self._waiting: dict[str, TrainingJob] = {}
        # Deliveries that are not written down yet.
        self._unwritten = 0
        self._write_failures = 0
        if journal.has_changes:
            self._dirty.set()

    def add_routes(self, channels: ChannelFactory) -> None:
        for route in self._settings.routes:
            delivery = RouteDelivery(
                route,
                partial(channels, route),
                self._clock,
                capacity=self._settings.queue_size,
                max_age=self._settings.max_age,
                settle=self._settle,
                may_deliver=lambda: self._unwritten < MAX_UNWRITTEN,
            )
            self._deliveries[route.name] = delivery
            if self._options.metrics is not None:
                self._options.metrics.set_queue(route.name, delivery.__len__, DeliveryResult)

    async def run(self) -> Never:
        """Look at changes, deliver and write until cancelled."""
        self._queue(self._journal.resume(self._jobs_by_uid()))
        with ExitStack() as subscriptions:
            for informer in self._informers:
                subscriptions.enter_context(informer.subscribe(self._on_change))
            async with asyncio.TaskGroup() as group:
                for work in (self._look_at_changes, self._look_at_time, self._write_journal):
                    group.create_task(work())
                for delivery in self._deliveries.values():
                    group.create_task(delivery.run())
        raise AssertionError("a loop without end has ended")

    async def finish(self, current_jobs: Callable[[], AsyncIterator[TrainingJob]] | None) -> None:
        """Write what was delivered. With `current_jobs`, deliver what is left first, as far as time allows."""
        if current_jobs is not None:
            with suppress(TimeoutError):
                async with time_limit(self._options.finish_within, self._clock):
                    with suppress(GanglineError):
                        async for job in current_jobs():
                            self._observe(job)
                    await self._deliver_rest()
            self._report_undelivered()
        with suppress(TimeoutError):
            async with time_limit(FLUSH_TIMEOUT, self._clock):
                await self._write()

    async def _deliver_rest(self) -> None:
        if any(self._deliveries.values()):
            self._idle.clear()
            deliveries = (delivery.run() for delivery in self._deliveries.values())
            with unwrap_exception_group():
                await run_until_first(self._idle.wait(), self._write_journal(), *deliveries)

    def _report_undelivered(self) -> None:
        if self._options.report_undelivered is None:
            return
        for delivery in self._deliveries.values():
            if count := len(delivery):
                what = "1 notification was" if count == 1 else f"{count} notifications were"
                problem = delivery.problem or "no time was left"
                self._options.report_undelivered(f"{what} not delivered ({delivery.route.name}): {problem}")

    # Changes

    def _on_change(self, delta: Delta[Any]) -> None:
        """Called by informers, so it does next to nothing."""
        before, after = delta.before, delta.after
        if before is not None and after is not None:
            old, new = before.status, after.status
            if old is new or (old.conditions == new.conditions and old.restarts == new.restarts):
                return
        if len(self._changes) < MAX_CHANGES:
            self._changes.append(delta)
        else:
            self._must_rescan = True
        self._changed.set()

    async def _look_at_changes(self) -> Never:
        while True:
            await self._changed.wait()
            self._changed.clear()
            count = 0
            while self._changes or self._must_rescan:
                if not self._changes:
                    self._rescan()
                    continue
                self._look_at(self._changes.popleft())
                count += 1
                if count % CHANGES_PER_TURN == 0:
                    await self._clock.sleep(timedelta())  # Let other tasks run.

    def _rescan(self) -> None:
        self._must_rescan = False
        jobs = self._jobs_by_uid()
        for job in jobs.values():
            self._observe(job)
        self._journal.forget_others(jobs)

    def _jobs_by_uid(self) -> dict[str, TrainingJob]:
        return {job.metadata.uid: job for informer in self._informers for job in informer.cache if job.is_of_this_api}

    def _look_at(self, delta: Delta[Any]) -> None:
        if delta.after is not None:
            self._observe(delta.after)
        elif delta.newest.is_of_this_api:
            self._observe(delta.newest)
            self._waiting.pop(delta.newest.metadata.uid, None)
            self._journal.forget(delta.newest.metadata.uid)
            self._mark_dirty()

    def _observe(self, job: TrainingJob) -> None:
        if not job.is_of_this_api:
            return
        if waits_since(job.status) is not None:
            self._waiting[job.metadata.uid] = job
        else:
            self._waiting.pop(job.metadata.uid, None)
        self._queue(self._journal.observe(job, self._clock.now()))
        self._mark_dirty()

    async def _look_at_time(self) -> Never:
        tick = min(TICK, self._settings.waiting_after)
        while True:
            await self._clock.sleep(tick)
            now = self._clock.now()
            for job in list(self._waiting.values()):
                since = waits_since(job.status)
                if since is not None and now - since >= self._settings.waiting_after:
                    del self._waiting[job.metadata.uid]
                    self._queue(self._journal.observe(job, now))
            self._journal.prune(now)
            self._mark_dirty()

    def _queue(self, due: Sequence[Due]) -> None:
        for one in due:
            self._deliveries[one.route].add(one)

    # Journal

    def _settle(self, due: Due, result: DeliveryResult) -> None:
        self._journal.settle(due)
        self._unwritten += 1
        if self._options.metrics is not None:
            self._options.metrics.count(due.route, result)
        if not any(self._deliveries.values()):
            self._idle.set()
        self._mark_dirty()

    def _mark_dirty(self) -> None:
        if self._journal.has_changes or self._unwritten:
            self._dirty.set()

    async def _write_journal(self) -> Never:
        while True:
            await self._dirty.wait()
            if not await self._write():
                self._write_failures += 1
                await self._clock.sleep(retry_delay(self._write_failures, 1.0))
                continue
            self._write_failures = 0
            await self._clock.sleep(WRITE_DELAY)

    async def _write(self) -> bool:
        """Write the changes of the journal. False if that failed: then they are still to be written."""
        self._dirty.clear()
        delivered, changes = self._unwritten, self._journal.take_changes()
        try:
            if changes:
                await self._records.save(changes, self._journal.records)
        except GanglineError as error:
            self._journal.put_back(changes)
            self._dirty.set()
            log.warning("what was notified cannot be written, will retry", extra={"error": str(error)})
            return False
        except asyncio.CancelledError:
            self._journal.put_back(changes)
            raise
        self._unwritten -= delivered
        for delivery in self._deliveries.values():
            delivery.wake()
        return True
