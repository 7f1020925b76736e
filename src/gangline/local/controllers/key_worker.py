"""Works off keys one after the other, each once however often it is added, and again after an error."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.records import StoreEvent
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.base.clock import Clock
from gangline.runtime.rate_limits import ExponentialBackoff
from gangline.runtime.work_queue import WorkQueue

log = logging.getLogger(__name__)

MAX_DELAY = timedelta(seconds=10)


class KeyWorker:
    """Calls `handle` with each key that was added. Inert until `run`."""

    def __init__(self, what: str, handle: Callable[[str], Awaitable[object]], clock: Clock) -> None:
        """`what` names the work in the log."""
        self._what, self._handle = what, handle
        self._queue: WorkQueue[str] = WorkQueue(ExponentialBackoff(ceiling=MAX_DELAY), clock, name=what)
        self.add, self.wait_until_idle = self._queue.add, self._queue.wait_until_idle

    async def run(self) -> None:
        """Work until cancelled. An error is logged, and its key is handled again after a while."""
        while True:
            async with self._queue.lease() as key:
                try:
                    await self._handle(key)
                except StoreFailed:
                    # The store logs it, once for all who write.
                    self._queue.retry(key)
                except Exception:
                    if not self._queue.attempts(key):
                        log.exception("%s failed, trying again", self._what, extra={"key": key})
                    self._queue.retry(key)
                else:
                    self._queue.forget(key)

    async def follow(self, changes: StoreWatch, handle_event: Callable[[StoreEvent], None]) -> None:
        """Work while `handle_event` gets every change, which it may add keys for; until cancelled, or the watch ends."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self.run())
            async for events in changes:
                for event in events:
                    handle_event(event)
            working.cancel()

    async def follow_objects(self, store: Store, prefix: str) -> None:
        """Handle the path of every object below `prefix`: now, and after each of its changes; until cancelled."""
        with store.watch(prefix, after=store.revision) as changes:
            for record in store.range(prefix).records:
                self.add(record.path)
            await self.follow(changes, lambda event: self.add(event.record.path))
