"""Starts and stops the parts of an operator in order: caches first, then the election, then controllers.

Shutdown on SIGTERM or SIGINT, step by step:

1. queues are closed: no reconcile begins any more;
2. running reconciles may finish within `grace`; then they are cancelled and awaited;
3. recorded events are written, informers and other background work end;
4. the lease is released, so that another process can take over at once;
5. the server of probes and metrics ends.

Until step 4 the lease is renewed. A second signal kills the process. An error of any part cancels all others at once, and
is raised.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from gangline.api.meta import EVERYTHING, Key, Selector
from gangline.base.clock import Clock
from gangline.base.tasks import time_limit, unwrap_exception_group
from gangline.base.watchdog import WorkInProgress
from gangline.kube.client import ApiReader, Kind
from gangline.runtime.cache import IndexFunc
from gangline.runtime.controller import Controller, ControllerMetrics, Reconciler
from gangline.runtime.events import EventRecorder
from gangline.runtime.health import HealthServer
from gangline.runtime.informer import Informer
from gangline.runtime.interning import ObjectInterner
from gangline.runtime.leader_election import LeaderElector
from gangline.runtime.rate_limits import MAX_RETRY_DELAY, default_retry_limiter
from gangline.runtime.sources import KeySource
from gangline.runtime.work_queue import QueueMetrics, WorkQueue

log = logging.getLogger(__name__)

T = TypeVar("T")
Runnable = Callable[[], Awaitable[object]]
Task = asyncio.Task[object]

SHUTDOWN_GRACE = timedelta(seconds=10)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ManagerMetrics(Protocol):
    """The metrics of each part, as `gangline.runtime.metrics.PrometheusMetrics` has them."""

    def queue_metrics(self, name: str) -> QueueMetrics: ...
    def register_queue(self, queue: WorkQueue[Any]) -> None: ...
    def register_informer(self, informer: Informer[Any]) -> None: ...
    def controller_metrics(self, name: str, workers: int) -> ControllerMetrics: ...


class ControllerOptions(msgspec.Struct, frozen=True):
    """Options of a controller: concurrent reconciles, how long one may take, and the longest retry delay."""

    workers: int = 4
    timeout: timedelta | None = None
    ceiling: timedelta = MAX_RETRY_DELAY


DEFAULT_CONTROLLER_OPTIONS = ControllerOptions()


class Manager:
    """Holds the parts and runs them. Everything must be added before `run()`."""

    def __init__(
        self,
        reader: ApiReader,
        clock: Clock,
        *,
        leader: LeaderElector | None = None,
        recorder: EventRecorder | None = None,
        health: HealthServer | None = None,
        metrics: ManagerMetrics | None = None,
        grace: timedelta = SHUTDOWN_GRACE,
    ) -> None:
        self._reader, self._clock, self._grace = reader, clock, grace
        self._leader, self._recorder, self._health, self._metrics = leader, recorder, health, metrics
        self._shared_informers: dict[tuple[object, Selector, tuple[str, ...]], Informer[Any]] = {}
        self._informers: list[Informer[Any]] = []
        self._required_informers: list[Informer[Any]] = []
        self._controllers: list[Controller] = []
        self._background_runnables: list[Runnable] = []
        self._leader_runnables: list[Runnable] = []
        if health is not None:
            health.add_readyz_check("caches", self.unsynced_caches)

    # Parts

    def informer(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        indexes: Mapping[str, IndexFunc[T]] | None = None,
        *,
        namespaces: Sequence[str] = (),
    ) -> Informer[T]:
        """The shared informer of a kind and selector, created by the first call; indexes are added to it.

        With `namespaces`, it reads these only, each by requests of its own. Raises ValueError if it has another index with the same name.
        """
        informer = self._shared_informers.get((kind, where, tuple(namespaces)))
        if informer is None:
            # Shared caches are large: the interner halves their memory for a few microseconds per object.
            trim = ObjectInterner()
            informer = Informer(self._reader, kind, where, clock=self._clock, namespaces=namespaces, trim=trim)
            self._shared_informers[kind, where, tuple(namespaces)] = informer
            self.add_informer(informer)
        for name, index in (indexes or {}).items():
            informer.cache.add_index(name, index)
        return informer

    def new_controller(
        self,
        name: str,
        reconciler: Reconciler,
        sources: Sequence[KeySource],
        options: ControllerOptions = DEFAULT_CONTROLLER_OPTIONS,
    ) -> Controller:
        """Create and add a controller with the default queue, rate limits and metrics."""
        metrics = self._metrics
        queue: WorkQueue[Key] = WorkQueue(
            default_retry_limiter(self._clock, options.ceiling),
            self._clock,
            name=name,
            metrics=metrics.queue_metrics(name) if metrics is not None else None,
        )
        controller = Controller(
            name,
            queue,
            reconciler,
            sources,
            workers=options.workers,
            timeout=options.timeout,
            clock=self._clock,
            metrics=metrics.controller_metrics(name, options.workers) if metrics is not None else None,
        )
        self.add_controller(controller)
        return controller

    def add_informer(self, informer: Informer[Any], *, required: bool = True) -> None:
        """Add an informer that is not shared. Controllers wait until it has synced.

        If it is not required, only those wait that have it among their sources; it may never sync for want of rights.
        """
        self._informers.append(informer)
        if required:
            self._required_informers.append(informer)
        if self._metrics is not None:
            self._metrics.register_informer(informer)

    def add_controller(self, controller: Controller) -> None:
        """Add a controller. With an election it runs while this process leads."""
        self._controllers.append(controller)
        if self._metrics is not None:
            self._metrics.register_queue(controller.queue)

    def add_runnable(self, run: Runnable, *, leading: bool = True) -> None:
        """Add other work: run while leading, like a controller, or all the time. It may return early."""
        (self._leader_runnables if leading else self._background_runnables).append(run)

    # Life

    async def run(self, stop: asyncio.Event | None = None, *, signals: bool = True) -> None:
        """Run everything until `stop` is set or a signal arrives, then shut down in order and return.

        Raises `LostLeadership` when the lease is lost: the process should restart. Raises the error of a part that failed,
        or an `ExceptionGroup` of several. Cancelling this call ends everything without grace, but releases the lease.
        """
        stopping = stop or asyncio.Event()
        async with self._health or nullcontext():
            with unwrap_exception_group(), stop_on_signals(stopping) if signals else nullcontext():
                await self._run_parts(stopping)

    async def _run_parts(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            # In the order in which they are ended: the event recorder first, because it needs the others.
            background = [
                [_start_task(group, self._recorder.run)] if self._recorder is not None else [],
                [_start_task(group, run) for run in self._background_runnables],
                [_start_task(group, informer.run) for informer in self._informers],
            ]
            work = group.create_task(self._run_elected(stop, background))
            watch = group.create_task(_cancel_on(stop, work))
            await asyncio.wait([work])
            watch.cancel()
            for tasks in background:
                await _cancel_and_wait(tasks)

    async def _run_elected(self, stop: asyncio.Event, background: Sequence[Sequence[Task]]) -> None:
        for informer in self._required_informers:
            await informer.wait_for_sync()
        log.info("caches synced", extra={"informers": len(self._informers)})
        term = partial(self._run_controllers, stop, background)
        await (self._leader.run_while_leading(term) if self._leader is not None else term())

    async def _run_controllers(self, stop: asyncio.Event, background: Sequence[Sequence[Task]]) -> None:
        """Run the controllers until cancelled. Shut down in order if `stop` is set, else at once."""
        async with asyncio.TaskGroup() as group:
            controllers = [_start_task(group, controller.run) for controller in self._controllers]
            others = [_start_task(group, run) for run in self._leader_runnables]
            try:
                await asyncio.Event().wait()
            finally:
                graceful = stop.is_set() and (self._leader is None or self._leader.is_leader)
                if graceful:
                    await self._drain(controllers)
                await _cancel_and_wait([*controllers, *others])
                if graceful:
                    for tasks in background:
                        await _cancel_and_wait(tasks)

    def activities(self) -> list[tuple[str, WorkInProgress]]:
        """The reconciles under way, for `HealthServer.watch_work`. May be called from any thread."""
        return [activity for controller in self._controllers for activity in controller.activities()]

    def unsynced_caches(self) -> str:
        """A readiness check: names the caches that have not synced yet; empty if all have."""
        missing = ", ".join(informer.name for informer in self._required_informers if not informer.is_synced)
        return f"no first list of {missing}" if missing else ""

    async def _drain(self, tasks: Sequence[Task]) -> None:
        log.info("stopping, passes under way may finish", extra={"grace": self._grace})
        for controller in self._controllers:
            controller.stop()
        try:
            async with time_limit(self._grace, self._clock):
                if tasks:
                    await asyncio.wait(tasks)
        except TimeoutError:
            log.warning("passes did not finish in time, cancelling them", extra={"grace": self._grace})


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGTERM or SIGINT. A second signal has its default effect: it kills the process."""
    loop = asyncio.get_running_loop()
    old_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def on_first_signal(received: signal.Signals) -> None:
        log.info("signal received, stopping", extra={"signal": received.name})
        stop.set()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_first_signal, number)
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _start_task(group: asyncio.TaskGroup, run: Runnable) -> Task:
    async def work() -> object:
        return await run()

    return group.create_task(work())


async def _cancel_on(stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    await stop.wait()
    work.cancel()


async def _cancel_and_wait(tasks: Iterable[Task]) -> None:
    """Cancel and await tasks. Their errors are raised by their group."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished)
