"""Starts and stops the parts of an operator in the right order: caches first, then the election, then controllers.

The way down, on SIGTERM or SIGINT, one step after the other:

1. queues are closed: no pass begins any more;
2. passes under way may finish within `grace`, then are cancelled, and awaited;
3. recorded events are flushed, informers and other background work end;
4. the lease is released, so that another process can begin at once;
5. probes and metrics go last: they answer until the end.

Until step 4 the lease is renewed. A second signal ends the process at once. An error of any part brings all others
down at once, and is raised.
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
from gangline.base.tasks import time_limit, unwrapped
from gangline.kube.client import Kind, Reader
from gangline.runtime.cache import Index
from gangline.runtime.controller import Controller, ControllerMetrics, Reconciler
from gangline.runtime.events import Recorder
from gangline.runtime.health import Health
from gangline.runtime.informer import Informer
from gangline.runtime.interning import Sharing
from gangline.runtime.leader import Leader
from gangline.runtime.limits import CEILING, default_limiter
from gangline.runtime.queue import Queue, QueueMetrics
from gangline.runtime.sources import Source

log = logging.getLogger(__name__)

T = TypeVar("T")
Runnable = Callable[[], Awaitable[object]]
Task = asyncio.Task[object]

GRACE = timedelta(seconds=10)
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Meters(Protocol):
    """Gives each part something to report to: `gangline.runtime.metrics.Metrics`."""

    def queue(self, name: str) -> QueueMetrics: ...
    def follow_queue(self, queue: Queue[Any]) -> None: ...
    def follow_informer(self, informer: Informer[Any]) -> None: ...
    def controller(self, name: str, workers: int) -> ControllerMetrics: ...


class ControllerOptions(msgspec.Struct, frozen=True):
    """How a controller works: passes at the same time, how long one may take, and the longest pause after failures."""

    workers: int = 4
    timeout: timedelta | None = None
    ceiling: timedelta = CEILING


DEFAULT_OPTIONS = ControllerOptions()


class Manager:
    """Holds the parts and runs them. Inert until `run()`; add everything before."""

    def __init__(
        self,
        reader: Reader,
        clock: Clock,
        *,
        leader: Leader | None = None,
        recorder: Recorder | None = None,
        health: Health | None = None,
        metrics: Meters | None = None,
        grace: timedelta = GRACE,
    ) -> None:
        self._reader, self._clock, self._grace = reader, clock, grace
        self._leader, self._recorder, self._health, self._metrics = leader, recorder, health, metrics
        self._shared: dict[tuple[object, Selector], Informer[Any]] = {}
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller] = []
        self._background: list[Runnable] = []
        self._leading: list[Runnable] = []
        if health is not None:
            health.add_ready("caches", self.unsynced)

    # Parts

    def informer(
        self, kind: Kind[T], where: Selector = EVERYTHING, indexes: Mapping[str, Index[T]] | None = None
    ) -> Informer[T]:
        """The one informer of a kind and selection, made when first asked for; indexes add up.

        Raises ValueError when an index of that name exists and is another function.
        """
        informer = self._shared.get((kind, where))
        if informer is None:
            # Shared caches are the big ones: half the memory for a few microseconds per object.
            informer = Informer(self._reader, kind, where, clock=self._clock, trim=Sharing())
            self._shared[kind, where] = informer
            self.add_informer(informer)
        for name, index in (indexes or {}).items():
            informer.cache.add_index(name, index)
        return informer

    def controller(
        self,
        name: str,
        reconciler: Reconciler,
        sources: Sequence[Source],
        options: ControllerOptions = DEFAULT_OPTIONS,
    ) -> Controller:
        """Make and add a controller with a queue, limits and metrics of the usual kind."""
        meters = self._metrics
        queue: Queue[Key] = Queue(
            default_limiter(self._clock, options.ceiling),
            self._clock,
            name=name,
            metrics=meters.queue(name) if meters is not None else None,
        )
        controller = Controller(
            name,
            queue,
            reconciler,
            sources,
            workers=options.workers,
            timeout=options.timeout,
            clock=self._clock,
            metrics=meters.controller(name, options.workers) if meters is not None else None,
        )
        self.add_controller(controller)
        return controller

    def add_informer(self, informer: Informer[Any]) -> None:
        """Run an informer that is not shared; controllers wait for it as for the others."""
        self._informers.append(informer)
        if self._metrics is not None:
            self._metrics.follow_informer(informer)

    def add_controller(self, controller: Controller) -> None:
        """Run a controller, while leading if there is an election."""
        self._controllers.append(controller)
        if self._metrics is not None:
            self._metrics.follow_queue(controller.queue)

    def add_runnable(self, run: Runnable, *, leading: bool = True) -> None:
        """Run something else: while leading, like a controller, or from start to end. It may return early."""
        (self._leading if leading else self._background).append(run)

    # Life

    async def run(self, stop: asyncio.Event | None = None, *, signals: bool = True) -> None:
        """Run everything until `stop` is set or a signal arrives, then go down in order and return.

        Raises `LostLeadership` when the lease is lost: the process should end, and begin anew. Raises the error of
        the part that failed; several at once come as an `ExceptionGroup`. Cancelling ends everything at once,
        without grace, but releases the lease.
        """
        stopping = stop or asyncio.Event()
        async with self._health or nullcontext():
            with unwrapped(), stopped_by_signals(stopping) if signals else nullcontext():
                await self._all(stopping)

    async def _all(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            # In the order in which they end: events first, while everything they need is still there.
            background = [
                [_start(group, self._recorder.run)] if self._recorder is not None else [],
                [_start(group, run) for run in self._background],
                [_start(group, informer.run) for informer in self._informers],
            ]
            work = group.create_task(self._elected(stop, background))
            watch = group.create_task(_cancel_on(stop, work))
            await asyncio.wait([work])
            watch.cancel()
            for tasks in background:
                await _end(tasks)

    async def _elected(self, stop: asyncio.Event, background: Sequence[Sequence[Task]]) -> None:
        for informer in self._informers:
            await informer.synced()
        log.info("caches synced", extra={"informers": len(self._informers)})
        term = partial(self._term, stop, background)
        await (self._leader.while_leading(term) if self._leader is not None else term())

    async def _term(self, stop: asyncio.Event, background: Sequence[Sequence[Task]]) -> None:
        """Run the controllers until cancelled: in order if that is because of `stop`, else at once."""
        async with asyncio.TaskGroup() as group:
            controllers = [_start(group, controller.run) for controller in self._controllers]
            others = [_start(group, run) for run in self._leading]
            try:
                await asyncio.Event().wait()
            finally:
                gently = stop.is_set() and (self._leader is None or self._leader.is_leader)
                if gently:
                    await self._drain(controllers)
                await _end([*controllers, *others])
                if gently:
                    for tasks in background:
                        await _end(tasks)

    def unsynced(self) -> str:
        """Which caches are not filled yet, in words: a readiness check. Empty when all are."""
        missing = ", ".join(informer.name for informer in self._informers if not informer.is_synced)
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
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGTERM or SIGINT. The second signal does what it does to any program: it kills."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def first(number: signal.Signals) -> None:
        log.info("signal received, stopping", extra={"signal": number.name})
        stop.set()
        for each in SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, first, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _start(group: asyncio.TaskGroup, run: Runnable) -> Task:
    async def work() -> object:
        return await run()

    return group.create_task(work())


async def _cancel_on(stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    await stop.wait()
    work.cancel()


async def _end(tasks: Iterable[Task]) -> None:
    """Cancel and await. Errors are the group's to raise."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished)
