"""Group commit: while one batch is on its way to the disk, the next one gathers."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.journal import Contents, Forget, Journal
from gangline.apiserver.store.records import Event

log = logging.getLogger(__name__)


class Batch:
    """Commits that become durable and visible together, or not at all."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.due = False
        """Somebody waits for it to be written."""
        self.error: BaseException | None = None
        self._settled = False
        self._waiters: list[asyncio.Future[None]] = []

    async def settled(self) -> None:
        """Wait until it is known how it ended: `error` says. Cancel-safe: nobody else notices."""
        if not self._settled:
            # One for each, because cancelling a wait cancels the future that is waited for.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self, error: BaseException | None) -> None:
        self.error, self._settled = error, True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class GroupCommit:
    """Takes batches to a journal, one at a time, in a thread of its own; the rest happens on the loop."""

    def __init__(self, journal: Journal, publish: Callable[[Sequence[Event]], None]) -> None:
        self._journal = journal
        self._publish = publish
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="gangline-store"
        )  # starts with its first work
        self._gathering = Batch()
        self._writing: Batch | None = None
        self._scheduled = False
        # Paths with a write that is accepted and not yet settled.
        self._unsettled: dict[str, Batch] = {}
        # Grows until a write took it along: with a part of it lost, what was deleted could come back.
        self._unneeded: list[int] = []
        self._compacted: int | None = None

    async def open(self) -> Contents:
        """Raises what the journal raises; then, or when cancelled, everything is given up again."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.open)
        except BaseException:
            self._thread.submit(self._journal.close)
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        """Finish what was accepted, then close the journal. The thread is gone afterwards, even if cancelled."""
        try:
            await self._drain()
        finally:
            closing = self._thread.submit(self._journal.close)
            try:
                await asyncio.shield(asyncio.wrap_future(closing))
            finally:
                self._thread.shutdown()

    async def _drain(self) -> None:
        if self._compacted is not None:
            self.flush()
        while self._writing is not None or self._gathering.due:
            await (self._writing or self._gathering).settled()

    def unsettled(self, path: str) -> Batch | None:
        """The batch that is about to change a path, if any. There is at most one."""
        return self._unsettled.get(path)

    def add(self, events: Sequence[Event]) -> Batch:
        """Accept a commit. What it changes must not be unsettled."""
        batch = self._gathering
        batch.events += events
        for event in events:
            self._unsettled[event.record.path] = batch
        return self.flush()

    def forget(self, forget: Forget) -> None:
        """Let the next write delete what nothing needs any more."""
        self._unneeded += forget.revisions
        self._compacted = forget.compacted

    def flush(self) -> Batch:
        """Write what was gathered and is to be forgotten, as soon as the journal is free."""
        self._gathering.due = True
        if self._writing is None and not self._scheduled:
            # Not at once: other tasks that are ready to run may have commits too.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write)
        return self._gathering

    def _write(self) -> None:
        self._scheduled = False
        batch, self._gathering = self._gathering, Batch()
        self._writing = batch
        forget, self._unneeded, self._compacted = self._to_forget(), [], None
        writing = asyncio.get_running_loop().run_in_executor(
            self._thread, self._journal.write, batch.events, forget
        )
        writing.add_done_callback(partial(self._written, batch, forget))

    def _to_forget(self) -> Forget | None:
        return None if self._compacted is None else Forget(self._compacted, tuple(self._unneeded))

    def _written(self, batch: Batch, forget: Forget | None, writing: asyncio.Future[None]) -> None:
        error = writing.exception()
        self._writing = None
        for event in batch.events:
            del self._unsettled[event.record.path]
        if error is None:
            self._publish(batch.events)
        else:
            self._failed(error, forget)
        batch.settle(error)
        if self._gathering.due:
            self.flush()

    def _failed(self, error: BaseException, forget: Forget | None) -> None:
        if isinstance(error, StoreFailed):
            log.error("the store could not write", extra={"error": str(error)})
        if forget is not None:
            self._unneeded[:0] = forget.revisions
            self._compacted = max(forget.compacted, self._compacted or 0)
