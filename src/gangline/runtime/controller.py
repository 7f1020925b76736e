"""Workers that lease keys and reconcile them; the one table of what becomes of an error."""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from gangline.api.meta import Key
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import TerminalError
from gangline.base.log import log_context
from gangline.base.tasks import time_limit
from gangline.kube.errors import AlreadyExists, Conflict, TooManyRequests
from gangline.runtime.sources import KeySource
from gangline.runtime.work_queue import QueueClosed, WorkQueue

log = logging.getLogger(__name__)

CONFLICT_DELAY = timedelta(milliseconds=50)
"""After one conflict; twice as long after each one that follows, up to 2**9 times this."""


class Reconciler(Protocol):
    """Makes the world of one key as it should be. Level-based: it looks, whatever woke it."""

    async def reconcile(self, key: Key) -> timedelta | None:
        """Do one pass. A delay asks for another look then; None waits for the next change."""
        ...


class ReconcileResult(StrEnum):
    """How a pass ended, in controller-runtime's words."""

    SUCCESS = "success"
    ERROR = "error"
    REQUEUE = "requeue"
    REQUEUE_AFTER = "requeue_after"


class ControllerMetrics(Protocol):
    """What a controller reports. Called in line, so it must be quick and must not raise."""

    def on_start(self) -> None:
        """A worker began a pass."""
        ...

    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None:
        """A pass ended after so long; None when it was cancelled."""
        ...


class NoControllerMetrics:
    """Reports nothing."""

    def on_start(self) -> None: ...
    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None: ...


class Controller:
    """Sources feed a queue, workers drain it. Inert until `run()`."""

    def __init__(
        self,
        name: str,
        queue: WorkQueue[Key],
        reconciler: Reconciler,
        sources: Sequence[KeySource],
        *,
        workers: int = 4,
        timeout: timedelta | None = None,
        clock: Clock | None = None,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        """A pass that takes longer than `timeout` is cancelled and counts as failed."""
        self.name, self.queue, self.workers = name, queue, workers
        self._reconciler, self._sources, self._timeout = reconciler, sources, timeout
        self._clock: Clock = clock or SystemClock()
        self._metrics: ControllerMetrics = metrics or NoControllerMetrics()
        # How often in a row a key met a conflict; a key that did not is absent.
        self._conflicts: dict[Key, int] = {}

    async def run(self) -> None:
        """Work until `stop` is called and the passes under way have ended. Begins once every source has synced.

        Cancelling is not gentle: passes under way are cancelled too, and awaited.
        """
        with ExitStack() as attached:
            for source in self._sources:
                attached.enter_context(source.attach(self.queue.add))
            for source in self._sources:
                await source.wait_for_sync()
            async with asyncio.TaskGroup() as group:
                for _ in range(self.workers):
                    group.create_task(self._work())

    def stop(self) -> None:
        """Begin no more passes: `run` returns when those under way have ended. Idempotent."""
        self.queue.close()

    async def _work(self) -> None:
        while True:
            try:
                async with self.queue.lease() as key:
                    with log_context(
                        controller=self.name,
                        namespace=key.namespace,
                        name=key.name,
                        reconcileID=str(uuid.uuid4()),
                    ):
                        await self._reconcile_measured(key)
            except QueueClosed:
                return

    async def _reconcile_measured(self, key: Key) -> None:
        began = self._clock.monotonic()
        self._metrics.on_start()
        result, terminal = None, False
        try:
            result, terminal = await self._reconcile(key)
        finally:
            self._metrics.on_end(result, self._clock.monotonic() - began, terminal=terminal)

    async def _reconcile(self, key: Key) -> tuple[ReconcileResult, bool]:
        try:
            async with AsyncExitStack() as limits:
                if self._timeout is not None:
                    await limits.enter_async_context(time_limit(self._timeout, self._clock))
                wake_after = await self._reconciler.reconcile(key)
        except Exception as error:  # noqa: BLE001 - the one place that decides about retries
            return self._handle_error(key, error)
        self._forget(key)
        if wake_after is None:
            return ReconcileResult.SUCCESS, False
        self.queue.add(key, after=wake_after)
        return ReconcileResult.REQUEUE_AFTER, False

    def _handle_error(self, key: Key, error: Exception) -> tuple[ReconcileResult, bool]:
        """Log, and ask for the next look. Gives the result, and whether the error was terminal."""
        fields = {"error": str(error) or type(error).__name__}
        match _deciding_error(error):
            case AlreadyExists():
                # Either our own object that the cache has yet to show, or a stranger's that will stay.
                log.debug("name is taken, will retry", extra=fields)
                self.queue.retry(key)
                return ReconcileResult.REQUEUE, False
            case Conflict():
                # Not a failure: somebody was faster, and the newer version is on its way to the cache.
                log.debug("conflict, looking again", extra=fields)
                self.queue.add(key, after=self._conflict_delay(key))
                return ReconcileResult.REQUEUE, False
            case TooManyRequests(retry_after=timedelta() as delay):
                log.warning("throttled", extra=fields)
                self.queue.add(key, after=delay)
                return ReconcileResult.REQUEUE_AFTER, False
            case TerminalError():
                log.error("cannot succeed, waiting for a change", extra=fields)
                self._forget(key)
                return ReconcileResult.ERROR, True
            case _:
                log.warning("reconcile failed, will retry", extra=fields, exc_info=error)
                self.queue.retry(key)
                return ReconcileResult.ERROR, False

    def _conflict_delay(self, key: Key) -> timedelta:
        """Short at first. Longer if it does not help: the watch that should bring the news may be broken."""
        before = self._conflicts.get(key, 0)
        self._conflicts[key] = before + 1
        return CONFLICT_DELAY * (1 << min(before, 9))

    def _forget(self, key: Key) -> None:
        self._conflicts.pop(key, None)
        self.queue.forget(key)


def _deciding_error(error: Exception) -> Exception:
    """Of several errors (independent actions failed together) the one that decides."""
    return max(_leaf_errors(error), key=_error_rank)


def _leaf_errors(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaf_errors(inner)
    else:
        yield error


def _error_rank(error: Exception) -> int:
    """A plain failure is retried with back-off, whatever came with it; the mildest answers need agreement."""
    match error:
        case TerminalError():
            return 0  # the other errors may go away, and then this one is met again, alone
        case AlreadyExists():
            return 2
        case Conflict():
            return 1
        case TooManyRequests():
            return 3
        case _:
            return 4
