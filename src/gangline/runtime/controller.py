"""Controllers: workers that lease keys from a queue and reconcile them, and the retry rules for errors."""

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
from gangline.base.tracing import is_tracing, trace_span
from gangline.base.watchdog import WorkInProgress, track_activity
from gangline.kube.errors import AlreadyExists, Conflict, TooManyRequests
from gangline.runtime.sources import KeySource
from gangline.runtime.work_queue import QueueClosed, WorkQueue

log = logging.getLogger(__name__)

CONFLICT_DELAY = timedelta(milliseconds=50)
"""The delay after a conflict; doubled with each further one in a row, up to 2**9 times this."""


class Reconciler(Protocol):
    """Brings the state of one key closer to the desired one. Level-based: it does not know which event woke it."""

    async def reconcile(self, key: Key) -> timedelta | None:
        """Reconcile once. Returns after which delay to reconcile again; None waits for the next change."""
        ...


class ReconcileResult(StrEnum):
    """The result of one reconcile, in controller-runtime's words."""

    SUCCESS = "success"
    ERROR = "error"
    REQUEUE = "requeue"
    REQUEUE_AFTER = "requeue_after"


class ControllerMetrics(Protocol):
    """Receives the metrics of a controller. Called synchronously: must be fast and must not raise."""

    def on_start(self) -> None:
        """A worker has begun to reconcile a key."""
        ...

    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None:
        """A reconcile has ended; the result is None if it was cancelled."""
        ...


class NoControllerMetrics:
    """Ignores all metrics."""

    def on_start(self) -> None: ...
    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None: ...


class Controller:
    """Sources add keys to a queue, workers reconcile them. Does nothing before `run()`."""

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
        """A reconcile that takes longer than `timeout` is cancelled and counts as failed."""
        self.name, self.queue, self.workers = name, queue, workers
        self._reconciler, self._sources, self._timeout = reconciler, sources, timeout
        self._clock: Clock = clock or SystemClock()
        self._metrics: ControllerMetrics = metrics or NoControllerMetrics()
        # Conflicts in a row, by key; keys without any are absent.
        self._conflicts: dict[Key, int] = {}
        self._activities: dict[Key, WorkInProgress] = {}

    async def run(self) -> None:
        """Reconcile until `stop` is called and the running reconciles have ended. Begins when all sources have synced.

        Cancelling this call also cancels the running reconciles, and awaits them.
        """
        with ExitStack() as attachments:
            for source in self._sources:
                attachments.enter_context(source.attach(self.queue.add))
            for source in self._sources:
                await source.wait_for_sync()
            async with asyncio.TaskGroup() as group:
                for _ in range(self.workers):
                    group.create_task(self._work())

    def stop(self) -> None:
        """Begin no more reconciles: `run` returns when the running ones have ended. Idempotent."""
        self.queue.close()

    def activities(self) -> list[tuple[str, WorkInProgress]]:
        """The reconciles under way, by controller and key. May be called from any thread."""
        return [(f"{self.name} {key}", activity) for key, activity in list(self._activities.items())]

    async def _work(self) -> None:
        while True:
            try:
                async with self.queue.lease() as key:
                    identity = str(uuid.uuid4())
                    with log_context(
                        controller=self.name,
                        namespace=key.namespace,
                        name=key.name,
                        reconcileID=identity,
                    ):
                        await self._reconcile_measured(key, identity)
            except QueueClosed:
                return

    async def _reconcile_measured(self, key: Key, identity: str) -> None:
        began = self._clock.monotonic()
        self._metrics.on_start()
        result, terminal = None, False
        activity = self._activities[key] = WorkInProgress()
        try:
            attributes = self._span_attributes(key, identity) if is_tracing() else None
            with track_activity(activity), trace_span("reconcile", attributes) as span:
                result, terminal = await self._reconcile(key)
                span.set_attribute("gangline.result", result.value)
        finally:
            del self._activities[key]
            self._metrics.on_end(result, self._clock.monotonic() - began, terminal=terminal)

    def _span_attributes(self, key: Key, identity: str) -> dict[str, str]:
        return {
            "gangline.controller": self.name,
            "k8s.namespace.name": key.namespace,
            "gangline.name": key.name,
            "gangline.reconcile_id": identity,
        }

    async def _reconcile(self, key: Key) -> tuple[ReconcileResult, bool]:
        try:
            async with AsyncExitStack() as limits:
                if self._timeout is not None:
                    await limits.enter_async_context(time_limit(self._timeout, self._clock))
                requeue_after = await self._reconciler.reconcile(key)
        except Exception as error:  # noqa: BLE001 - the one place that decides about retries
            return self._handle_error(key, error)
        self._forget(key)
        if requeue_after is None:
            return ReconcileResult.SUCCESS, False
        self.queue.add(key, after=requeue_after)
        return ReconcileResult.REQUEUE_AFTER, False

    def _handle_error(self, key: Key, error: Exception) -> tuple[ReconcileResult, bool]:
        """Log the error and requeue the key. Returns the result, and whether the error is terminal."""
        fields = {"error": str(error) or type(error).__name__}
        match _deciding_error(error):
            case AlreadyExists():
                # Either our own object that is not in the cache yet, or another owner's that will stay.
                log.debug("name is taken, will retry", extra=fields)
                self.queue.retry(key)
                return ReconcileResult.REQUEUE, False
            case Conflict():
                # Not a failure: another client was faster, and the newer version will arrive in the cache.
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
        """Short at first, then longer: the watch that should bring the newer version may be broken."""
        conflicts = self._conflicts.get(key, 0)
        self._conflicts[key] = conflicts + 1
        return CONFLICT_DELAY * (1 << min(conflicts, 9))

    def _forget(self, key: Key) -> None:
        self._conflicts.pop(key, None)
        self.queue.forget(key)


def _deciding_error(error: Exception) -> Exception:
    """Of several errors, of actions that failed together, the one that decides about the retry."""
    return max(_leaf_errors(error), key=_error_rank)


def _leaf_errors(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaf_errors(inner)
    else:
        yield error


def _error_rank(error: Exception) -> int:
    """Higher ranks win: any plain failure means back-off, whatever other errors came with it."""
    match error:
        case TerminalError():
            return 0  # when the other errors are gone, this one will occur alone
        case AlreadyExists():
            return 2
        case Conflict():
            return 1
        case TooManyRequests():
            return 3
        case _:
            return 4
