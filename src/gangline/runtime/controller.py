"""Workers that lease keys and reconcile them; the one table of what becomes of an error."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Protocol

from gangline.api.meta import Key
from gangline.base.errors import Terminal
from gangline.kube.errors import Conflict, TooManyRequests
from gangline.runtime.queue import Queue
from gangline.runtime.sources import Source

log = logging.getLogger(__name__)

CONFLICT_DELAY = timedelta(milliseconds=50)


class Reconciler(Protocol):
    """Makes the world of one key as it should be. Level-based: it looks, whatever woke it."""

    async def reconcile(self, key: Key) -> timedelta | None:
        """Do one pass. A delay asks for another look then; None waits for the next change."""
        ...


class Controller:
    """Sources feed a queue, workers drain it. Inert until `run()`."""

    def __init__(
        self,
        name: str,
        queue: Queue[Key],
        reconciler: Reconciler,
        sources: Sequence[Source],
        *,
        workers: int = 4,
    ) -> None:
        self.name = name
        self._queue, self._reconciler, self._sources, self._workers = queue, reconciler, sources, workers

    async def run(self) -> None:
        """Work until cancelled. Begins once every source has its first list."""
        with ExitStack() as attached:
            for source in self._sources:
                attached.enter_context(source.attached(self._queue.add))
            for source in self._sources:
                await source.synced()
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            async with self._queue.lease() as key:
                try:
                    wake_after = await self._reconciler.reconcile(key)
                except Exception as error:  # noqa: BLE001 - the one place that decides about retries
                    self._react(key, error)
                else:
                    self._queue.forget(key)
                    if wake_after is not None:
                        self._queue.add(key, after=wake_after)

    def _react(self, key: Key, error: Exception) -> None:
        fields = {"controller": self.name, "key": str(key), "error": str(error)}
        match error:
            case Conflict():
                # Not a failure: somebody was faster, and the newer version is on its way to the cache.
                log.debug("conflict, looking again", extra=fields)
                self._queue.add(key, after=CONFLICT_DELAY)
            case TooManyRequests(retry_after=timedelta() as delay):
                log.warning("throttled", extra=fields)
                self._queue.add(key, after=delay)
            case Terminal():
                log.error("cannot succeed, waiting for a change", extra=fields)
                self._queue.forget(key)
            case _:
                log.warning("reconcile failed, will retry", extra=fields, exc_info=error)
                self._queue.retry(key)
